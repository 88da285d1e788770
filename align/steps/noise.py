"""The reference's own rounding noise, measured while it runs a second time in float64: nothing of that run is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.dtypes import is_float
from align.steps.measure import measure

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Capture, Trace


class NoiseSink:
    """A CaptureSink that measures each capture of a float64 run against the ordinary run's trace.

    `noise` maps the capture's key to the ordinary run's deviation from float64, in the layer's units.
    """

    def __init__(self, ordinary: Trace) -> None:
        self._ordinary = ordinary
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self.noise: dict[str, Measurement] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same = self._captures.get(capture.key)
        if same is not None and same.shape == capture.shape and is_float(same.dtype):
            self.noise[capture.key] = measure(value, self._ordinary.value(same))
