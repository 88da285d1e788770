"""Models that do not return the same twice are refused, and the layer named where it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.measurements import smallest_factor
from align.errors import CannotRunError
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.models.restore_state import other_seed
from align.models.thresholds import SAME_SEED_RUNS

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.protocols import Inputs
    from align.core.traces import Capture, Trace
    from align.models.open_side import Side


def refuse_random(side: Side, inputs: Inputs, trace: Trace) -> None:
    """Run a model that has left `trace` once more, from another seed; raises CannotRunError if that matters.

    Then it is run up to three times more, from the seed of the first, to tell numbers that follow the seed from all
    else.
    """
    with other_seed():
        where = _first_unlike(side, inputs, trace)
    if not where:
        return
    if again := next(filter(None, (_first_unlike(side, inputs, trace) for _ in range(SAME_SEED_RUNS))), ""):
        raise CannotRunError.of("random_model.varies", label=side.label, where=again)
    raise CannotRunError.of("random_model.draws", label=side.label, where=where)


def _first_unlike(side: Side, inputs: Inputs, trace: Trace) -> str:
    """The first layer that returns something else than in its trace, in words; "" if none does."""
    sink = NondeterminismSink(trace)
    side.runner.run(side.model, inputs, sink)
    if sink.first is None:
        return ""
    return f"layer {sink.first.module!r} ({sink.first.class_name})" if sink.first.module else "its output"


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
