"""Models that draw random numbers in evaluation mode are refused, and the layer named where it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors import CannotRunError
from align.models.live.detect_nondeterminism import NondeterminismSink
from align.models.restore_state import other_seed

if TYPE_CHECKING:
    from align.core.protocols import Inputs
    from align.core.traces import Trace
    from align.models.open_side import Side


def refuse_random(side: Side, inputs: Inputs, trace: Trace) -> None:
    """Run a model that has left `trace` once more, from another seed; raises CannotRunError if that matters."""
    sink = NondeterminismSink(trace)
    with other_seed():
        side.runner.run(side.model, inputs, sink)
    if sink.first is not None:
        where = f"layer {sink.first.module!r} ({sink.first.class_name})" if sink.first.module else "its output"
        raise CannotRunError(
            f"{side.label} draws random numbers in evaluation mode: from another seed {where} is the first to differ",
            "switch dropout off in evaluation mode (functional ones take `training=`), or draw from a seed of its own",
        )
