"""The steps of both sides beside each other: of a live candidate, or of sides that were recorded apart.

A live candidate takes each step from the reference's state, and the first once more on its tensors. Of sides apart
nothing gives way to the reference's tensors: a place is at fault where what it was given is right, and what it made is
not. What lies behind it cannot be judged, and from the second step on each side goes its own way. Like layers may be
called in another order, which is no fault: which call is which shows in what they are given.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import for_gradients, held_value, meant_value, without_sums
from align.core.piece_transforms import sum_step
from align.core.verdicts import Finding
from align.errors import UnlikeTracesError
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.models.inputs import SpilledArrays
from align.models.loop_watcher import recompute_noted
from align.traces.module_calls import call_key, inputs_of_calls
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.training.apply_rule import read_rule
from align.training.step_result import ComparedGradient, ComparedLayer, ComparedLoss, FreeStep
from align.training.steps.both_steps import (
    OrdinaryStep,
    SeenSteps,
    carried_over,
    judge_values,
    optimizer_scale,
    owners_of,
    paired_value,
    paired_values,
    runs_of,
    values_of_both,
)
from align.training.steps.judge_step import StepJudge, StepPrecision, nearest_scale, scale_taken_off
from align.training.steps.record_step import (
    AFTER,
    BEFORE,
    COMPUTED,
    GIVEN,
    PairedLayers,
    ReplacedStep,
    ReplacedTensor,
    StepLayouts,
    StepTrace,
    StepWriter,
)
from align.training.steps.recorded_steps import (
    FreeRun,
    described_steps,
    filled,
    groups_of,
    last_moments,
    shares_of,
    squared_distance,
    take_freely,
    trained_parameters,
    ways_of,
)
from align.training.thresholds import (
    FREE_RUN_FACTOR,
    FREE_RUN_LEAST_SHARE,
    LOSS_NOISE_FACTOR,
    LOSS_ROUNDING_SHARE,
    LOSS_SHARE,
    SAME_INPUTS_DISTANCE,
    SAME_START_SHARE,
)
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Array, ParameterSet
    from align.core.traces import Capture
    from align.traces.module_calls import Call, CallPair, CallPairs
    from align.traces.trace_folder import TraceFolder
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepOutcome
    from align.training.steps.both_steps import JudgedValue
    from align.training.steps.judge_step import GradientsOfOne
    from align.training.steps.recorded_steps import RecordedSteps, ReferenceSteps

    Distance = Callable[[int, Iterable[tuple[str, Array]]], float]
    Pairings = dict[str, list[Pairing]]


def see_recorded_steps(
    reference: ReferenceSteps, candidate: RecordedSteps, given: NameMap | Path | str | None
) -> SeenSteps:
    """Put both recordings side by side; `given` is the name map, which is made otherwise.

    Raises UnlikeTracesError for steps on other batches, and for sides that do not begin from the same values.
    """
    sides = reference.steps, candidate
    _refuse_other_batches(*sides)
    parameters, forward = (sides[0].parameters, sides[1].parameters), (sides[0].trace.forward, sides[1].trace.forward)
    names = choose_map(given, parameters)
    if given is None and not names.complete:
        names = map_in_order(forward, parameters, names)
    calls = paired_by_values(pair_traces(forward, parameters, names), forward, parameters)
    trace = candidate.trace
    start = trace.values(0, BEFORE)
    _refuse_other_start(names, sides, start)
    gradients = gradients_with_owners(names, parameters, (sides[0].trace, trace))
    precision = StepPrecision((sides[0].trace, trace), calls.pairs, gradients)
    judge = StepJudge(reference.noise, precision, gathered=True)
    _judge_tensors((sides[0].trace, trace), calls, judge)
    first = OrdinaryStep(trace.losses[0], *(trace.values(0, what) for what in (COMPUTED, GIVEN, AFTER)))
    findings = (*reference.findings, *_apart(*sides), *precision.findings([side.label for side in sides]))
    return SeenSteps(names, sides, reference.noise, calls, judge, first, start, findings, precision)


def _apart(reference: RecordedSteps, candidate: RecordedSteps) -> Iterator[Finding]:
    """What could not be judged of steps that were recorded apart."""
    message = sentence("run_finding.recorded_apart")
    yield Finding("steps-recorded-apart", "note", candidate.label, message)
    unknown = {one.settings.classes[0] for one in reference.groups.values() if read_rule(one) is None}
    if unknown or not reference.groups:
        message = (
            sentence("run_finding.no_rule", classes=sorted(unknown))
            if unknown
            else sentence("run_finding.no_rule_of_optimizer")
        )
        yield Finding("updates-not-compared", "warning", reference.label, message)


def _refuse_other_batches(reference: RecordedSteps, candidate: RecordedSteps) -> None:
    ours, theirs = len(reference.batches), len(candidate.batches)
    both = say("trace_fault.both", reference=reference.label, candidate=candidate.label)
    if ours != theirs:
        fault = say("training_reason.other_counts", reference=ours, candidate=theirs)
        raise UnlikeTracesError(both, [fault], say("training_reason.one_batch_file"))
    for number, (one, other) in enumerate(zip(reference.batches, candidate.batches, strict=True), 1):
        if not _same_batch(one, other):
            fault = say("training_reason.other_batches", step=number)
            raise UnlikeTracesError(both, [fault], say("training_reason.one_batch_file"))


def _same_batch(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    """Compare by names, or by their order where the sides call them otherwise."""
    names = (list(first), list(first)) if first.keys() == second.keys() else (list(first), list(second))
    pairs = [(first[mine], second[theirs]) for mine, theirs in zip(*names, strict=False)]
    return len(first) == len(second) and all(a.shape == b.shape and np.array_equal(a, b) for a, b in pairs)


def _refuse_other_start(names: NameMap, sides: tuple[RecordedSteps, RecordedSteps], start: Mapping[str, Array]) -> None:
    initial = sides[0].trace.values(0, BEFORE)
    pairs = paired_values(without_sums(names), initial, start)
    other = [pair.pairing.target for pair in pairs if pair.meant is not None and not _near(pair.meant, pair.value)]
    for pairing in (pairing for pairing in names.pairings if sum_step(pairing.transform) is not None):
        known = all(each.source in initial and each.target in start for each in (pairing, *pairing.terms))
        other += (
            [pairing.target] if known and not _near(meant_value(pairing, initial), held_value(pairing, start)) else []
        )
    if other:
        both = say("trace_fault.both", reference=sides[0].label, candidate=sides[1].label)
        fault = say("training_reason.other_start", names=other)
        raise UnlikeTracesError(both, [fault], say("training_reason.fill_where_built"))


def _near(meant: Array, value: Array | None) -> bool:
    if value is None or not meant.size:
        return True
    wide = meant.astype(np.float64)
    return bool(np.abs(value.astype(np.float64) - wide).max() <= SAME_START_SHARE * np.abs(wide).max())


def _judge_tensors(traces: tuple[StepTrace, StepTrace], calls: CallPairs, judge: StepJudge) -> None:
    """Hold each tensor of surely paired calls, and the gradient that came back to it, against the reference's."""
    layouts, pairs = StepLayouts(), [one for one in calls.pairs if one.certain]
    for mine, theirs in _paired_tensors(traces, pairs):
        meant, value = traces[0].forward.value(mine), traces[1].forward.value(theirs)
        view = layouts.find(mine, meant, value)
        turned = None if view is None else view.to_reference(value)
        judge(ReplacedTensor("forward", mine, theirs, meant, turned))
        right, came = traces[0].gradient(mine), traces[1].gradient(theirs)
        if view is None or right is None or traces[0].leaders.get(mine.key, mine) is not mine:
            continue
        if came is not None:
            judge(ReplacedTensor("backward", mine, theirs, right, view.to_reference(came)))
        elif theirs.role == "output":  # an input that awaits none was cut off before: what made it shows that
            judge(ReplacedTensor("backward", mine, theirs, right, None))


