"""The figures of a tensor and of one comparison, and the limit that they are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LimitSource = Literal["noise", "rounding", "dtype", "functions", "prediction", "exact", "user"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of candidate against reference over `count` elements, accumulated in float64.

    Differences count finite pairs only; NaN and Inf are counted apart. `non_finite_mismatch` counts elements where
    exactly one side is NaN or Inf, or both are but not alike. `max_rel` is the largest |difference| / |reference|
    over non-zero references, None if there is none. `relative_l2` is ||difference|| / ||reference||, None for a zero
    reference. `cosine` is None where a side is all zero. `worst` is the index of `max_abs`, () where that is 0.
    `mismatched` counts elements that differ at all, the non-finite ones included. `decades[k]` counts |difference|
    in [10^(k-16), 10^(k-15)), the first bin takes all smaller non-zero ones, the last all larger ones.
    """

    count: int
    max_abs: float
    max_rel: float | None
    mean_abs: float
    rmse: float
    relative_l2: float | None
    cosine: float | None
    reference_max: float
    reference_rms: float
    nan_reference: int
    nan_candidate: int
    inf_reference: int
    inf_candidate: int
    non_finite_mismatch: int
    mismatched: int
    worst: tuple[int, ...]
    decades: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Figures of one tensor; `min`, `max`, `mean` and `rms` are over its finite elements, None if it has none.

    `magnitude` is the sum of their absolute values, None too where it was not asked for.
    """

    min: float | None
    max: float | None
    mean: float | None
    rms: float | None
    nan: int = 0
    inf: int = 0
    magnitude: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """What a layer may differ by, in its own units: a bound on the largest and one on the root-mean-square difference.

    `source` says where the bounds come from: the reference's own rounding noise (float32 against float64), the
    rounding of the dtype at the layer's scale, a table by dtype, what the candidate's own functions of single elements
    (its tanh) make of the reference, what a chip is expected to make of it, exactness (integers, bools), or the user.
    """

    max_abs: float
    rmse: float
    source: LimitSource


def smallest_factor(measurement: Measurement, limit: Limit) -> float:
    """By how much the limit would have to be multiplied for the measurement to pass; <= 1 means that it passes."""
    if measurement.non_finite_mismatch:
        return float("inf")
    return max(_ratio(measurement.max_abs, limit.max_abs), _ratio(measurement.rmse, limit.rmse))


def _ratio(value: float, bound: float) -> float:
    if value == 0.0:
        return 0.0
    return value / bound if bound > 0.0 else float("inf")
