"""Training steps of a model and its port compared: loss, each layer's way back alone, gradients, updates, buffers."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.message_words import counted
from align.core.name_map import SIDES
from align.core.progress import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, UsageError, UserCodeError
from align.models.batches import batches_of
from align.models.inputs import read_inputs
from align.models.open_side import environments
from align.models.source_lines import called_at, made_at
from align.traces.pair_traces import choose_map, map_in_order, open_names, pair_traces
from align.training.freeze import freeze
from align.training.open_training import open_training
from align.training.step_result import ComparedGradient, ComparedLayer, ComparedLoss, StepComparison
from align.training.steps.compare_values import carried_over, judge_values, paired_values
from align.training.steps.explain_loss import explain_loss
from align.training.steps.find_step_faults import LayerFaults, owners_of, value_culprits
from align.training.steps.gradient_scale import clipped_by_norm, without_loss_scale
from align.training.steps.judge_step import StepJudge
from align.training.steps.measure_step_noise import measure_step_noise
from align.training.steps.record_step import AFTER, COMPUTED, GIVEN, StepTrace, StepWriter
from align.training.steps.replace_step import PairedLayers, ReplacedStep
from align.training.steps.statistics_relations import relate_statistics
from align.training.steps.step_updates import compare_step_updates, scale_of_optimizers, update_culprits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Batch, Model
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.traces.module_calls import CallPairs
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit, StepOutcome
    from align.training.steps.compare_values import JudgedValue
    from align.training.steps.measure_step_noise import StepNoise

STAGES = 5
STEPS = 3
# Relative: how far apart two losses may be where no float64 run tells, and in how many units of the noise where one
# does.
LOSS_SHARE = 1e-4
LOSS_NOISE = 10.0
LOSS_UNITS = 64 * 1.2e-7


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
    NothingInCommonError if no layer pairs.

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
    opened = open_training(reference), open_training(candidate)
    stages = count(1)
    with tempfile.TemporaryDirectory(prefix="align-") as folder, ExitStack() as stack:
        for side in opened:
            stack.enter_context(freeze(side.training.model, batchnorm=False, dropout=True))
        task = _Task(opened, batches, Path(folder), lambda: progress("step", next(stages), STAGES))
        return _compare(task, name_map)


@dataclass(frozen=True)
class _Task:
    """The sides, what they are given, and where their steps are kept."""

    sides: tuple[TrainingSide, TrainingSide]
    batches: Sequence[Batch]
    folder: Path
    begun: Callable[[], None]


@dataclass(frozen=True)
class _Seen:
    """What both sides did, and what the candidate did in its first step with the reference's tensors throughout."""

    names: NameMap
    parameters: tuple[ParameterSet, ParameterSet]
    traces: tuple[StepTrace, StepTrace]
    noise: StepNoise
    calls: CallPairs
    judge: StepJudge
    replaced: ReplacedStep
    start: Mapping[str, Array]
    findings: tuple[Finding, ...]


def _compare(task: _Task, given: NameMap | Path | str | None) -> StepComparison:
    parameters = _parameters(task.sides[0]), _parameters(task.sides[1])
    names = choose_map(given, parameters)
    task.begun()
    first = _record(task.sides[0], task, task.folder / SIDES[0])
    task.begun()
    noise, findings = measure_step_noise(task.sides[0], task.batches, first, task.folder / "wide")
    task.begun()
    second = _record_from(task, names, first)
    if given is None and not names.complete:
        names = map_in_order((first.forward, second.forward), parameters, names)
        second = _record_from(task, names, first)
    calls = pair_traces((first.forward, second.forward), parameters, names)
    task.begun()
    judge = StepJudge(noise)
    start = _start(task, names)
    replaced = ReplacedStep(first, PairedLayers(first, calls.pairs), judge, start)
    task.sides[1].trainer.take_steps(task.sides[1].training, task.batches[:1], replaced)
    task.begun()
    return _judged(task, _Seen(names, parameters, (first, second), noise, calls, judge, replaced, start, findings))


def _parameters(side: TrainingSide) -> ParameterSet:
    found = side.side.reader.read_parameters(side.side.model, side.label)
    if not any(one.trainable for one in found.parameters):
        raise CannotRunError(
            f"{side.label} has no trainable parameter, of {counted(len(found.parameters), 'parameter')}",
            "set requires_grad where the function builds it",
        )
    return found


def _record(side: TrainingSide, task: _Task, folder: Path) -> StepTrace:
    with StepWriter(folder, side.side.reader.environment()) as writer:
        side.trainer.take_steps(side.training, task.batches, writer)
    return StepTrace(folder, writer.losses, writer.updates)


