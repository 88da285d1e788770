"""Whether a tensor of the port is one that the reference has too, whichever way its axes stand."""

from __future__ import annotations

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


class LikeValues:
    """The tensors of a reference's run by their size, asked for those that a tensor of the port is like.

    Two are alike if they are apart by less than `tolerance`, a share of their root mean square, with the axes of the
    one in any order.
    """

    def __init__(self, reference: CallRecord, others: Iterable[Array], tolerance: float) -> None:
        self._tolerance = tolerance
        self._by_size: dict[int, list[tuple[TensorKey | None, Array]]] = {}
        for key, value in (*reference.values.items(), *((None, one) for one in others)):
            if value.dtype.kind in "fiubV" and value.size:
                self._by_size.setdefault(value.size, []).append((key, _without_sentinels(value)))
        self._norms: dict[int, float] = {}

    def has(self, value: Array) -> bool:
        """Tell whether the reference has such a tensor; of one that varies nowhere nothing is known, and it counts."""
        return not _varies(value) or any(True for _ in self._alike(value))

    def keys(self, value: Array) -> set[TensorKey]:
        """The recorded tensors of the reference that this one is like."""
        return {key for key in self._alike(value) if key is not None} if _varies(value) else set()

    def has_scaled(self, value: Array) -> bool:
        """Tell whether it is a tensor of the reference times one number."""
        own = _unit(_without_sentinels(value))
        return any(
            _is_near(other, own, self._tolerance)
            for _, one in self._by_size.get(value.size, ())
            if _varies(one)
            for other in (_unit(one), -_unit(one))
        )

    def _alike(self, value: Array) -> Iterator[TensorKey | None]:
        value = _without_sentinels(value)
        norm = _norm(value)
        for key, one in self._by_size.get(value.size, ()):
            other = self._norms.setdefault(id(one), _norm(one))
            if abs(norm - other) <= self._tolerance * max(norm, other) and _is_near(one, value, self._tolerance):
                yield key


def _varies(value: Array) -> bool:
    return bool(value.size) and value.dtype.kind in "fiubV" and bool(np.any(value != value.reshape(-1)[0]))


def _norm(value: Array) -> float:
    return float(np.sqrt(np.mean(np.square(value))))


def _unit(value: Array) -> Array:
    return value / (_norm(value) or 1.0)


def _without_sentinels(value: Array) -> Array:
    """In float64, with what is far above all else (a mask of -1e9, or infinity) hardly above it: its places count."""
    wide: Array = value.astype(np.float64)
    sizes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    beyond = ~np.isfinite(wide)
    if not beyond.any():
        found = find_sentinels(sizes)
        beyond = beyond if found is None else found
    if beyond.any():
        wide[beyond] = 2.0 * np.where(beyond, 0.0, sizes).max() * np.sign(np.nan_to_num(wide[beyond]))
    return wide


def _is_near(reference: Array, candidate: Array, tolerance: float) -> bool:
    places = np.random.default_rng(0).integers(0, candidate.size, SAMPLED_ELEMENTS)
    sample = candidate.reshape(-1)[places]
    return any(relative_rms_distance(values, sample) < tolerance for values in _orders(reference, places))


def _orders(reference: Array, places: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """Those places of the reference with its axes in every order."""
    axes = [axis for axis, size in enumerate(reference.shape) if size > 1]
    turned = reference.reshape([reference.shape[axis] for axis in axes])
    orders = permutations(range(turned.ndim)) if turned.ndim <= MOST_PERMUTED_AXES else [tuple(range(turned.ndim))]
    for order in orders:
        view = turned.transpose(order)
        yield view[np.unravel_index(places, view.shape)]
