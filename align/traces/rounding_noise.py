"""The reference's own rounding noise, measured while it runs a second time in float64: nothing of that run is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.dtypes import rounded_as
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Capture, Trace


class NoiseSink:
    """A CaptureSink that measures each capture of a float64 run against the ordinary run's trace.

    `noise` maps the capture's key to the ordinary run's deviation from float64, in the layer's units. Layers that did
    not run in float64 (the model casts inside) have none: a deviation of zero would be a limit of zero.
    """

    def __init__(self, ordinary: Trace) -> None:
        self._ordinary = ordinary
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self.noise: dict[str, Measurement] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same = self._captures.get(capture.key)
        if same is None or same.shape != capture.shape or not rounded_as(same.dtype):
            return
        if rounded_as(capture.dtype) == "float64":
            self.noise[capture.key] = measure(value, self._ordinary.value(same))