def _record_from(task: _Task, names: NameMap, reference: StepTrace) -> StepTrace:
    """The candidate's steps, each from the reference's state, and with its gradients at each update."""
    side = task.sides[1]
    own = side.side.reader.read_values(side.side.model)
    start = _start(task, names)

    def begun(step: int) -> Mapping[str, Array]:
        return carried_over(names, reference.values(step - 1, AFTER), own) if step else start

    def updated(step: int, gradients: Mapping[str, Array]) -> Mapping[str, Array]:
        return carried_over(names, reference.values(step, GIVEN), gradients)

    folder = task.folder / SIDES[1]
    with StepWriter(folder, side.side.reader.environment(), begun=begun, updated=updated) as writer:
        side.trainer.take_steps(side.training, task.batches, writer)
    return StepTrace(folder, writer.losses, writer.updates)


def _start(task: _Task, names: NameMap) -> dict[str, Array]:
    """The reference's values in the candidate's parameters and buffers."""
    first, second = (side.side.reader.read_values(side.side.model) for side in task.sides)
    return carried_over(names, first, second)


def _judged(task: _Task, seen: _Seen) -> StepComparison:
    second = seen.traces[1]
    owners = owners_of(seen.parameters[1])
    alone = _judged_values(seen, seen.replaced.computed_gradients, COMPUTED, alone=True)
    together = _judged_values(seen, second.values(0, COMPUTED), COMPUTED, alone=False)
    faults = LayerFaults(seen.calls.pairs, owners)
    faults.take(seen.judge.seen)
    faults.take_gradients(alone)
    losses = tuple(_losses(seen))
    found, given, scale = without_loss_scale(faults.culprits(), _given(seen, alone), scale_of_optimizers(task.sides))
    culprits = [_explained(task, seen, one) if one.part == "loss" else one for one in found]
    culprits += value_culprits(clipped_by_norm(given, seen.replaced.given_gradients), "gradients", "step", owners)
    culprits += _updates(task, seen, scaled=scale is not None)
    culprits += _buffers(seen, owners)
    culprits += _later_gradients(seen, owners, together, {name for one in culprits for name in one.parameters})
    culprits = [_with_line(task.sides[1].side.model, one) for one in culprits]
    gradients = tuple(_gradients(alone, together, owners))
    findings = (*seen.findings, *open_names(seen.names), *_loss_findings(losses, culprits, scale))
    return StepComparison(
        task.sides[0].label,
        task.sides[1].label,
        len(task.batches),
        losses,
        tuple(_layers(seen)),
        gradients,
        tuple(culprits),
        findings,
        environments(*(side.side for side in task.sides)),
        _verdict(culprits, gradients),
    )


def _explained(task: _Task, seen: _Seen, culprit: StepCulprit) -> StepCulprit:
    """Say why the loss is wrong; a setting is tried in one more step on the reference's tensors."""
    side = task.sides[1]

    def agrees_with(loss: Model) -> bool:
        judge = StepJudge(seen.noise)
        sink = ReplacedStep(seen.traces[0], PairedLayers(seen.traces[0], seen.calls.pairs), judge, seen.start)
        try:
            side.trainer.take_steps(replace(side.training, loss=loss), task.batches[:1], sink)
        except UserCodeError:
            return False
        faults = LayerFaults(seen.calls.pairs, {})
        faults.take(judge.seen)
        return all(one.part != "loss" for one in faults.culprits())

    samples = max((value.shape[0] for value in task.batches[0].values() if value.ndim), default=0)
    return explain_loss(culprit, task.sides, samples, agrees_with)


def _with_line(model: Model, culprit: StepCulprit) -> StepCulprit:
    """Tell the line that makes a layer, or that calls the layer beside which code is wrong."""
    if culprit.part not in ("layer", "code"):
        return culprit
    layer = culprit.part == "layer" and culprit.candidate
    line = made_at(model, culprit.candidate) if layer else called_at(model, culprit.near) if culprit.near else ""
    return replace(culprit, line=line)


def _judged_values(seen: _Seen, values: Mapping[str, Array], what: str, *, alone: bool) -> list[JudgedValue]:
    pairs = paired_values(seen.names, seen.traces[0].values(0, what), values)
    noise = seen.noise.alone if alone else seen.noise.together
    return [*judge_values(pairs, noise, (0, what), alone=alone)]


def _updates(task: _Task, seen: _Seen, *, scaled: bool) -> list[StepCulprit]:
    """What the optimizers do otherwise with the reference's gradients; a scale that is `scaled` off is no fault."""
    trained = {one.name for one in seen.parameters[1].parameters if one.trainable}
    found = update_culprits(compare_step_updates(task.sides, seen.traces, seen.names, seen.start, trained))
    return [one for one in found if not (scaled and one.cause == "gradient-scale")]


