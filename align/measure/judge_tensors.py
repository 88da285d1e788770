"""One tensor against its limit, as a whole and in the parts that are judged apart.

A mask of -1e4, one huge channel or one token of massive activations would set the scale of all, and one limit would
hide a fault of what is smaller. So what lies far above or below the rest is judged apart: constants that stand for
"masked", and the slices of an axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name, is_float
from align.core.measurements import smallest_factor
from align.measure.limits import part_key
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import sample_values
from align.measure.thresholds import (
    APART_ABOVE,
    APART_BELOW,
    LEAST_ELEMENTS_APART,
    LEAST_SENTINEL,
    MOST_SHARED_DRAWS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.measurements import Limit, Measurement

    LimitOf = Callable[[Measurement, str], Limit | None]


@dataclass(frozen=True, slots=True)
class JudgedTensor:
    """Figures, limit and factor of a tensor, or of the `part` of it that is above its own limit by more.

    `left_out` is the factor of what was left out, by the limit of the whole; None if nothing was.
    """

    measurement: Measurement
    limit: Limit
    factor: float
    part: str = ""
    left_out: float | None = None


def judge_tensor(
    reference: Array, candidate: Array, limit_of: LimitOf, left_out: NDArray[np.bool_] | None = None
) -> JudgedTensor:
    """Measure two arrays of one shape; `limit_of` gives the limit of the whole (""), and of parts that have one.

    `left_out` are elements that do not count, in the same shape: the candidate's are judged as if they were right.
    """
    if left_out is not None:
        return _without((reference, candidate), limit_of, left_out)
    whole = measure(reference, candidate)
    limit = limit_of(whole, "")
    if limit is None:
        msg = "the whole tensor has no limit"
        raise ValueError(msg)
    judged = JudgedTensor(whole, limit, smallest_factor(whole, limit))
    if whole.max_abs == 0.0:
        return judged
    for part in slices_of(reference):
        own = measure(part.of(reference), part.of(candidate))
        bound = limit_of(own, part.label)
        factor = 0.0 if bound is None else smallest_factor(own, bound)
        if bound is not None and factor > max(1.0, judged.factor):
            place = np.unravel_index(part.elements[own.worst[0]], reference.shape) if own.worst else ()
            judged = JudgedTensor(replace(own, worst=tuple(map(int, place))), bound, factor, part.label)
    return judged


def _without(arrays: tuple[Array, Array], limit_of: LimitOf, left_out: NDArray[np.bool_]) -> JudgedTensor:
    reference, candidate = arrays
    rest = measure(reference[left_out], candidate[left_out])
    if rest.non_finite_mismatch:  # NaN is nobody's padding
        return judge_tensor(*arrays, limit_of)
    right = np.where(left_out, reference.astype(np.float64), candidate.astype(np.float64))
    judged = judge_tensor(reference, right, limit_of)
    return replace(judged, left_out=smallest_factor(rest, judged.limit))


def measure_parts(key: str, reference: Array, ordinary: Array) -> dict[str, Measurement]:
    """What a tensor moves by, by its key, and each part of the `ordinary` one by its `part_key`."""
    found = {key: _of_draws(measure(reference, ordinary), ordinary)}
    if found[key].max_abs == 0.0:
        return found
    for part in slices_of(ordinary):
        own = part.of(ordinary)
        found[part_key(key, part.label)] = _of_draws(measure(part.of(reference), own), own)
    return found


def _of_draws(measured: Measurement, values: Array) -> Measurement:
    """What rounding moves, with the number of its draws as the count: elements of one value share their error."""
    if not is_float(dtype_name(values.dtype)):
        return measured
    sample = sample_values(values)
    draws = np.unique(sample).size
    return replace(measured, count=draws) if draws < MOST_SHARED_DRAWS * sample.size else measured


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
        part = Slice(f"{_ranges(places)} of axis {axis}", sizes.shape, axis, places, chosen)
        if counts[places].sum() >= LEAST_ELEMENTS_APART and _has_unlike_values(part.of(sizes)):
            yield part


def _has_unlike_values(values: Array) -> bool:
    """Tell whether there are enough unlike values: those of a channel that is constant share one error."""
    return any(np.unique(own).size >= LEAST_ELEMENTS_APART for own in (sample_values(values), values))


def _ranges(places: NDArray[np.intp]) -> str:
    some = ", ".join(str(place) for place in places[:3])
    return f"index {some}" if len(places) == 1 else f"indices {some}{' and others' if len(places) > 3 else ''}"
