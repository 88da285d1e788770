"""How much compared tensors of the reference move when it is given other inputs, and which of them are at an end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.core.measurements import smallest_factor
from align.forward.power_result import OutputPower
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.measure.slices import slices_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.core.traces import Capture, Trace
    from align.forward.power_result import OutputState

# Below so many elements it is no wonder that all lie near the smallest or the largest.
LEAST_ELEMENTS = 100
NEARLY_ALL = 0.99


class MovementSink:
    """A CaptureSink that measures, in multiples of their limits, how far tensors lie from those of an ordinary run.

    Tensors without a limit were not compared: they do not count. Another shape is a movement without bound; NaN and Inf
    that the ordinary run lacks are none, for a strange input may make them anywhere.
    """

    def __init__(self, ordinary: Trace, limits: Mapping[str, Limit]) -> None:
        self._ordinary, self._limits = ordinary, limits
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self.factors: dict[str, float] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same, limit = self._captures.get(capture.key), self._limits.get(capture.key)
        if same is None or limit is None:
            return
        if same.shape != capture.shape:
            self.factors[capture.key] = float("inf")
            return
        self.factors[capture.key] = max(self._factors(same, value, limit))

    def _factors(self, same: Capture, value: Array, limit: Limit) -> Iterator[float]:
        """How far the whole has moved, and its parts that are judged apart, by what rounding may do to them."""
        ordinary = self._ordinary.value(same)
        yield smallest_factor(replace(measure(ordinary, value), non_finite_mismatch=0), limit)
        flat = ordinary.reshape(-1), value.reshape(-1)
        for part in slices_of(ordinary):
            own = replace(measure(*(one[part.elements] for one in flat)), non_finite_mismatch=0)
            yield smallest_factor(own, rounding_limit(own, same.dtype))


def output_powers(
    trace: Trace, limits: Mapping[str, Limit], runs: Sequence[Mapping[str, float]]
) -> Iterator[OutputPower]:
    """Yield one row for each compared tensor: the farthest that it moved in any of the runs, and its state."""
    for c in trace.captures:
        if c.key in limits:
            moved = max((run[c.key] for run in runs if c.key in run), default=None)
            yield OutputPower(c.module, c.call, c.output, c.class_name, moved, _state(trace.value(c), limits[c.key]))


def _state(value: Array, limit: Limit) -> OutputState:
    """Whether differences inside a tensor are too small for its limit, all of them or all but those of two ends."""
    finite = value[np.isfinite(value)] if is_float(value.dtype.name) else np.empty(0)
    if finite.size < 2:  # one element differs from nothing
        return ""
    low, high = finite.min(), finite.max()
    if high - low <= limit.max_abs:
        return "constant"
    inside = np.count_nonzero((finite > low + limit.max_abs) & (finite < high - limit.max_abs))
    return "saturated" if finite.size >= LEAST_ELEMENTS and inside <= (1 - NEARLY_ALL) * finite.size else ""
