"""All that is wrong by itself in the port's steps: the loss, layers and code, the loop, the optimizer, statistics."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.dtypes import is_float
from align.training.faults.compare_rates import rate_culprits, rate_findings
from align.training.faults.explain_cross_entropy import NO_FAULT, explain_loss_inside, explain_outputs
from align.training.faults.explain_given import explain_given
from align.training.faults.explain_loss import explain_loss
from align.training.faults.find_recompute_faults import find_recompute_faults
from align.training.faults.find_step_faults import LayerFaults, value_culprits
from align.training.faults.gradient_scale import clipped_by_norm, named_scale, without_loss_scale
from align.training.faults.keep_by_itself import tensors_by_themselves, values_by_themselves
from align.training.faults.loss_terms import OTHER, other_term, value_terms
from align.training.faults.repeated_statistics import relate_repeated
from align.training.faults.statistics_relations import relate_statistics
from align.training.faults.step_updates import compare_step_updates, held_by_none, scale_of_optimizers, update_culprits
from align.training.faults.tied_parameters import tie_culprits
from align.training.steps.compare_values import judge_values, owners_of, paired_values
from align.training.steps.gradient_relations import NOT_CLEARED
from align.training.steps.judge_step import is_half
from align.training.steps.record_step import AFTER, COMPUTED, GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.verdicts import Finding
    from align.training.step_result import ComparedUpdate, StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue
    from align.training.steps.recorded_steps import LineFinder

# Of what a layer is given: a kernel that adds in float32 leaves so much in a mean, one that adds in float64 nothing.
STATISTIC_UNITS = 16 * 1.2e-7
# Limits, of a gradient in a whole step: clean pairs of tests/planted/step_nets.py come to 1, single ones of a ResNet-50
# on two samples to 3,300. So all gradients as one vector must be off by more than its rounding too: that comes to 2.
FAR_OFF, FAR_APART = 100.0, 10.0
SCALED_OFF = ("gradient-scale", "did-not-move")  # what an optimizer shows that takes a loss scale off


class StepFaults(NamedTuple):
    """What is wrong by itself, and what both optimizers made of each parameter.

    `scale` is the factor of a loss scale that is taken off again, None for none. `findings` are what may be wrong.
    """

    culprits: list[StepCulprit]
    scale: float | None
    updates: tuple[ComparedUpdate, ...]
    findings: tuple[Finding, ...]


def find_step_culprits(seen: SeenSteps, alone: Sequence[JudgedValue], together: Sequence[JudgedValue]) -> StepFaults:
    """Find all that is wrong by itself.

    `alone` and `together` are the gradients of parameters, each layer by itself and the whole step.
    """
    if not seen.runs_alike:
        return _of_whole_steps(seen)
    owners = owners_of(seen.parameters[1])
    faults = LayerFaults(seen.calls.pairs, owners)
    tensors, gradients = seen.judge.seen, alone
    if seen.live is None:
        tensors, gradients = tensors_by_themselves(tensors), values_by_themselves(alone, tensors, owners)
    faults.take(tensors)
    tied, untied, changed = tie_culprits(seen, gradients)
    terms, others = value_terms(seen, untied)
    faults.take_gradients(others)
    by_place = [one for one in faults.culprits() if one.kind != "forward" or one.candidate not in changed]
    if not (by_place or tied or terms):
        by_place += other_term(seen, _lost_between(seen, together, owners))
    found, given, scale = without_loss_scale(
        by_place, _given(seen, alone), scale_of_optimizers(seen.sides), lambda: _same_given(seen)
    )
    culprits = [*tied, *terms, *(one for one in (_explained(own, seen) for own in found) if one.cause != NO_FAULT)]
    given = clipped_by_norm(explain_given(given, seen), seen.first.given_gradients)
    culprits += value_culprits(given, "gradients", "step", owners)
    wrong_updates, updates = _updates(seen, scaled=scale is not None)
    culprits += [*held_by_none(seen), *wrong_updates]
    told = {name for one in wrong_updates for name in one.parameters}
    culprits += rate_culprits(seen, told)
    culprits += _buffers(seen, owners)
    culprits += find_recompute_faults(seen)
    if not (culprits and is_half(seen.precision.whole)):  # there a fault of the first step may show in the second only
        culprits += _later_gradients(seen, owners, together, {name for one in culprits for name in one.parameters})
    if scale is not None and not culprits and scale_of_optimizers(seen.sides) == 1.0:
        culprits += value_culprits(_scaled_back(seen, alone), "gradients", "step", owners)
    culprits = [_with_line(seen.sides[1].line_of, one) for one in culprits]
    return StepFaults(culprits, scale, updates, tuple(rate_findings(seen, told)))


def _explained(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Say what of the loss is otherwise; a factor that is in all gradients may be the loop's."""
    if (culprit.part, culprit.candidate, culprit.cause) == ("code", "", ""):
        named = explain_loss_inside(culprit, seen)
        return explain_outputs(named, seen) if named.kind == "forward" else named
    if culprit.part != "loss" or culprit.cause == OTHER:
        return culprit
    loops = any(side.own_step for side in seen.sides)
    named = named_scale(culprit, _given_in_whole(seen), seen.runs_a_step, loops=loops) if loops else culprit
    return explain_loss(culprit, seen) if named is culprit else named


