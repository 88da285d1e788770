"""Which line stops a gradient that does not come back: one that stops what the reference does not stop."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.errors import AlignError
from align.forward.unlike_code import results_of_calls
from align.measure.tensor_statistics import relative_rms_distance
from align.training.faults.explain_forward import given_to, part_of
from align.training.faults.explain_loss_code import LossOfStep
from align.training.thresholds import SAME_STOPPED_DISTANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.core.traces import CaptureSink
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace

STOPS = ("StopGradient", "detach", "detach_")  # the names of functional calls that stop a gradient
PART_STOPPED, CUT = "gradient-part-stopped", "no-gradient"


def explain_stops(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give gradients that are missing, or that nothing relates to the right ones, the line that stops them.

    It is suspected where a single line of the port stops tensors that the reference's code does not stop.
    """
    if seen.live is None or seen.live_reference is None or not any(_is_open(one) for one in culprits):
        return [*culprits]
    batches = seen.sides[0].batches[:1]
    try:
        meant = [value for _, value in _stopped(seen.live_reference, seen.traces[0], batches)]
        made = [*_stopped(seen.live, seen.traces[1], batches)]
    except AlignError:  # of a framework that does not show functions, or a model that a step alone can run
        return [*culprits]
    lines = {line for line, value in made if not any(_is_same(value, other) for other in meant)}
    line = lines.pop() if len(lines) == 1 else ""
    return [_with_line(one, line) if line and _is_open(one) else one for one in culprits]


def _is_open(one: StepCulprit) -> bool:
    of_code = one.kind in ("backward", "loss") and one.part in ("code", "loss", "parameters") and one.inside is None
    return of_code and one.cause in ("", CUT)


def _with_line(one: StepCulprit, line: str) -> StepCulprit:
    if one.cause == CUT:
        return replace(one, line=line)
    return replace(one, cause=PART_STOPPED, facts={}, line=line, sureness="suspected")


def _stopped(opened: TrainingSide, trace: StepTrace, batches: Sequence[Batch]) -> Iterator[tuple[str, Array]]:
    """The lines of a side that stop gradients, in the model and outside of it, each with what it stops."""

    def step(functions: CaptureSink) -> None:
        opened.trainer.take_steps(opened.training, batches, LossOfStep(functions))

    yield from results_of_calls(step, STOPS)
    called = {one.module for one in trace.forward.inputs}
    for root in called:
        if not any(root.startswith(f"{other}.") or (root and not other) for other in called):
            side = part_of(opened, root)
            yield from results_of_calls(partial(side.runner.run, side.model, given_to(root, trace)), STOPS)


def _is_same(one: Array, other: Array) -> bool:
    """Tell whether two tensors hold the same values, in whatever order."""
    if one.size != other.size:
        return False
    mine, theirs = (np.sort(value.reshape(-1).astype(np.float64)) for value in (one, other))
    return relative_rms_distance(mine, theirs) <= SAME_STOPPED_DISTANCE
