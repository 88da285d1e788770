"""Parts of a tensor whose sizes differ so much that one limit would hide a fault of the smaller ones.

A mask of -1e4, one huge channel or one token of massive activations would set the scale of all. So what lies far above
or below the rest is judged apart: constants that stand for "masked", and the slices of an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name, is_float
from align.measure.thresholds import APART_ABOVE, APART_BELOW, LEAST_ELEMENTS_APART, LEAST_SENTINEL
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array


@dataclass(frozen=True, slots=True)
class Slice:
    """Some elements of a tensor of one shape: what they are, and where.

    They lie at some `places` of an `axis`, or everywhere if that is None, and only where `chosen` is true if it is
    given. Large tensors have many: flat indices are made only when they are asked for.
    """

    label: str
    shape: tuple[int, ...]
    axis: int | None
    places: NDArray[np.intp]
    chosen: NDArray[np.bool_] | None

    def of(self, values: Array) -> Array:
        """The elements of a tensor of this shape, flat, in C order."""
        found = self._cut(values)
        return np.asarray(found.ravel() if self.chosen is None else found[self._cut(self.chosen)])

    @property
    def elements(self) -> NDArray[np.intp]:
        """Their flat indices in C order."""
        indices = np.arange(int(np.prod(self.shape, dtype=np.int64))).reshape(self.shape)
        return np.asarray(self.of(indices))

    def _cut(self, values: Array) -> Array:
        return values if self.axis is None else np.take(values, self.places, axis=self.axis)


def slices_of(values: Array) -> tuple[Slice, ...]:
    """Return the parts of a tensor that are judged apart, none if it is of one size, exact, or has few elements.

    Parts may overlap: all axes are cut, each by itself.
    """
    if not is_float(dtype_name(values.dtype)) or values.size < 2 * LEAST_ELEMENTS_APART:
        return ()
    sizes = np.abs(values if values.dtype.kind == "f" else values.astype(np.float32))
    if not np.isfinite(sizes.max()):
        sizes[~np.isfinite(sizes)] = 0.0
    sentinels = find_sentinels(sizes)
    found = [] if sentinels is None else list(_split(sizes, sentinels))
    if sentinels is not None:
        sizes[sentinels] = 0.0
    for axis in range(values.ndim):
        found += _axis_slices(sizes, axis, sentinels)
    return tuple(found)


def find_sentinels(sizes: Array) -> NDArray[np.bool_] | None:
    """Where the largest elements lie, if they are of one size and far above all others."""
    largest = float(sizes.max())
    if largest < LEAST_SENTINEL:
        return None
    high: NDArray[np.bool_] = sizes >= largest / 2.0
    below = sizes[~high]
    if np.count_nonzero(below) < LEAST_ELEMENTS_APART or below.max() > largest * 0.5**APART_ABOVE:
        return None
    return high


def _split(sizes: Array, high: NDArray[np.bool_]) -> Iterator[Slice]:
    largest, nowhere = f"{sizes.max():.2g}", np.empty(0, np.intp)
    yield Slice(sentence("part_note.around", size=largest), sizes.shape, None, nowhere, high)
    label = sentence("part_note.all_but", count=int(high.sum()), size=largest)
    yield Slice(label, sizes.shape, None, nowhere, ~high)


def _axis_slices(sizes: Array, axis: int, left_out: NDArray[np.bool_] | None) -> Iterator[Slice]:
    """The slices of an axis in groups of one size each, if there are several."""
    if sizes.size < LEAST_ELEMENTS_APART * sizes.shape[axis]:
        return
    largest = sizes.max(axis=tuple(one for one in range(sizes.ndim) if one != axis)).astype(np.float64)
    alive = largest[largest > 0.0]
    if alive.size < 2 or alive.max() / alive.min() < 2.0**APART_ABOVE:
        return
    steps = np.log2(np.where(largest > 0.0, largest, np.median(alive)) / np.median(alive))
    smaller = -(-steps // APART_BELOW) if sizes.size >= LEAST_ELEMENTS_APART * largest.size else np.zeros(steps.shape)
    groups = np.where(steps >= 0.0, steps // APART_ABOVE, smaller)
    if np.unique(groups).size < 2:
        return
    chosen = None if left_out is None else ~left_out
    counts = np.full(sizes.shape[axis], sizes.size // sizes.shape[axis])
    if chosen is not None:
        counts = chosen.sum(axis=tuple(one for one in range(sizes.ndim) if one != axis))
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        if counts[places].sum() >= LEAST_ELEMENTS_APART:
            yield Slice(f"{_ranges(places)} of axis {axis}", sizes.shape, axis, places, chosen)


def _ranges(places: NDArray[np.intp]) -> str:
    some = ", ".join(str(place) for place in places[:3])
    return f"index {some}" if len(places) == 1 else f"indices {some}{' and others' if len(places) > 3 else ''}"
