"""Whether a model gives the same in every run: one that draws random numbers cannot be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.measurements import smallest_factor
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.traces import Capture, Trace


class NondeterminismSink:
    """A CaptureSink that looks for the `first` tensor of a run that is not what it was in an earlier run (`trace`).

    Kernels need not add in the same order twice: what is within some units in the last place is the same.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._earlier = {capture.key: capture for capture in trace.captures}
        self.first: Capture | None = None

    def add(self, capture: Capture, value: Array) -> None:
        """Compare one capture."""
        same = self._earlier.get(capture.key)
        if self.first is None and same is not None and not self._is_steady(same, value):
            self.first = capture

    def _is_steady(self, same: Capture, value: Array) -> bool:
        if same.shape != value.shape:
            return False
        measurement = measure(self._trace.value(same), value)
        return smallest_factor(measurement, rounding_limit(measurement, same.dtype)) <= 1.0