def _given(seen: _Seen, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What the step makes of right gradients before an optimizer gets them."""
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    pairs = paired_values(seen.names, seen.traces[0].values(0, GIVEN), seen.replaced.given_gradients)
    judged = judge_values((one for one in pairs if one.pairing.target in right), None, (0, GIVEN), alone=True)
    return [one for one in judged if not one.is_noise]


def _later_gradients(
    seen: _Seen, owners: Mapping[str, str], first: Sequence[JudgedValue], named: set[str]
) -> Iterator[StepCulprit]:
    """Gradients that are right in the first step and not in a later one: what a step leaves behind for the next."""
    right = {one.pairing.target for one in first if one.factor <= 1.0} - named
    earlier: dict[str, list[Array]] = {}
    for step in range(1, len(seen.traces[0].losses)):
        for one in paired_values(seen.names, seen.traces[0].values(step - 1, GIVEN), {}):
            if one.meant is not None:
                earlier.setdefault(one.pairing.target, []).append(one.meant)
        pairs = paired_values(seen.names, *(trace.values(step, GIVEN) for trace in seen.traces))
        taken = (one for one in pairs if one.pairing.target in right)
        judged = [*judge_values(taken, seen.noise.together, (step, COMPUTED), alone=False, earlier=earlier)]
        related = [one for one in judged if one.relation.cause]
        if found := value_culprits(related, "gradients", "step", owners, step + 1):
            yield from found
            return


def _buffers(seen: _Seen, owners: Mapping[str, str]) -> list[StepCulprit]:
    """Running statistics after the first step on the reference's tensors."""
    buffers = {one.name for one in seen.parameters[0].parameters if one.buffer}
    after = {name: value for name, value in seen.traces[0].values(0, AFTER).items() if name in buffers}
    held = {name: value for name, value in seen.replaced.after.items() if value.dtype.kind == "f"}
    pairs = [one for one in paired_values(seen.names, after, held) if one.meant is not None and one.value is not None]
    found = []
    for pair, one in zip(pairs, judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True), strict=True):
        before = seen.start.get(pair.pairing.target)
        if one.factor > 1.0 and before is not None and pair.meant is not None and pair.value is not None:
            found.append(replace(one, relation=relate_statistics(before, pair.meant, pair.value)))
    return value_culprits(found, "buffer", "layer", owners)


def _losses(seen: _Seen) -> Iterator[ComparedLoss]:
    first, second = seen.traces
    wide = seen.noise.losses
    for number, (mine, theirs) in enumerate(zip(first.losses, second.losses, strict=False)):
        limit = None
        if mine is not None and isfinite(mine):
            known = wide[number] if number < len(wide) else None
            limit = LOSS_SHARE * abs(mine)
            if known is not None and isfinite(known):
                limit = max(LOSS_NOISE * abs(known - mine), LOSS_UNITS * abs(mine))
        yield ComparedLoss(number + 1, mine, theirs, None if number else seen.replaced.loss, limit)


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


def _layers(seen: _Seen) -> Iterator[ComparedLayer]:
    worst: dict[tuple[str, int, str], float] = {}
    for one in seen.judge.seen:
        if (one.way == "forward") == (one.own.role == "output"):
            key = one.own.module, one.own.call, one.way
            worst[key] = max(worst.get(key, 0.0), one.factor)
    for pair in seen.calls.pairs:
        a, b = pair.reference, pair.candidate
        own = (b.module, b.call)
        yield ComparedLayer(
            a.module, b.module, a.class_name, b.class_name, b.call, a.depth,
            worst.get((*own, "forward")), worst.get((*own, "backward")),
        )  # fmt: skip


def _gradients(
    alone: Sequence[JudgedValue], together: Sequence[JudgedValue], owners: Mapping[str, str]
) -> Iterator[ComparedGradient]:
    gathered = {(one.pairing.source, one.pairing.target): one for one in together}
    for one in alone:
        names = one.pairing.source, one.pairing.target
        whole = gathered.get(names, one)
        outcome: StepOutcome = "could not tell" if one.is_noise else "not aligned" if one.factor > 1.0 else "aligned"
        yield ComparedGradient(
            *names, owners.get(names[1], ""), outcome, whole.measurement, whole.limit, whole.factor, one.factor
        )


def _verdict(culprits: Sequence[StepCulprit], gradients: Sequence[ComparedGradient]) -> Verdict:
    compared = sum(one.outcome != "could not tell" for one in gradients)
    coverage = Coverage("gradients of parameters", compared, len(gradients) - compared)
    if culprits:
        first = culprits[0]
        where = first.candidate or first.part
        reason = f"{counted(len(culprits), 'place')} at fault, the first is {where} ({first.kind})"
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not compared:
        return Verdict(Outcome.NOT_COMPARED, "no gradient of a parameter could be compared", coverage)
    return Verdict(Outcome.ALIGNED, f"{counted(compared, 'gradient')} of parameters agree, each layer alone", coverage)
