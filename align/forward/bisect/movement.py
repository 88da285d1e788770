"""By how much a model moves when something about it is changed, and how that stands to a limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

from align.core.measurements import smallest_factor
from align.forward.thresholds import LOSS_LIMIT
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Trace


@dataclass(frozen=True, slots=True)
class Movement:
    """Relative to what was there before, and as a multiple of the limit."""

    moved: float
    factor: float


def output_movement(
    before: Trace,
    noise: Mapping[str, Measurement] | None,
    precision: str,
    limit: float | None,
    outputs: Mapping[str, Array],
) -> Movement:
    """Hold a model's outputs against those of an earlier run; the worst of them counts.

    `limit` bounds the relative error (L2); without it the limit is that of a port in this precision ("" for the same).
    """
    worst = Movement(0.0, 0.0)
    for one in before.captures:
        if not one.module:
            measurement = measure(before.value(one), outputs[one.output])
            moved = _relative(measurement)
            allowed = limit_for(
                measurement, (one.dtype, outputs[one.output].dtype.name), (noise or {}).get(one.key), precision
            )
            factor = smallest_factor(measurement, allowed) if limit is None else _ratio(moved, limit)
            worst = max(worst, Movement(moved, factor), key=lambda movement: movement.factor)
    return worst


def loss_movement(before: float, after: float, limit: float | None) -> Movement:
    """Hold a loss against an earlier one; `limit` bounds the relative difference, LOSS_LIMIT without it."""
    moved = _ratio(abs(after - before), abs(before)) if isfinite(after) else inf
    return Movement(moved, _ratio(moved, LOSS_LIMIT if limit is None else limit))


def _relative(measurement: Measurement) -> float:
    if measurement.non_finite_mismatch:
        return inf
    return _ratio(measurement.rmse, measurement.reference_rms)


def _ratio(value: float, bound: float) -> float:
    return value / bound if bound > 0.0 else 0.0 if value == 0.0 else inf
