"""How much a layer may differ: a multiple of the reference's own rounding noise, never less than its dtype can show.

The noise of a layer is what its output moves by when the reference runs in float64 instead of its own precision, on
the same inputs. Another implementation adds in another order: its error has the same size but not the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING

from scipy.special import chdtri

from align.core.dtypes import EPSILON, rounded_as
from align.core.measurements import Limit
from align.measure.thresholds import (
    FUNCTION_FACTOR,
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.measurements import LimitSource, Measurement

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
    own = _limit_by_rounding(noise, key, measurement, (dtypes[0], dtypes[0]), ("", ""), alone=alone)
    if own is None or own.source == "exact":
        return own
    found = expected.get(part_key(*key)) or replace(measurement, max_abs=0.0, rmse=0.0)
    limit = limit_for(measurement, dtypes, found, "float16", "float16", alone=alone)
    source: LimitSource = "prediction" if limit.rmse > own.rmse else own.source
    return Limit(max(limit.max_abs, own.max_abs), max(limit.rmse, own.rmse), source)


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
    found = noise.coarser.get(coarsest, {}).get(part_key(*key))
    if found is not None:
        return limit_for(measurement, dtypes, found, coarsest, coarsest, alone=alone)
    found = noise.own.get(part_key(*key))
    if found is None and key[1] and (whole := noise.own.get(key[0])) and whole.max_abs == 0.0:
        found = whole
    if found is None:
        return None if key[1] else limit_for(measurement, dtypes, None, coarser[1])
    return limit_for(measurement, dtypes, found, coarsest, coarsest_dtype(dtypes[0], coarser[0]), alone=alone)


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


def luck_of(noise: Measurement) -> float:
    """By how much the true noise may exceed the measured one: the upper end of its confidence interval.

    For n independent normal errors it is sqrt(n / chi2), with chi2 the quantile of 1 - NOISE_CONFIDENCE for n degrees
    of freedom: 80 for one element, 2 for ten, 1.1 for five hundred. A few large errors that dominate all others count
    as few: n is the number of elements of the largest error that would give the measured root mean square.
    """
    if noise.max_abs == 0.0:
        return 1.0
    independent = max(1.0, noise.count * (noise.rmse / noise.max_abs) ** 2)
    return sqrt(independent / float(chdtri(independent, NOISE_CONFIDENCE)))
