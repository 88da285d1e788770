"""Training steps of a model and its port compared: loss, each layer's way back alone, gradients, updates, buffers."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.message_words import counted
from align.core.name_map import SIDES
from align.core.progress import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, UsageError
from align.models.batches import batches_of
from align.models.inputs import read_inputs
from align.models.open_side import environments
from align.traces.pair_traces import choose_map, map_in_order, open_names, pair_traces
from align.training.freeze import freeze
from align.training.open_training import open_trainings
from align.training.step_result import StepComparison
from align.training.steps.both_steps import SeenSteps, StepTask
from align.training.steps.compare_values import carried_over
from align.training.steps.find_step_culprits import find_step_culprits
from align.training.steps.find_step_faults import owners_of
from align.training.steps.judge_step import StepJudge
from align.training.steps.measure_step_noise import measure_step_noise
from align.training.steps.record_step import AFTER, COMPUTED, GIVEN, StepTrace, StepWriter
from align.training.steps.refuse_random_steps import refuse_random_steps
from align.training.steps.replace_step import PairedLayers, ReplacedStep
from align.training.steps.step_precision import StepPrecision
from align.training.steps.step_tables import (
    compared_gradients,
    compared_layers,
    compared_losses,
    gradients_with_owners,
    judged_gradients,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.step_result import ComparedGradient, ComparedLoss, StepCulprit

STAGES = 5
STEPS = 3


def compare_training_step(
    reference: str | Training,
    candidate: str | Training,
    *,
    batch: InputsSource,
    name_map: NameMap | Path | str | None = None,
    steps: int = STEPS,
    progress: Progress = silent,
) -> StepComparison:
    """Take training steps on both sides, each from the reference's state, and name what is wrong by itself.

    A side is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step]) or a
    dict of these. `batch` is one batch, or several in a list that follow one another; of one, each step takes it
    again. What bears no name of the model's own inputs goes to the loss. Before each step the candidate is given the
    reference's parameters and buffers, and at each update the reference's gradients. Dropout is switched off. Neither
    side is changed. Raises CannotRunError for a model without trainable parameters and a loss that is no scalar,
    SharedModelError for sides that are one object or share tensors, NothingInCommonError if no layer pairs.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> side = Training(ArrayModel(()))
    >>> compare_training_step(side, side, batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    if steps < 1:
        raise UsageError(f"{steps} is no number of steps", "give 1 or more")
    arrays = read_inputs(batch)
    given = batches_of(arrays)
    batches = [given[number % len(given)] for number in range(max(steps, len(given)))]
    opened = open_trainings(reference, candidate)
    stages = count(1)
    with tempfile.TemporaryDirectory(prefix="align-") as folder, ExitStack() as stack:
        held = [stack.enter_context(freeze(side.training.model, batchnorm=False)).dropout for side in opened]
        task = StepTask(opened, batches, Path(folder), lambda: progress("step", next(stages), STAGES))
        result = _compare(task, name_map)
        return replace(result, findings=(*result.findings, *_dropout_findings(held)))


def _dropout_findings(held: Sequence[tuple[str, ...]]) -> Iterator[Finding]:
    if any(held):
        counts = " and ".join(
            f"{counted(len(one), 'layer')} of the {role}" for one, role in zip(held, SIDES, strict=True)
        )
        yield Finding("dropout-off", "note", "dropout", f"dropout was switched off in {counts}")


def _compare(task: StepTask, given: NameMap | Path | str | None) -> StepComparison:
    parameters = _parameters(task.sides[0]), _parameters(task.sides[1])
    names = choose_map(given, parameters)
    task.begun()
    first = _record(task.sides[0], task, task.folder / SIDES[0])
    refuse_random_steps(task.sides[0], task.batches, first, task.folder / "again")
    task.begun()
    noise, findings = measure_step_noise(task.sides[0], task.batches, first, task.folder / "wide")
    task.begun()
    start = _start(task, names)
    second = _record_from(task, names, first, start)
    if given is None and not names.complete:
        names = map_in_order((first.forward, second.forward), parameters, names)
        start = _start(task, names)
        second = _record_from(task, names, first, start)
    calls = pair_traces((first.forward, second.forward), parameters, names)
    task.begun()
    gradients = gradients_with_owners(names, parameters, (first, second))
    precision = StepPrecision((first, second), calls.pairs, gradients)
    judge = StepJudge(noise, precision)
    replaced = ReplacedStep(first, PairedLayers(first, calls.pairs), judge, start)
    task.sides[1].trainer.take_steps(task.sides[1].training, task.batches[:1], replaced)
    task.begun()
    findings = (*findings, *precision.findings([side.label for side in task.sides]))
    seen = SeenSteps(names, parameters, (first, second), noise, calls, judge, replaced, start, findings, precision)
    return _judged(task, seen)


def _parameters(side: TrainingSide) -> ParameterSet:
    found = side.side.reader.read_parameters(side.side.model, side.label)
    if not any(one.trainable for one in found.parameters):
        raise CannotRunError(
            f"{side.label} has no trainable parameter, of {counted(len(found.parameters), 'parameter')}",
            "set requires_grad where the function builds it",
        )
    return found


def _record(side: TrainingSide, task: StepTask, folder: Path) -> StepTrace:
    with StepWriter(folder, side.side.reader.environment()) as writer:
        side.trainer.take_steps(side.training, task.batches, writer)
    return StepTrace(folder, writer.losses)


def _record_from(task: StepTask, names: NameMap, reference: StepTrace, start: Mapping[str, Array]) -> StepTrace:
    """The candidate's steps, each from the reference's state, and with its gradients at each update."""
    side = task.sides[1]
    own = side.side.reader.read_values(side.side.model)

    def begun(step: int) -> Mapping[str, Array]:
        return carried_over(names, reference.values(step - 1, AFTER), own) if step else start

    def updated(step: int, gradients: Mapping[str, Array]) -> Mapping[str, Array]:
        return carried_over(names, reference.values(step, GIVEN), gradients)

    folder = task.folder / SIDES[1]
    with StepWriter(folder, side.side.reader.environment(), begun=begun, updated=updated) as writer:
        side.trainer.take_steps(side.training, task.batches, writer)
    return StepTrace(folder, writer.losses)


def _start(task: StepTask, names: NameMap) -> dict[str, Array]:
    """The reference's values in the candidate's parameters and buffers."""
    first, second = (side.side.reader.read_values(side.side.model) for side in task.sides)
    return carried_over(names, first, second)


def _judged(task: StepTask, seen: SeenSteps) -> StepComparison:
    alone = judged_gradients(seen, seen.replaced.computed_gradients, COMPUTED, alone=True)
    together = judged_gradients(seen, seen.traces[1].values(0, COMPUTED), COMPUTED, alone=False)
    culprits, scale = find_step_culprits(task, seen, alone, together)
    if culprits:
        refuse_random_steps(task.sides[1], task.batches, seen.traces[1], task.folder / "candidate-again", seen.start)
    losses = tuple(compared_losses(seen))
    gradients = tuple(compared_gradients(alone, together, owners_of(seen.parameters[1])))
    return StepComparison(
        task.sides[0].label,
        task.sides[1].label,
        len(task.batches),
        losses,
        tuple(compared_layers(seen)),
        gradients,
        tuple(culprits),
        (*seen.findings, *open_names(seen.names), *_loss_findings(losses, culprits, scale)),
        environments(*(side.side for side in task.sides)),
        _verdict(culprits, gradients),
    )


def _loss_findings(
    losses: Sequence[ComparedLoss], culprits: Sequence[StepCulprit], scale: float | None
) -> Iterator[Finding]:
    first = losses[0]
    if scale is not None:
        message = f"the loss is scaled by {scale:.6g} times the reference's scale, and the gradients are unscaled by it"
        yield Finding("loss-scale", "note", "loss", message, {"factor": scale})
    if first.reference is None or first.alone is None or first.limit is None or scale is not None:
        return
    if not abs(first.alone - first.reference) <= first.limit and not any(one.kind == "loss" for one in culprits):
        message = f"the loss of the same outputs is {first.alone:.6g}, the reference's {first.reference:.6g}, and its"
        yield Finding("loss-value-differs", "warning", "loss", f"{message} gradient is the same")


def _verdict(culprits: Sequence[StepCulprit], gradients: Sequence[ComparedGradient]) -> Verdict:
    compared = sum(one.outcome != "could not tell" for one in gradients)
    coverage = Coverage("gradients of parameters", compared, len(gradients) - compared)
    if culprits:
        first = culprits[0]
        where = first.candidate or first.part
        reason = f"{counted(len(culprits), 'place')} at fault, the first is {where} ({first.kind})"
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not compared:
        return Verdict(
            Outcome.NOT_COMPARED,
            "no gradient of a parameter could be compared; align params says of each why",
            coverage,
        )
    return Verdict(Outcome.ALIGNED, f"{counted(compared, 'gradient')} of parameters agree, each layer alone", coverage)
