"""How much a layer may differ: a multiple of the reference's own rounding noise, never less than its dtype can show.

The noise of a layer is what its output moves by when the reference runs in float64 instead of its own precision, on
the same inputs. Another implementation adds in another order: its error has the same size but not the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtri

from align.core.parameters import EPSILON, dtype_name, is_float, rounded_as
from align.core.traces import Limit, smallest_factor
from align.measure.measure_arrays import measure
from align.measure.tensor_statistics import sample_values
from align.measure.thresholds import (
    APART_ABOVE,
    APART_BELOW,
    FUNCTION_FACTOR,
    LEAST_ELEMENTS_APART,
    LEAST_SENTINEL,
    MOST_SHARED_DRAWS,
    NOISE_CONFIDENCE,
    NOISE_FACTOR,
    NOISE_FACTOR_OF_HALF_ALONE,
    RELATIVE_BY_DTYPE,
    SMALLEST_NORMAL,
    TYPICAL_UNITS,
    TYPICAL_UNITS_OF_HALF,
    WORST_UNITS,
    WORST_UNITS_OF_HALF,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from align.core.parameters import Array
    from align.core.traces import LimitSource, Measurement

    LimitOf = Callable[[Measurement, str], Limit | None]


HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class RoundingNoise:
    """What the reference's tensors move by, by `part_key`: its ordinary run from float64, coarser ones from that.

    `functions` is what they move by with the candidate's functions of single elements in the place of its own, which is
    no rounding: some kernels are off by far more. `unreached` are keys of tensors that no rounding of the candidate's
    coarser layers reaches, where each layer is given right values. `expected` is what a chip is expected to move them
    by, None where nothing is predicted.
    """

    own: Mapping[str, Measurement]
    coarser: Mapping[str, Mapping[str, Measurement]] = field(default_factory=dict)
    functions: Mapping[str, Measurement] = field(default_factory=dict)
    unreached: frozenset[str] = frozenset()
    expected: Mapping[str, Measurement] | None = None


def part_key(key: str, part: str) -> str:
    """The key of the noise of a part that is judged apart: that of the tensor, and what the part is."""
    return f"{key} / {part}" if part else key


def limit_by_noise(
    noise: RoundingNoise | None,
    key: tuple[str, str],
    measurement: Measurement,
    dtypes: tuple[str, str],
    coarser: tuple[str, str] = ("", ""),
    *,
    alone: bool = False,
) -> Limit | None:
    """The limit of a tensor and part (`key`), by the noise in the coarsest dtype; None for a part without noise.

    `coarser` are the coarsest dtypes in which the sides computed what is in the tensor, "" for that of the tensor. A
    layer `alone` gathers no errors.
    """
    if noise is None:
        return limit_for(measurement, dtypes, None, coarser[1])
    if noise.expected is None:
        limit = _limit_by_rounding(noise, key, measurement, dtypes, coarser, alone=alone)
    else:
        limit = _limit_by_prediction(noise, noise.expected, key, measurement, dtypes, alone=alone)
    moved = noise.functions.get(part_key(*key))
    return limit if limit is None or moved is None else _with_functions(limit, moved)


def _limit_by_prediction(
    noise: RoundingNoise,
    expected: Mapping[str, Measurement],
    key: tuple[str, str],
    measurement: Measurement,
    dtypes: tuple[str, str],
    *,
    alone: bool,
) -> Limit | None:
    """The limit by what the chip is expected to do, never below that of the reference in its own dtype.

    What a port keeps between layers in a coarser dtype is not part of the prediction, but for the rounding of each
    output to its dtype.
    """
    by_rounding = _limit_by_rounding(noise, key, measurement, (dtypes[0], dtypes[0]), ("", ""), alone=alone)
    if by_rounding is None or by_rounding.source == "exact":
        return by_rounding
    predicted = expected.get(part_key(*key)) or replace(measurement, max_abs=0.0, rmse=0.0)
    limit = limit_for(measurement, dtypes, predicted, "float16", "float16", alone=alone)
    source: LimitSource = "prediction" if limit.rmse > by_rounding.rmse else by_rounding.source
    return Limit(max(limit.max_abs, by_rounding.max_abs), max(limit.rmse, by_rounding.rmse), source)


def _with_functions(limit: Limit, moved: Measurement) -> Limit:
    """The limit with what the candidate's functions move on top of it; exact tensors stay exact."""
    if limit.source == "exact" or moved.max_abs == 0.0:
        return limit
    source: LimitSource = "functions" if FUNCTION_FACTOR * moved.rmse > limit.rmse else limit.source
    added = FUNCTION_FACTOR * moved.max_abs, FUNCTION_FACTOR * moved.rmse
    return Limit(limit.max_abs + added[0], limit.rmse + added[1], source)


def _limit_by_rounding(
    noise: RoundingNoise,
    key: tuple[str, str],
    measurement: Measurement,
    dtypes: tuple[str, str],
    coarser: tuple[str, str],
    *,
    alone: bool,
) -> Limit | None:
    coarsest = coarsest_dtype(*dtypes, *coarser)
    measured = noise.coarser.get(coarsest, {}).get(part_key(*key))
    if measured is not None:
        return limit_for(measurement, dtypes, measured, coarsest, coarsest, alone=alone)
    measured = noise.own.get(part_key(*key))
    if measured is None and key[1] and (whole := noise.own.get(key[0])) and whole.max_abs == 0.0:
        measured = whole
    if measured is None:
        return None if key[1] else limit_for(measurement, dtypes, None, coarser[1])
    return limit_for(measurement, dtypes, measured, coarsest, coarsest_dtype(dtypes[0], coarser[0]), alone=alone)


