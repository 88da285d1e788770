"""The loss as code of the user's own, taken apart: which functional call of it makes another number of the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from align.errors import CannotRunError, InputsError, UserCodeError
from align.forward.unlike_code import find_unlike_call
from align.training.faults.trained_otherwise import NO_GRADIENT
from align.training.steps.judge_step import StepJudge
from align.training.thresholds import LOSS_SHARE, MOST_CODE_STEPS
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.traces import CaptureSink
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps

CALL_DIFFERS = "call-differs"
SPENT = "steps tried"
OF_GRADIENT = "gradient-"  # causes that say what came of it, and not why


def explain_loss_code(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name the call at fault, where both sides are live and the loss of the reference's outputs is another number.

    It is confirmed: with the result that the reference has, the loss is right.
    """
    reference, candidate = seen.live_reference, seen.live
    right, own = seen.traces[0].losses[0], seen.first.loss
    known = culprit.sureness == "confirmed" and not culprit.cause.startswith(OF_GRADIENT)
    known = known and culprit.cause != NO_GRADIENT
    if known or reference is None or candidate is None or not right or own is None:
        return culprit
    far = abs(own - right) / abs(right)
    if far <= LOSS_SHARE:
        return culprit
    batches = seen.sides[0].batches[:1]

    def meant(functions: CaptureSink) -> float | None:
        sink = LossOfStep(functions)
        reference.trainer.take_steps(reference.training, batches, sink)
        return sink.loss

    def made(functions: CaptureSink) -> float | None:
        sink = seen.replaced_step(StepJudge(seen.noise, seen.precision))
        sink.functions = functions
        try:
            candidate.trainer.take_steps(candidate.training, batches, sink)
        except (UserCodeError, InputsError):  # the code may not stand other values, as of labels
            return None
        return sink.loss

    taken = count(1)
    spent: dict[str, float | int | str] = {}

    def may_run() -> bool:
        if seen.thorough or next(taken) <= MOST_CODE_STEPS:
            return True
        spent[SPENT] = MOST_CODE_STEPS
        return False

    try:
        found = find_unlike_call(meant, made, far, may_run)
    except CannotRunError:  # of a framework that does not show functions
        return culprit
    if found is None:
        return replace(culprit, facts={**culprit.facts, **spent})
    line = found.fault.lines[0]
    named = replace(culprit, cause=CALL_DIFFERS, inside=found.fault, line=line, sureness="confirmed")
    return replace(named, cause=found.relation.id, facts={**found.relation.facts}) if found.relation else named


class LossOfStep(StepUnseen):
    """A StepSink that keeps the loss, of these `values` to begin with, and shows another sink the functional calls."""

    def __init__(self, functions: CaptureSink | None = None, values: Mapping[str, Array] | None = None) -> None:
        self.functions, self._values = functions, values or {}
        self.loss: float | None = None

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start from the given values."""
        return self._values

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Keep the loss."""
        self.loss = loss