def _paired_tensors(traces: tuple[StepTrace, StepTrace], pairs: list[CallPair]) -> Iterator[tuple[Capture, Capture]]:
    """What paired calls were given and returned, both sides' captures."""
    partners, given = PairedLayers(traces[0], pairs), inputs_of_calls(traces[1].forward)
    for pair in pairs:
        own = {one.output: one for one in given.get(call_key(pair), ())}
        values = {name: traces[1].forward.value(one) for name, one in own.items()}
        for name, mine in partners.inputs(*call_key(pair), values).items():
            yield mine, own[name]
        for capture in pair.candidate.outputs:
            if (found := partners.output(capture)) is not None:
                yield found, capture


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
    by_optimizers = optimizer_scale(steps.groups, groups_of(opened, len(steps.batches)))
    with recompute_noted() as noted:
        trace = _record(steps, opened, names, start, folder, by_optimizers)
    if given is None and not names.complete:
        names = map_in_order((steps.trace.forward, trace.forward), (steps.parameters, parameters), names)
        start = _start(steps, opened, names)
        trace = _record(steps, opened, names, start, folder, by_optimizers)
    sides, traces = (steps.parameters, parameters), (steps.trace.forward, trace.forward)
    calls = paired_by_values(pair_traces(traces, sides, names), traces, sides)
    begun()
    gradients = gradients_with_owners(names, (steps.parameters, parameters), (steps.trace, trace))
    precision = StepPrecision((steps.trace, trace), calls.pairs, gradients)
    layers = PairedLayers(steps.trace, calls.pairs)
    several = len(opened.training.optimizers) > 1  # what one has updated is then run for another's loss
    after = carried_over(names, steps.trace.values(0, AFTER), start) if several else {}

    def replaced(judge: StepJudge, scale: float = 1.0) -> ReplacedStep:
        sink = ReplacedStep(steps.trace, layers, judge, start, scale=scale)
        sink.meant_after = after
        sink.by_optimizers = by_optimizers
        opened.trainer.take_steps(opened.training, steps.batches[:1], sink)
        return sink

    judge = StepJudge(reference.noise, precision)
    first = replaced(judge)
    scales = _scales(steps.trace, trace, first, judge)
    if scales[0] != scales[1]:
        again = StepJudge(reference.noise, precision)
        scaled = replaced(again, scales[1] / scales[0])
        off = [sum(one.factor > 1.0 for one in own.seen) for own in (judge, again)]
        if not off[0] or off[0] < off[1]:  # the step divides gradients of a loss that is not scaled
            scales = 1.0, 1.0
        else:
            judge, first = again, scaled
    begun()
    both = steps, described_steps(opened, parameters, steps.batches, trace, recomputes=bool(noted))
    findings = (*reference.findings, *precision.findings([side.label for side in both]))
    return SeenSteps(
        names,
        both,
        reference.noise,
        calls,
        judge,
        first,
        start,
        findings,
        precision,
        opened,
        scales=scales,
        by_optimizers=by_optimizers,
        meant_after=after,
    )


