"""The steps of a live candidate beside a reference that was recorded: each from the reference's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.models.recompute_layers import recompute_noted
from align.models.spilled_arrays import SpilledArrays
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.training.steps.both_steps import SeenSteps
from align.training.steps.calls_by_values import paired_by_values
from align.training.steps.compare_values import carried_over
from align.training.steps.judge_step import StepJudge
from align.training.steps.record_step import AFTER, BEFORE, GIVEN, StepTrace, StepWriter
from align.training.steps.recorded_steps import described_steps, last_moments, trained_parameters
from align.training.steps.replace_step import PairedLayers, ReplacedStep
from align.training.steps.step_precision import StepPrecision
from align.training.steps.step_tables import gradients_with_owners

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.training.open_training import TrainingSide
    from align.training.steps.recorded_steps import RecordedSteps, ReferenceSteps


def take_steps_beside(
    reference: ReferenceSteps,
    opened: TrainingSide,
    given: NameMap | Path | str | None,
    folder: Path,
    begun: Callable[[], None],
) -> SeenSteps:
    """Take the reference's steps with the candidate, then the first once more with the reference's tensors.

    The name map is the one that is `given`, or made; what that leaves open is matched in the order of the runs.
    """
    steps = reference.steps
    parameters = trained_parameters(opened)
    names = choose_map(given, (steps.parameters, parameters))
    start = _start(steps, opened, names)
    with recompute_noted() as noted:
        trace = _record(steps, opened, names, start, folder)
    if given is None and not names.complete:
        names = map_in_order((steps.trace.forward, trace.forward), (steps.parameters, parameters), names)
        start = _start(steps, opened, names)
        trace = _record(steps, opened, names, start, folder)
    sides, traces = (steps.parameters, parameters), (steps.trace.forward, trace.forward)
    calls = paired_by_values(pair_traces(traces, sides, names), traces, sides)
    begun()
    gradients = gradients_with_owners(names, (steps.parameters, parameters), (steps.trace, trace))
    precision = StepPrecision((steps.trace, trace), calls.pairs, gradients)
    judge = StepJudge(reference.noise, precision)
    replaced = ReplacedStep(steps.trace, PairedLayers(steps.trace, calls.pairs), judge, start)
    opened.trainer.take_steps(opened.training, steps.batches[:1], replaced)
    begun()
    both = steps, described_steps(opened, parameters, steps.batches, trace, recomputes=bool(noted))
    findings = (*reference.findings, *precision.findings([side.label for side in both]))
    return SeenSteps(names, both, reference.noise, calls, judge, replaced, start, findings, precision, opened)


def _start(reference: RecordedSteps, opened: TrainingSide, names: NameMap) -> Mapping[str, Array]:
    """The reference's values in the candidate's parameters and buffers."""
    return carried_over(names, reference.trace.values(0, BEFORE), _own_values(opened))


def _record(
    reference: RecordedSteps, opened: TrainingSide, names: NameMap, start: Mapping[str, Array], folder: Path
) -> StepTrace:
    """The candidate's steps, each from the reference's state, and with its gradients at each update."""
    own = _own_values(opened)

    def begun(step: int) -> Mapping[str, Array]:
        return carried_over(names, reference.trace.values(step - 1, AFTER), own) if step else start

    def updated(step: int, gradients: Mapping[str, Array]) -> Mapping[str, Array]:
        return carried_over(names, reference.trace.values(step, GIVEN), gradients)

    environment, moments = opened.side.reader.environment(), last_moments(opened, len(reference.batches))
    with StepWriter(folder, environment, begun=begun, updated=updated, moments=moments) as writer:
        opened.trainer.take_steps(opened.training, reference.batches, writer)
    return writer.trace()


def _own_values(opened: TrainingSide) -> Mapping[str, Array]:
    """A copy, as steps change them."""
    return SpilledArrays(opened.side.reader.read_values(opened.side.model))