def _of_whole_steps(seen: SeenSteps) -> StepFaults:
    """What is wrong in steps whose layers cannot be paired, as of parts of a batch: gradients that optimizers get."""
    given, runs = _given_in_whole(seen), seen.runs_a_step
    culprits = [named_scale(one, given, runs, loops=True) for one in value_culprits(given, "gradients", "step", {})]
    wrong, updates = _updates(seen, scaled=False)
    told = {name for one in wrong for name in one.parameters}
    culprits += [*held_by_none(seen), *wrong, *rate_culprits(seen, told)]
    return StepFaults(culprits, None, updates, tuple(rate_findings(seen, told)))


def _lost_between(seen: SeenSteps, together: Sequence[JudgedValue], owners: Mapping[str, str]) -> list[StepCulprit]:
    """What is wrong where each layer alone is right and the whole step is far off, or lacks gradients.

    Then calls count too whose places are not certain, if what they returned agrees: as of modules that hold others, and
    pass on what these return.
    """
    far = [one for one in together if not one.is_noise and one.factor > FAR_OFF]
    if not far or seen.live is None or _apart(together) <= FAR_APART * _rounding(seen):
        return []
    off = {(one.own.module, one.own.call) for one in seen.judge.seen if one.way == "forward" and one.factor > 1.0}
    calls = {(one.own.module, one.own.call) for one in seen.judge.seen} - off
    faults = LayerFaults(seen.calls.pairs, owners, calls)
    faults.take(seen.judge.seen)
    return faults.culprits() or value_culprits(far, "backward", "code", {})


def _apart(gradients: Sequence[JudgedValue]) -> float:
    """How far gradients are from the reference's, all as one vector, as a share of its length."""
    known = [one for one in gradients if one.measurement is not None]
    lost = sum((one.norms[0] or 0.0) ** 2 for one in gradients if one.measurement is None)
    apart = sum(one.measurement.rmse**2 * one.measurement.count for one in known if one.measurement)
    whole = sum((one.norms[0] or 0.0) ** 2 for one in gradients)
    return sqrt((apart + lost) / whole) if whole else 0.0


def _rounding(seen: SeenSteps) -> float:
    """How far rounding alone brings them."""
    known = [one for key, one in seen.noise.together.items() if key.endswith(COMPUTED)]
    whole = sum(one.reference_rms**2 * one.count for one in known)
    return sqrt(sum(one.rmse**2 * one.count for one in known) / whole) if whole else 0.0


def _with_line(line_of: LineFinder, culprit: StepCulprit) -> StepCulprit:
    """Tell the line that makes a layer, or that calls the layer beside which code is wrong."""
    if culprit.part not in ("layer", "code"):
        return culprit
    layer = culprit.part == "layer" and culprit.candidate
    line = line_of(culprit.candidate) if layer else line_of(culprit.near, calls=True) if culprit.near else ""
    return replace(culprit, line=line)


def _updates(seen: SeenSteps, *, scaled: bool) -> tuple[list[StepCulprit], tuple[ComparedUpdate, ...]]:
    """What the optimizers do otherwise with the reference's gradients, and all updates.

    A scale that is `scaled` off is no fault, and the updates of an optimizer that takes it off are left out: under the
    reference's gradients it moves parameters by so much less, or not at all.
    """
    result, updates = compare_step_updates(seen)
    found = update_culprits(result)
    unscaled = [one for one in found if scaled and one.cause in SCALED_OFF]
    names = {name for one in unscaled for name in one.parameters}
    return [one for one in found if one not in unscaled], tuple(one for one in updates if one.candidate not in names)