def _scales(
    reference: StepTrace, candidate: StepTrace, replaced: ReplacedStep, judge: StepJudge
) -> tuple[float, float]:
    """The scales of both losses, by what becomes of gradients behind the way back.

    The candidate's shows where it is given the reference's: what clips what is far too small leaves it as it is. Where
    the step makes something else of them, a scale of the gradient that begins the way back counts, and not of the loss.
    """
    parts = runs_of((reference, candidate))
    mine = scale_taken_off(reference.values(0, COMPUTED), reference.values(0, GIVEN), parts[0])
    if parts[0] != parts[1]:
        return mine, scale_taken_off(candidate.values(0, COMPUTED), candidate.values(0, GIVEN), parts[1])
    theirs = scale_taken_off(replaced.computed_gradients, replaced.given_gradients, parts[1])
    loss, own = reference.losses[0], replaced.loss
    if theirs == 1.0 and loss is not None and own is not None and abs(own - loss) <= LOSS_SHARE * abs(loss):
        begins = (one for one in judge.seen if one.way == "backward" and not one.own.module and one.factor > 1.0)
        factors = {one.relation.facts.get("factor") for one in begins}
        known = [nearest_scale(mine * one) for one in factors if isinstance(one, float) and len(factors) == 1]
        theirs = next((one for one in known if one is not None), theirs)
    return mine, theirs


