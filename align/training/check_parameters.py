"""Which parameters one training step trains, which it does not, and why; on one side or compared between two."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from align.core.progress import silent
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.errors import CannotRunError, UsageError
from align.models.living_objects import looked_for_once
from align.traces.pair_traces import choose_map
from align.training.explain_untrained import Explainer, Untrained
from align.training.open_training import batch_findings, open_training, open_trainings
from align.training.parameters_result import (
    CheckedBuffer,
    CheckedParameter,
    CheckedSide,
    ParametersResult,
    UnlikeParameter,
)
from align.training.training_batches import read_training_batch
from align.training.watch_step import ParameterStep, watch_step
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap
    from align.core.parameters import Parameter, ParameterSet
    from align.core.progress import Progress
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide

FROZEN = Untrained("frozen", "requires_grad is False")
NOT_STEPPED = ParameterStep(None, 0.0, 0.0, 0.0, 0, None)


def check_parameters(
    reference: str | Training,
    candidate: str | Training | None = None,
    *,
    batch: InputsSource,
    name_map: NameMap | Path | str | None = None,
    ddp_indices: Sequence[int] = (),
    progress: Progress = silent,
) -> ParametersResult:
    """Take one training step of a side and say what it did to every parameter; with a candidate, compare both.

    A side is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step]) or a
    dict of these. `batch` is as inputs are for `align.compare_forward`, one batch with the labels: what bears no name
    of the model's parameters goes to the loss. `ddp_indices` are numbers of parameters as torch's
    DistributedDataParallel reports them. Nothing of a side is changed. Raises CannotRunError for a model without
    trainable parameters and for a loss that is no scalar, UsageError for an index that there is not.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> check_parameters(Training(ArrayModel(())), batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    arrays = read_training_batch(batch)
    opened = [open_training(reference)] if candidate is None else [*open_trainings(reference, candidate)]
    noted = [one for side in opened for one in batch_findings(side, arrays)]
    sets = [side.side.reader.read_parameters(side.side.model, side.label) for side in opened]
    sides = []
    for number, (side, parameters) in enumerate(zip(opened, sets, strict=True)):
        progress("params", number, len(opened))
        sides.append(_checked(side, parameters, arrays))
    progress("params", len(opened), len(opened))
    unlike = tuple(_unlike(sets, sides, name_map)) if candidate is not None else ()
    asked = tuple(_asked(sides[0], index) for index in ddp_indices)
    findings = (*noted, *_findings(sides))
    return ParametersResult(tuple(sides), unlike, asked, findings, _verdict(sides, unlike))


def _checked(opened: TrainingSide, parameters: ParameterSet, batch: Batch) -> CheckedSide:
    """Take the step, and name the state of every parameter."""
    own = [one for one in parameters.parameters if not one.buffer and one.tied_to is None]
    trainable = [one for one in own if one.trainable]
    if not trainable:
        raise CannotRunError.of("training_error.nothing_trainable", side=opened.label, count=len(own))
    with looked_for_once():
        step = watch_step(opened, batch)
        states = Explainer(opened, batch, step).states(trainable)
    numbers = {one.name: number for number, one in enumerate(trainable)}
    rows = [
        _row(one, states.get(one.name, FROZEN), step.parameters.get(one.name, NOT_STEPPED), numbers.get(one.name))
        for one in own
    ]
    buffers = [one.name for one in parameters.parameters if one.buffer and one.name in step.buffers]
    return CheckedSide(
        opened.label,
        opened.side.reader.name,
        step.loss,
        step.updates,
        tuple(rows),
        tuple(CheckedBuffer(name, step.buffers[name]) for name in buffers),
    )


def _row(one: Parameter, state: Untrained, step: ParameterStep, number: int | None) -> CheckedParameter:
    return CheckedParameter(
        one.name,
        one.module,
        one.shape,
        state.state,
        state.reason,
        step.gradient,
        step.moved,
        step.units,
        step.rate,
        step.holders,
        number,
    )


def _asked(side: CheckedSide, index: int) -> CheckedParameter:
    found = next((one for one in side.parameters if one.ddp_index == index), None)
    if found is None:
        count = sum(one.ddp_index is not None for one in side.parameters)
        raise UsageError.of("training_error.no_such_parameter", index=index, side=side.label, count=count)
    return found


def _unlike(
    sets: Sequence[ParameterSet], sides: Sequence[CheckedSide], given: NameMap | Path | str | None
) -> Iterator[UnlikeParameter]:
    """Pairs in different states; that one framework gives no gradient where the other gives zero is no difference."""
    mine, theirs = ({one.name: one for one in side.parameters} for side in sides)
    for pairing in choose_map(given, (sets[0], sets[1])).pairings:
        one, other = mine.get(pairing.source), theirs.get(pairing.target)
        if one and other and _kind(one) != _kind(other) and "without influence" not in (one.state, other.state):
            reasons = [
                f"{side}: {row.reason}" for side, row in (("reference", one), ("candidate", other)) if row.reason
            ]
            yield UnlikeParameter(one.name, other.name, one.state, other.state, "; ".join(reasons))


def _kind(row: CheckedParameter) -> str:
    return "zero gradient" if row.state == "no gradient" else row.state


def _findings(sides: Sequence[CheckedSide]) -> Iterator[Finding]:
    for side in sides:
        twice = [one.name for one in side.parameters if one.holders > 1]
        if twice:
            message = sentence("params_finding.two_groups", names=twice)
            yield Finding("parameter-in-two-groups", "warning", side.label, message)
        if side.loss is not None and not isfinite(side.loss):
            yield Finding(
                "loss-not-finite", "error", side.label, sentence("params_finding.loss_not_finite", loss=side.loss)
            )


def _verdict(sides: Sequence[CheckedSide], unlike: Sequence[UnlikeParameter]) -> Verdict:
    """Of one side: whether every trainable parameter is trained. Of two: whether both train the same."""
    counts = [sum(one.state != "frozen" for one in side.parameters) for side in sides]
    coverage = Coverage("parameters", counts[0])
    faults = sides[0].at_fault
    if unlike:
        pair = unlike[0]
        names = {"reference": pair.reference, "candidate": pair.candidate}
        states = {"reference_state": pair.reference_state, "candidate_state": pair.candidate_state}
        reason = sentence("params_verdict.unlike", count=len(unlike), **names, **states)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not any(side.at_fault for side in sides):
        return Verdict(Outcome.ALIGNED, sentence("params_verdict.all_trained", count=counts[-1]), coverage)
    share = {"faults": len(faults), "count": counts[0]}
    if len(sides) > 1:
        return Verdict(Outcome.ALIGNED, sentence("params_verdict.alike", **share), coverage)
    reason = sentence("params_verdict.untrained", name=faults[0].name, reason=faults[0].reason, **share)
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