def coarsest_dtype(*names: str) -> str:
    """The floating dtype of the largest unit among these, "" if none is floating."""
    floats = [dtype for name in names if (dtype := rounded_as(name))]
    return max(floats, key=EPSILON.__getitem__, default="")


def limit_for(
    measurement: Measurement,
    dtypes: tuple[str, str],
    noise: Measurement | None,
    coarser: str = "",
    measured_in: str = "",
    *,
    alone: bool = False,
) -> Limit:
    """Limit of one tensor, in its own units.

    `measurement` gives the scale (largest and root-mean-square value of the reference), `dtypes` are those of both
    sides. `coarser` is the dtype in which either side computed something before that is in all that follows, whatever
    the dtype. `noise` compares the reference's float64 run with one in the dtype `measured_in` (its ordinary one); None
    if it could not be run. Where it was measured in a finer dtype than the coarsest of all, it counts for as much more
    as the units of the two differ. A layer `alone` in half precision is closer to its noise.
    """
    coarsest = coarsest_dtype(*dtypes, coarser)
    if not coarsest:
        return Limit(0.0, 0.0, "exact")
    largest, typical = measurement.reference_max, measurement.reference_rms
    if noise is None:
        share = RELATIVE_BY_DTYPE.get(coarsest, EPSILON[coarsest])
        return Limit(share * largest, share * typical, "dtype")
    known = rounded_as(measured_in or dtypes[0]) or coarsest
    rounding = coarsest if EPSILON[known] < EPSILON[coarsest] else coarsest_dtype(*dtypes) or coarsest
    factor = (NOISE_FACTOR_OF_HALF_ALONE if alone and coarsest in HALF else NOISE_FACTOR) * luck_of(noise)
    factor *= max(1.0, EPSILON[coarsest] / EPSILON[known])
    units = (WORST_UNITS_OF_HALF, TYPICAL_UNITS_OF_HALF) if rounding in HALF else (WORST_UNITS, TYPICAL_UNITS)
    by_noise = factor * noise.max_abs, factor * noise.rmse
    by_rounding = units[0] * EPSILON[rounding] * largest, units[1] * EPSILON[rounding] * typical
    source: LimitSource = "noise" if by_noise[1] > by_rounding[1] else "rounding"
    least = SMALLEST_NORMAL.get(rounding, 0.0) if largest > 0.0 else 0.0
    return Limit(max(by_noise[0], by_rounding[0], least), max(by_noise[1], by_rounding[1], least), source)


def rounding_limit(measurement: Measurement, dtype: str) -> Limit:
    """What a tensor without noise of its own may differ by: some units in the last place."""
    return limit_for(measurement, (dtype, dtype), replace(measurement, max_abs=0.0, rmse=0.0))


class OutputNoise:
    """A reference's output in its own precision and in float64 (`wide`), which gives the limits of its parts.

    `wide` is None where the reference cannot run in float64.
    """

    def __init__(self, ordinary: Array, wide: Array | None) -> None:
        known = wide is not None and rounded_as(wide.dtype.name) == "float64" and wide.shape == ordinary.shape
        self._ordinary, self._wide = ordinary, wide if known else None

    def limit(self, a: Array, b: Array, place: Any) -> tuple[Measurement, Limit]:
        """Measure two arrays of this shape at a `place` (slices), with the limit of what is measured."""
        measurement = measure(a[place], b[place])
        noise = None if self._wide is None else measure(self._wide[place], self._ordinary[place])
        return measurement, limit_for(measurement, (a.dtype.name, b.dtype.name), noise)


def luck_of(noise: Measurement) -> float:
    """The factor by which the true noise may exceed the measured one: the upper end of its confidence interval.

    For n independent normal errors it is sqrt(n / chi2), with chi2 the quantile of 1 - NOISE_CONFIDENCE for n degrees
    of freedom: 80 for one element, 2 for ten, 1.1 for five hundred. A few large errors that dominate all others count
    as few: n is the number of elements of the largest error that would give the measured root mean square.
    """
    if noise.max_abs == 0.0:
        return 1.0
    independent = max(1.0, noise.count * (noise.rmse / noise.max_abs) ** 2)
    return sqrt(independent / float(chdtri(independent, NOISE_CONFIDENCE)))


# One tensor against its limit, as a whole and in the parts that are judged apart.
#
# A mask of -1e4, one huge channel or one token of massive activations would set the scale of all, and one limit would
# hide a fault of what is smaller. So what lies far above or below the rest is judged apart: constants that stand for
# "masked", and the slices of an axis.


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
        measured = measure(part.of(reference), part.of(candidate))
        bound = limit_of(measured, part.label)
        factor = 0.0 if bound is None else smallest_factor(measured, bound)
        if bound is not None and factor > max(1.0, judged.factor):
            place = np.unravel_index(part.elements[measured.worst[0]], reference.shape) if measured.worst else ()
            judged = JudgedTensor(replace(measured, worst=tuple(map(int, place))), bound, factor, part.label)
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
    measurements = {key: _of_draws(measure(reference, ordinary), ordinary)}
    if measurements[key].max_abs == 0.0:
        return measurements
    for part in slices_of(ordinary):
        values = part.of(ordinary)
        measurements[part_key(key, part.label)] = _of_draws(measure(part.of(reference), values), values)
    return measurements


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
    slices = [] if sentinels is None else list(_split(sizes, sentinels))
    if sentinels is not None:
        sizes[sentinels] = 0.0
    for axis in range(values.ndim):
        slices += _axis_slices(sizes, axis, sentinels)
    return tuple(slices)


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
    largest = sizes.max(axis=tuple(other_axis for other_axis in range(sizes.ndim) if other_axis != axis)).astype(
        np.float64
    )
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
        counts = chosen.sum(axis=tuple(other_axis for other_axis in range(sizes.ndim) if other_axis != axis))
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