def _start(reference: RecordedSteps, opened: TrainingSide, names: NameMap) -> Mapping[str, Array]:
    """The reference's values in the candidate's parameters and buffers."""
    return carried_over(names, reference.trace.values(0, BEFORE), _own_values(opened))


def _record(
    reference: RecordedSteps,
    opened: TrainingSide,
    names: NameMap,
    start: Mapping[str, Array],
    folder: Path,
    by_optimizers: float,
) -> StepTrace:
    """The candidate's steps, each from the reference's state, and with its gradients at each update."""
    own = _own_values(opened)

    def begun(step: int) -> Mapping[str, Array]:
        return carried_over(names, reference.trace.values(step - 1, AFTER), own) if step else start

    def updated(step: int, gradients: Mapping[str, Array]) -> Mapping[str, Array]:
        return carried_over(for_gradients(names), reference.trace.values(step, GIVEN), gradients)

    environment, moments = opened.side.reader.environment(), last_moments(opened, len(reference.batches))
    with StepWriter(folder, environment, begun=begun, updated=updated, moments=moments) as writer:
        writer.by_optimizers = by_optimizers
        opened.trainer.take_steps(opened.training, reference.batches, writer)
    return writer.trace()


def _own_values(opened: TrainingSide) -> Mapping[str, Array]:
    """A copy, as steps change them."""
    return SpilledArrays(opened.side.reader.read_values(opened.side.model))


def paired_by_values(
    calls: CallPairs, traces: tuple[TraceFolder, TraceFolder], parameters: tuple[ParameterSet, ParameterSet]
) -> CallPairs:
    """Exchange the partners of like calls in one module, where their inputs are each other's and not their own."""
    owners = [{parameter.module for parameter in side.parameters} for side in parameters]
    groups: dict[object, list[int]] = defaultdict(list)
    for number, pair in enumerate(calls.pairs):
        groups[_likeness(pair, owners)].append(number)
    inputs = _FirstInputs(traces)
    pairs = [*calls.pairs]
    for members in groups.values():
        if len(members) > 1:
            for number, partner in _partners([pairs[member] for member in members], inputs):
                pairs[members[number]] = replace(calls.pairs[members[number]], reference=partner)
    return replace(calls, pairs=tuple(pairs))


def _likeness(pair: CallPair, owners: Sequence[set[str]]) -> object:
    """What pairs have in common that may be exchanged: the layer if it has parameters, else its class and its place."""
    mine, theirs = pair.reference, pair.candidate
    if mine.module in owners[0] or theirs.module in owners[1]:
        return mine.module, theirs.module
    places = mine.module.rpartition(".")[0], theirs.module.rpartition(".")[0]
    return *places, mine.class_name, theirs.class_name, mine.shapes, theirs.shapes


def _partners(pairs: Sequence[CallPair], inputs: _FirstInputs) -> list[tuple[int, Call]]:
    """New partners by number, of pairs whose inputs are not the same; none unless the others' are."""
    apart = [number for number, pair in enumerate(pairs) if not inputs.near(pair.reference, pair.candidate)]
    left = [pairs[number].reference for number in apart]
    partners: dict[int, Call] = {}
    for number in apart:
        near = next((call for call in left if inputs.near(call, pairs[number].candidate)), None)
        if near is not None:
            partners[number] = near
            left.remove(near)
    rest = [number for number in apart if number not in partners]
    return [*partners.items(), *zip(rest, left, strict=True)] if partners else []