def _given(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What a step of the user's own makes of right gradients before an optimizer gets them.

    What is off by more than the noise of the gradient, and by more than arithmetic in its dtype explains, is wrong.
    """
    if not any(side.own_step for side in seen.sides):
        return []
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    given = seen.traces[0].values(0, GIVEN), seen.first.given_gradients
    pairs = [one for one in paired_values(seen.names, *given) if one.pairing.target in right]
    by_dtype = judge_values(iter(pairs), None, (0, GIVEN), alone=True, coarser=seen.precision_of)
    by_noise = judge_values(iter(pairs), seen.noise.alone, (0, COMPUTED), alone=True, coarser=seen.precision_of)
    return [
        min(both, key=lambda one: one.factor) for both in zip(by_dtype, by_noise, strict=True) if not both[0].is_noise
    ]


def _given_in_whole(seen: SeenSteps) -> list[JudgedValue]:
    """What the optimizers of both sides get in the first step, as each takes it."""
    pairs = paired_values(seen.names, *(trace.values(0, GIVEN) for trace in seen.traces))
    return [*judge_values(pairs, seen.noise.together, (0, COMPUTED), alone=False, coarser=seen.precision_of)]


def _same_given(seen: SeenSteps) -> bool:
    """Tell whether they get the same."""
    judged = _given_in_whole(seen)
    return bool(judged) and all(one.factor <= 1.0 for one in judged if not one.is_noise)


def _scaled_back(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What the step makes of its own scaled gradients: clipping by a norm that counts the scale shows only there."""
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    related = [one for one in _given_in_whole(seen) if one.pairing.target in right and one.relation.cause]
    return clipped_by_norm(related, seen.traces[1].values(0, GIVEN))


def _later_gradients(
    seen: SeenSteps, owners: Mapping[str, str], first: Sequence[JudgedValue], named: set[str]
) -> Iterator[StepCulprit]:
    """Gradients that are right in the first step and not in a later one: what a step leaves behind for the next.

    Of sides apart, whose states are no longer the same, and of those where something else is wrong, only gradients with
    those of the step before in them count.
    """
    right = {one.pairing.target for one in first if one.factor <= 1.0} - named
    earlier: dict[str, list[Array]] = {}

    def whole(_: str) -> tuple[str, str]:
        return seen.precision.whole

    for step in range(1, len(seen.traces[0].losses)):
        for one in paired_values(seen.names, seen.traces[0].values(step - 1, GIVEN), {}):
            if one.meant is not None:
                earlier.setdefault(one.pairing.target, []).append(one.meant)
        pairs = paired_values(seen.names, *(trace.values(step, GIVEN) for trace in seen.traces))
        taken = (one for one in pairs if one.pairing.target in right)
        judged = [
            *judge_values(taken, seen.noise.together, (step, COMPUTED), alone=False, earlier=earlier, coarser=whole)
        ]
        known = seen.live and not named
        related = [one for one in judged if one.relation.cause and (known or one.relation.cause == NOT_CLEARED)]
        if found := value_culprits(related, "gradients", "step", owners, step + 1):
            yield from found
            return


def _buffers(seen: SeenSteps, owners: Mapping[str, str]) -> list[StepCulprit]:
    """Running statistics after the first step on the reference's tensors."""
    buffers = {one.name for one in seen.parameters[0].parameters if one.buffer}
    after = {name: value for name, value in seen.traces[0].values(0, AFTER).items() if name in buffers}
    held = {name: value for name, value in seen.first.after.items() if value.dtype.kind == "f"}
    pairs = [one for one in paired_values(seen.names, after, held) if one.meant is not None and one.value is not None]
    found = []
    judged = judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True, coarser=seen.precision_of)
    for pair, one in zip(pairs, judged, strict=True):
        before = seen.start.get(pair.pairing.target)
        if one.factor > 1.0 and before is not None and pair.meant is not None and pair.value is not None:
            if np.abs(pair.value - pair.meant).max() <= STATISTIC_UNITS * _size_of_inputs(seen, pair.pairing.source):
                continue  # a mean of nearly nothing, of large values that cancel
            relation = relate_statistics(before, pair.meant, pair.value)
            if not relation.cause:
                inputs = _inputs_of(seen, pair.pairing.source)
                relation = relate_repeated(before, pair.meant, pair.value, inputs)
            found.append(replace(one, relation=relation))
    if not seen.live:
        found = values_by_themselves(found, seen.judge.seen, owners)
    return value_culprits(found, "buffer", "layer", owners)


def _size_of_inputs(seen: SeenSteps, buffer: str) -> float:
    """The root mean square of what the layer of a statistic was given, or its square if that is more."""
    values = _inputs_of(seen, buffer)
    square = max((float(np.mean(one.astype(np.float64) ** 2)) for one in values), default=0.0)
    return max(sqrt(square), square)


def _inputs_of(seen: SeenSteps, buffer: str) -> list[Array]:
    """What the layer of a statistic was given, call by call."""
    module = owners_of(seen.parameters[0]).get(buffer, "")
    trace = seen.traces[0].forward
    return [trace.value(one) for one in trace.inputs if one.module == module and is_float(one.dtype)]
