"""Training steps of a model and its port compared: loss, each layer's way back alone, gradients, updates, buffers."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, repeat
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.name_map import SIDES
from align.core.progress import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import UsageError
from align.models.describe_sides import named_environments
from align.models.function_source import defined_at
from align.models.live_calls import looked_for_once
from align.models.source_lines import made_in
from align.models.user_code import find_function
from align.traces.pair_traces import open_names
from align.training.faults.explain_code import SPENT
from align.training.faults.find_step_culprits import find_step_culprits
from align.training.faults.find_step_faults import OF_LOSS
from align.training.faults.loop_faults import explain_at_rate_zero, mode_findings
from align.training.open_training import batch_findings, open_training, open_trainings
from align.training.replay_dropout import DropoutReplay
from align.training.step_result import StepComparison
from align.training.steps.both_steps import owners_of
from align.training.steps.judge_step import NOT_CLEARED, UNMEASURED
from align.training.steps.record_step import COMPUTED
from align.training.steps.recorded_steps import ReferenceSteps, batches_of_steps, record_reference, refuse_random_steps
from align.training.steps.see_both_sides import (
    compare_free_runs,
    compared_gradients,
    compared_layers,
    compared_losses,
    free_run_findings,
    judged_gradients,
    run_candidate_freely,
    see_recorded_steps,
    take_steps_beside,
)
from align.training.steps.step_folder import read_steps
from align.training.steps.take_apart import compare_apart, compare_moments, moment_findings, take_apart
from align.training.thresholds import STEPS_OF_ONE_BATCH
from align.training.watch_step import without_dropout
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.name_map import NameMap
    from align.core.progress import Progress
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.step_result import ComparedGradient, ComparedLoss, StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.recorded_steps import RecordedSteps

    Given = str | Path | Training
    Opened = TrainingSide | ReferenceSteps

COMPARE_STAGES = 6  # no limit: what progress is reported of
UNLIKE = "calls-unlike"


def compare_training_step(  # noqa: PLR0913 - one keyword an option
    reference: str | Path | Training,
    candidate: str | Path | Training,
    *,
    batch: InputsSource | None = None,
    name_map: NameMap | Path | str | None = None,
    steps: int | None = None,
    thorough: bool = False,
    progress: Progress = silent,
) -> StepComparison:
    """Take training steps on both sides, each from the reference's state, and name what is wrong by itself.

    A side is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step])
    or a dict of these; or a folder that `capture_training_step` wrote, which brings its batches and the number of
    steps. `batch` is one batch, or several in a list that follow one another; of one, each step takes it again, 3
    times if `steps` does not say. What bears no name of the model's parameters goes to the loss. Before each step a
    live candidate is given the reference's parameters and buffers, and at each update the reference's gradients.
    Layers for dropout get the reference's masks on both sides, or are switched off. Code that is wrong is looked
    into with 24 steps for a loss and 150 runs for a model, or with as many as that takes if it is `thorough`.
    Neither side is changed. Raises CannotRunError for a model without trainable parameters and a loss that is no
    scalar, SharedModelError for sides that are one object or share tensors, NothingInCommonError if no layer pairs,
    UnlikeTracesError for folders of other batches, or other values to begin with.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> side = Training(ArrayModel(()))
    >>> compare_training_step(side, side, batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    sides = _opened(reference, candidate)
    batches = _batches(batch, steps, [one.steps for one in sides if isinstance(one, ReferenceSteps)])
    stages = chain(range(1, COMPARE_STAGES), repeat(COMPARE_STAGES))
    with tempfile.TemporaryDirectory(prefix="align-") as folder, looked_for_once():

        def begun() -> None:
            progress("step", next(stages), COMPARE_STAGES)

        task = _Task(sides, batches, name_map, Path(folder), begun, thorough=thorough)
        live = tuple(one for one in sides if not isinstance(one, ReferenceSteps))
        found = tuple(chain.from_iterable(batch_findings(one, batches[0]) for one in live))
        both = (live[0], live[1]) if len(live) == len(SIDES) else None
        result = _with_masks(task, both) if both else _without_dropout(task, live)
        if both and (later := _first_faulty(result, batches)):
            again = replace(task, batches=[*batches[later:], *batches[:later]], folder=task.folder / "later")
            shown = _with_masks(again, both)
            culprits = tuple(replace(one, step=(one.step - 1 + later) % len(batches) + 1) for one in shown.culprits)
            result = replace(result, culprits=culprits, verdict=shown.verdict) if culprits else result
        culprits = _with_lines(result.culprits, candidate, sides[1])
        return replace(result, findings=(*found, *result.findings), culprits=culprits)


def _first_faulty(result: StepComparison, batches: Sequence[Batch]) -> int:
    """The number of the first step, from 0, whose batch shows what the first one does not; 0 for none.

    What a step leaves behind for the next one is no matter of the batch.
    """
    steps = {one.step - 1 for one in result.culprits if one.cause != NOT_CLEARED}
    first = min(steps, default=0)
    known = len(steps) == len({one.step for one in result.culprits}) and batches[first] is not batches[0]
    return first if first and known else 0


def _with_lines(culprits: Sequence[StepCulprit], candidate: Given, side: Opened) -> tuple[StepCulprit, ...]:
    """The culprits with the line that makes the candidate's optimizer or loss beside what is wrong with it."""
    if not isinstance(candidate, str) or isinstance(side, ReferenceSteps):
        return tuple(culprits)
    made = {"optimizer": side.training.optimizers, "loss": (side.training.loss,)}
    lines = {part: _line_of(candidate, own) for part, own in made.items()}
    return tuple(replace(one, line=one.line or lines.get(one.part, "")) for one in culprits)


def _line_of(candidate: str, made: Sequence[object]) -> str:
    """The one line of a factory that makes these, or that begins a function of the user's own; "" for several."""
    factory = find_function(candidate)
    lines = {defined_at(one) or made_in(factory, type(one).__name__) for one in made}
    return lines.pop() if len(lines) == 1 else ""


@dataclass(frozen=True)
class _Task:
    """What is compared, and where steps are kept meanwhile."""

    sides: tuple[Opened, Opened]
    batches: Sequence[Batch]
    name_map: NameMap | Path | str | None
    folder: Path
    begun: Callable[[], None]
    thorough: bool = False


def _with_masks(task: _Task, live: tuple[TrainingSide, TrainingSide]) -> StepComparison:
    """Compare live sides with the reference's dropout in both."""
    with DropoutReplay(live, task.batches[0]) as dropout:
        result = dropout.compare_steps(lambda time: _compared(replace(task, folder=task.folder / time)))
        culprits = (*dropout.culprits, *result.culprits)
        apart = any(one.code == UNLIKE for one in result.findings)
        verdict = _verdict(culprits, result.gradients, apart=apart, loss=result.losses[0].reference)
        return replace(result, culprits=culprits, findings=(*result.findings, *dropout.findings), verdict=verdict)


def _without_dropout(task: _Task, live: Sequence[TrainingSide]) -> StepComparison:
    """Compare captured steps, which are taken without dropout, with others."""
    with ExitStack() as stack:
        found = [stack.enter_context(without_dropout(one)) for one in live]
        result = _compared(task)
        return replace(result, findings=(*result.findings, *(one for own in found for one in own)))


def _opened(reference: Given, candidate: Given) -> tuple[Opened, Opened]:
    """Read folders of captured steps, and open the others; two live sides together, as they must not share tensors."""
    given = reference, candidate
    folders = [Path(one) if isinstance(one, (str, Path)) and Path(one).is_dir() else None for one in given]
    named = [str(one) if isinstance(one, Path) else one for one in given]
    if folders == [None, None]:
        return open_trainings(named[0], named[1])
    first, second = (read_steps(one) if one else open_training(name) for one, name in zip(folders, named, strict=True))
    return first, second


def _batches(batch: InputsSource | None, steps: int | None, recorded: Sequence[RecordedSteps]) -> Sequence[Batch]:
    """The batches of all steps: those that are given, or those of captured steps."""
    if not recorded:
        if batch is None:
            raise UsageError.of("training_error.no_batch")
        return batches_of_steps(batch, STEPS_OF_ONE_BATCH if steps is None else steps)
    known = recorded[0].batches
    if batch is not None or steps not in (None, len(known)):
        raise UsageError.of("training_error.has_its_batch", side=recorded[0].label, count=len(known))
    return known


def _compared(task: _Task) -> StepComparison:
    return _judged(_seen(task), task.folder)


def _seen(task: _Task) -> SeenSteps:
    """Record what is live, and put both sides beside each other."""
    first, second = task.sides
    if not isinstance(first, ReferenceSteps):
        layers = isinstance(second, ReferenceSteps)
        first = record_reference(first, task.batches, task.folder / SIDES[0], begun=task.begun, layers=layers)
    task.begun()
    if isinstance(second, ReferenceSteps):
        seen = see_recorded_steps(first, second.steps, task.name_map)
        theirs = [one for one in second.findings if one.code != UNMEASURED]  # limits are the reference's
        return replace(seen, findings=(*seen.findings, *theirs))
    seen = take_steps_beside(first, second, task.name_map, task.folder / SIDES[1], task.begun)
    reference = None if isinstance(task.sides[0], ReferenceSteps) else task.sides[0]
    return replace(seen, live_reference=reference, thorough=task.thorough)


def _judged(seen: SeenSteps, folder: Path) -> StepComparison:
    live, alike = seen.live, seen.runs_alike
    together = judged_gradients(seen, seen.computed(1, 0), COMPUTED, alone=False)
    alone = judged_gradients(seen, seen.first.computed_gradients, COMPUTED, alone=True) if live and alike else together
    culprits, scale, updates, rates, same = find_step_culprits(seen, alone, together)
    alone = together if same else alone
    run = run_candidate_freely(seen)
    if culprits and live is not None and run is not None:
        again = folder / "candidate-again"
        refuse_random_steps(live, seen.sides[0].batches, seen.traces[1], run, again, seen.start)
    apart = take_apart(seen) if culprits else None
    if apart is not None and seen.sees_updates:
        culprits = explain_at_rate_zero(culprits, seen, apart)
    losses = tuple(compared_losses(seen))
    gradients = tuple(compared_gradients(alone, together, owners_of(seen.parameters[1])))
    unsure = {one.candidate for one in gradients if scale is not None or one.outcome == "could not tell"}
    moments = tuple(compare_moments(seen, unsure))
    free = compare_free_runs(seen, run)
    return StepComparison(
        seen.sides[0].label,
        seen.sides[1].label,
        len(losses),
        losses,
        tuple(compared_layers(seen)) if alike else (),
        gradients,
        tuple(culprits),
        (
            *seen.findings,
            *open_names(seen.names),
            *_unjudged_findings(seen),
            *mode_findings(seen),
            *_spent_findings(culprits),
            *_call_findings(seen),
            *(_loss_findings(losses, culprits, scale or (seen.scale if seen.scale != 1.0 else None)) if alike else ()),
            *rates,
            *(moment_findings(moments) if all(one.kind != "update" for one in culprits) else ()),
            *(free_run_findings(free) if not culprits else ()),
        ),
        named_environments(*((side.framework, side.environment) for side in seen.sides)),
        _verdict(culprits, gradients, apart=live is None or not alike, loss=losses[0].reference),
        updates,
        free,
        moments,
        () if apart is None else tuple(compare_apart(apart, {one.candidate for one in updates})),
    )


def _unjudged_findings(seen: SeenSteps) -> Iterator[Finding]:
    """Say what of a side could not be judged: several updates, and checkpointing."""
    for side in seen.sides:
        if side.trace.repeated:
            yield Finding("updates-repeated", "warning", side.label, sentence("step_finding.updates_repeated"))
        if side.recomputes and not (seen.live and seen.live_reference):
            message = sentence("step_finding.recompute_not_compared")
            yield Finding("recompute-not-compared", "note", side.label, message)


def _spent_findings(culprits: Sequence[StepCulprit]) -> Iterator[Finding]:
    """Say that looking into the code of a loss ended with the steps that it gets."""
    spent = [one for one in culprits if SPENT in one.facts and not one.cause]
    if spent:
        message = sentence("step_finding.steps_spent", steps=spent[0].facts[SPENT])
        yield Finding("search-ended", "note", spent[0].candidate or spent[0].part, message)


def _call_findings(seen: SeenSteps) -> Iterator[Finding]:
    """Warn of layers that are called unlike often."""
    counts = seen.runs_a_step
    if not seen.runs_alike:
        message = sentence("step_finding.calls_unlike", candidate=counts[1], reference=counts[0])
        yield Finding(UNLIKE, "warning", seen.sides[1].label, message)


def _loss_findings(
    losses: Sequence[ComparedLoss], culprits: Sequence[StepCulprit], scale: float | None
) -> Iterator[Finding]:
    first = losses[0]
    if scale is not None:
        message = sentence("step_finding.loss_scale", factor=scale)
        yield Finding("loss-scale", "note", "loss", message, {"factor": scale})
    own = first.candidate if first.alone is None else first.alone
    known = any(one.kind in ("loss", "forward") or one.cause in OF_LOSS for one in culprits) or scale is not None
    if first.reference is None or own is None or first.limit is None or known:
        return
    in_whole = first.candidate is not None and abs(first.candidate - first.reference) <= first.limit
    if not in_whole and not abs(own - first.reference) <= first.limit:
        message = sentence("step_finding.loss_value_differs", candidate=own, reference=first.reference)
        yield Finding("loss-value-differs", "warning", "loss", message)


def _verdict(
    culprits: Sequence[StepCulprit], gradients: Sequence[ComparedGradient], *, apart: bool, loss: float | None
) -> Verdict:
    compared = sum(one.outcome != "could not tell" for one in gradients)
    coverage = Coverage(sentence("step_verdict.unit"), compared, len(gradients) - compared)
    if culprits:
        first = culprits[0]
        where = first.candidate or first.part
        kind = first.kind if first.kind != where else ""
        reason = sentence("step_verdict.faults", count=len(culprits), place=where, kind=kind)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if loss is not None and not isfinite(loss):
        return Verdict(Outcome.NOT_COMPARED, sentence("step_verdict.loss_not_finite", loss=loss), coverage)
    if not compared:
        return Verdict(Outcome.NOT_COMPARED, sentence("step_verdict.nothing_compared"), coverage)
    agree = sentence("step_verdict.agree_in_whole" if apart else "step_verdict.agree_alone", count=compared)
    return Verdict(Outcome.ALIGNED, agree, coverage)