class _FirstInputs:
    """What calls of both sides are given first, a sample of it, read when it is asked for."""

    def __init__(self, traces: tuple[TraceFolder, TraceFolder]) -> None:
        self._traces = traces
        self._inputs = [inputs_of_calls(trace) for trace in traces]

    def near(self, mine: Call, theirs: Call) -> bool:
        """Tell whether both are given the same; so it is where one is given nothing."""
        known = [own.get((one.module, one.call)) for own, one in zip(self._inputs, (mine, theirs), strict=True)]
        if known[0] is None or known[1] is None:
            return True
        values = [sample_values(trace.value(one[0])) for trace, one in zip(self._traces, known, strict=True) if one]
        return relative_rms_distance(values[0], values[1]) <= SAME_INPUTS_DISTANCE


# The losses, layers and gradients of both sides, each against its limit, and how far apart both come when left alone.
#
# Training is chaotic: two right sides part, each step by more. So the reference is run once more with its values
# rounded at random before each step, and how far that brings it from itself is shown beside. Single steps may differ
# by more than rounding, as two places of Adam's epsilon make them: that is shown too. Parameters are held against the
# reference's trace as they come; only the rounded run keeps its own, to go on from them.


def judged_gradients(seen: SeenSteps, values: Mapping[str, Array], what: str, *, alone: bool) -> list[JudgedValue]:
    """Hold the gradients of parameters in the first step against the reference's, each layer `alone` or the whole."""
    pairs = paired_values(seen.gradient_names, seen.traces[0].values(0, what), values)
    noise = seen.noise.alone if alone else seen.noise.together
    coarser = seen.precision_of if alone else lambda _: seen.precision.whole
    return [*judge_values(pairs, noise, (0, what), alone=alone, coarser=coarser)]


def gradients_with_owners(
    name_map: NameMap, parameters: tuple[ParameterSet, ParameterSet], traces: tuple[StepTrace, StepTrace]
) -> Iterator[GradientsOfOne]:
    """Yield the gradients of the first step that both sides have, with the modules of their parameters.

    Of weights only: that of a bias before a normalisation is what sums leave, few bits of it that any dtype holds.
    """
    mine, theirs = (owners_of(one) for one in parameters)
    for pairing, meant, value in values_of_both(
        for_gradients(name_map), *(trace.values(0, COMPUTED) for trace in traces)
    ):
        if meant.ndim > 1:
            yield (mine.get(pairing.source, ""), theirs.get(pairing.target, "")), (meant, value)


def compared_losses(seen: SeenSteps) -> Iterator[ComparedLoss]:
    """Yield the losses of all steps; one that is no number has no limit, nor have later ones of sides apart."""
    first, second = seen.traces
    wide = seen.noise.losses
    for number, (mine, theirs) in enumerate(zip(first.losses, second.losses, strict=False)):
        limit = None
        if mine is not None and isfinite(mine) and (seen.live or not number):
            known = wide[number] if number < len(wide) else None
            limit = LOSS_SHARE * abs(mine)
            if known is not None and isfinite(known):
                limit = max(LOSS_NOISE_FACTOR * abs(known - mine), LOSS_ROUNDING_SHARE * abs(mine))
            limit = max(limit, seen.precision.loss_share * abs(mine))
        alone = seen.first.loss if seen.live and not number else None
        yield ComparedLoss(number + 1, mine, theirs, alone, limit)


def compared_layers(seen: SeenSteps) -> Iterator[ComparedLayer]:
    """Yield each paired call with the worst factors of what it makes by itself."""
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


