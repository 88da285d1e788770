"""Which tensor of the reference a tensor of the port is, whichever way its axes stand, and whatever it is scaled by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from align.measure.sampled_values import relative_rms_distance
from align.measure.slices import find_sentinels
from align.measure.thresholds import MOST_PERMUTED_AXES, SAMPLED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.forward.functions.recorded_calls import CallRecord, TensorKey


@dataclass(frozen=True, slots=True)
class Likeness:
    """The recorded tensors of the reference that a tensor is times `factor`; none where it is one of another kind."""

    keys: frozenset[TensorKey] = frozenset()
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class _Known:
    key: TensorKey | None
    value: Array
    size: float  # root mean square
    spread: float  # mean absolute value, as a share of it: no order of elements and no factor changes that


class LikeValues:
    """The tensors of a reference's run by their number of elements.

    Two are alike if they are apart by less than `tolerance`, a share of their root mean square, with the axes of the
    one in any order.
    """

    def __init__(self, reference: CallRecord, others: Iterable[Array], tolerance: float) -> None:
        self._tolerance = tolerance
        self._by_count: dict[int, list[_Known]] = {}
        for key, value in (*reference.values.items(), *((None, one) for one in others)):
            if varies(value):
                plain = _without_sentinels(value)
                self._by_count.setdefault(value.size, []).append(_Known(key, plain, *_sizes(plain)))

    def find(self, value: Array) -> Likeness | None:
        """What a tensor is; of one that varies nowhere nothing can be known, and it counts as known."""
        if not varies(value):
            return Likeness()
        plain = _without_sentinels(value)
        size, spread = _sizes(plain)
        known = [one for one in self._by_count.get(value.size, ()) if abs(spread - one.spread) <= self._tolerance]
        equal = [one for one in known if abs(size - one.size) <= self._tolerance * size and self._are_near(one, plain)]
        if equal:
            return Likeness(frozenset(one.key for one in equal if one.key is not None))
        for one in known:
            for factor in (size / one.size, -size / one.size):
                if self._are_near(one, plain / factor):
                    return replace(self.find(plain / factor) or Likeness(), factor=factor)
        return None

    def _are_near(self, known: _Known, value: Array) -> bool:
        places = np.random.default_rng(0).integers(0, value.size, SAMPLED_ELEMENTS)
        sample = value.reshape(-1)[places]
        return any(relative_rms_distance(one, sample) < self._tolerance for one in _orders(known.value, places))


def varies(value: Array) -> bool:
    """Tell whether an array of numbers has unlike ones."""
    return bool(value.size) and value.dtype.kind in "fiubV" and bool(np.any(value != value.reshape(-1)[0]))


def _sizes(value: Array) -> tuple[float, float]:
    size = float(np.sqrt(np.mean(np.square(value))))
    return size, float(np.mean(np.abs(value))) / size


def _without_sentinels(value: Array) -> Array:
    """In float64, with what is far above all else (a mask of -1e9, or infinity) hardly above it: its places count."""
    wide: Array = value.astype(np.float64)
    finite = np.isfinite(wide)
    sizes = np.where(finite, np.abs(wide), 0.0)
    found = find_sentinels(sizes) if finite.all() else None
    beyond = ~finite if found is None else found
    if beyond.any():
        wide[beyond] = 2.0 * np.where(beyond, 0.0, sizes).max() * np.sign(np.nan_to_num(wide[beyond]))
    return wide


def _orders(reference: Array, places: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """Those places of the reference with its axes in every order."""
    turned = reference.reshape([size for size in reference.shape if size > 1])
    orders = permutations(range(turned.ndim)) if turned.ndim <= MOST_PERMUTED_AXES else [tuple(range(turned.ndim))]
    for order in orders:
        view = turned.transpose(order)
        yield view[np.unravel_index(places, view.shape)]
