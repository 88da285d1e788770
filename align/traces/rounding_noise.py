"""The reference's own rounding noise, measured while it runs a second time in float64: nothing of that run is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from align.core.dtypes import dtype_name, rounded_as
from align.measure.judge_tensors import measure_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Capture, Trace


class NoiseSink:
    """An InputSink that measures each capture of a run in another dtype against the ordinary run's trace.

    `noise` maps the capture's key to the ordinary run's deviation from float64 (or that of a run in a coarser `dtype`
    from the ordinary one), in the layer's units; so it does those of parts that are judged apart. Layers that did not
    run in this dtype (the model casts inside) have none: a deviation of zero would be a limit of zero.
    """

    def __init__(self, ordinary: Trace, dtype: str = "float64") -> None:
        self._ordinary, self._dtype = ordinary, dtype
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self.noise: dict[str, Measurement] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Measure what a call is given: an activation inside a layer shows by that what the layer computes."""
        for name, value in inputs.items():
            same = self._inputs.get((module, call, name))
            if same is not None:
                self.noise |= noise_of(same, self._ordinary.value(same), value, self._dtype)

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same = self._captures.get(capture.key)
        if same is not None and same.shape == capture.shape:
            self.noise |= noise_of(same, self._ordinary.value(same), value, self._dtype)


def noise_of(same: Capture, ordinary: Array, value: Array, dtype: str) -> dict[str, Measurement]:
    """What a tensor moves by in a run in this dtype ("": its own); nothing if it did not run so."""
    own = rounded_as(same.dtype)
    if ordinary.shape != value.shape or not own or rounded_as(dtype_name(value.dtype)) != (dtype or own):
        return {}
    return measure_parts(same.key, _within(value, ordinary), ordinary)


def _within(value: Array, ordinary: Array) -> Array:
    """The values with what is beyond the range of the ordinary dtype at its end: `finfo(x.dtype).min` moves with it."""
    largest = float(ml_dtypes.finfo(ordinary.dtype).max)  # type: ignore[no-untyped-call]
    ends = [way.reduce(value, axis=None, initial=0.0) for way in (np.fmin, np.fmax)] if value.dtype.kind == "f" else []
    if ends and -largest <= ends[0] and ends[1] <= largest:
        return value  # the usual, without a copy
    beyond = np.abs(value) > largest
    beyond &= np.isfinite(value)
    return np.where(beyond, np.copysign(largest, value), value) if beyond.any() else value