def compared_gradients(
    alone: Sequence[JudgedValue], together: Sequence[JudgedValue], owners: Mapping[str, str]
) -> Iterator[ComparedGradient]:
    """Yield each paired parameter; what decides is the layer alone."""
    gathered = {(gradient.pairing.source, gradient.pairing.target): gradient for gradient in together}
    for gradient in alone:
        names = gradient.pairing.source, gradient.pairing.target
        whole = gathered.get(names, gradient)
        outcome: StepOutcome = (
            "could not tell" if gradient.is_noise else "not aligned" if gradient.factor > 1.0 else "aligned"
        )
        yield ComparedGradient(
            *names, owners.get(names[1], ""), outcome, whole.measurement, whole.limit, whole.factor, gradient.factor,
            *whole.norms,
        )  # fmt: skip


def run_candidate_freely(seen: SeenSteps) -> FreeRun | None:
    """Let a live candidate go on by itself from the reference's values; None for one that was recorded apart."""
    if seen.live is None:
        return None
    run = FreeRun(seen.start, partial(_from_candidate, _parameters(seen), seen.traces[0]))
    take_freely(seen.live, seen.sides[0].batches, run)
    return run


def compare_free_runs(seen: SeenSteps, run: FreeRun | None) -> tuple[FreeStep, ...]:
    """Put the candidate's free run beside the reference; what was recorded apart from it is a free run too.

    So is what was seen of the reference; of a live candidate each step is from the reference's state and under its
    gradients.
    """
    traces, pairings = seen.traces, _parameters(seen)
    ways = ways_of({one.source for group in pairings.values() for one in group}, traces[0])
    steps = [*_steps(pairings, traces)]
    losses, distances, single = traces[1].losses, steps, []
    if run is not None:
        losses, distances, single = run.losses, run.distances, [*accumulate(steps)]
    shares = shares_of(distances, ways), filled(seen.noise.growth, len(ways)), shares_of(single, ways)
    rows = zip(traces[0].losses, filled(losses, len(ways)), *shares, strict=True)
    return tuple(FreeStep(number, *row) for number, row in enumerate(rows, 1))


def free_run_findings(free: Sequence[FreeStep]) -> Iterator[Finding]:
    """Say if the candidate parts from the reference by far more than rounding and its single steps explain."""
    for step in free:
        explained = max((step.noise or 0.0) + (step.single_steps or 0.0), FREE_RUN_LEAST_SHARE)
        if step.apart is not None and step.noise is not None and not step.apart <= FREE_RUN_FACTOR * explained:
            facts: dict[str, float | int | str] = {"apart": step.apart, "explained": explained}
            message = sentence("run_finding.apart", step=step.step, **facts)
            yield Finding("free-run-apart", "note", "free run", message, facts)
            return


def _steps(pairings: Pairings, traces: tuple[StepTrace, StepTrace]) -> Iterator[float]:
    """How far apart both sides are after each recorded step."""
    for step in range(len(traces[0].losses)):
        yield _from_candidate(pairings, traces[0], step, traces[1].values(step, AFTER).items())


def _parameters(seen: SeenSteps) -> Pairings:
    """The pairings of the reference's parameters, by the candidate's names."""
    own = {parameter.name for parameter in seen.parameters[0].parameters if not parameter.buffer}
    by_candidate: Pairings = {}
    for pairing in seen.updated_names.pairings:
        if pairing.source in own:
            by_candidate.setdefault(pairing.target, []).append(pairing)
    return by_candidate


def _from_candidate(pairings: Pairings, reference: StepTrace, step: int, values: Iterable[tuple[str, Array]]) -> float:
    whole, after = 0.0, reference.values(step, AFTER)
    for name, value in values:
        pairs = (paired_value(one, after.get(one.source), value) for one in pairings.get(name, ()))
        whole += sum(squared_distance(one.meant, one.value) for one in pairs if one is not None)
    return sqrt(whole)
