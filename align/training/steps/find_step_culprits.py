"""All that is wrong by itself in the port's steps: the loss, layers and code, the loop, the optimizer, statistics."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.errors import UserCodeError
from align.models.source_lines import called_at, made_at
from align.training.steps.compare_values import judge_values, paired_values
from align.training.steps.explain_loss import explain_loss
from align.training.steps.find_recompute_faults import find_recompute_faults
from align.training.steps.find_step_faults import LayerFaults, owners_of, value_culprits
from align.training.steps.gradient_scale import clipped_by_norm, without_loss_scale
from align.training.steps.judge_step import StepJudge, is_half
from align.training.steps.record_step import AFTER, COMPUTED, GIVEN
from align.training.steps.replace_step import PairedLayers, ReplacedStep
from align.training.steps.statistics_relations import relate_statistics
from align.training.steps.step_updates import compare_step_updates, scale_of_optimizers, update_culprits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps, StepTask
    from align.training.steps.compare_values import JudgedValue

# Of what a layer is given: a kernel that adds in float32 leaves so much in a mean, one that adds in float64 nothing.
STATISTIC_UNITS = 16 * 1.2e-7


def find_step_culprits(
    task: StepTask, seen: SeenSteps, alone: Sequence[JudgedValue], together: Sequence[JudgedValue]
) -> tuple[list[StepCulprit], float | None]:
    """Return all that is wrong by itself, and the factor of a loss scale that is taken off again, None for none.

    `alone` and `together` are the gradients of parameters, each layer by itself and the whole step.
    """
    owners = owners_of(seen.parameters[1])
    faults = LayerFaults(seen.calls.pairs, owners)
    faults.take(seen.judge.seen)
    faults.take_gradients(alone)
    found, given, scale = without_loss_scale(
        faults.culprits(), _given(task, seen, alone), scale_of_optimizers(task.sides)
    )
    culprits = [_explained(task, seen, one) if one.part == "loss" else one for one in found]
    culprits += value_culprits(clipped_by_norm(given, seen.replaced.given_gradients), "gradients", "step", owners)
    culprits += _updates(task, seen, scaled=scale is not None)
    culprits += _buffers(seen, owners)
    culprits += find_recompute_faults(task, seen)
    if not (culprits and is_half(seen.precision.whole)):  # there a fault of the first step may show in the second only
        culprits += _later_gradients(seen, owners, together, {name for one in culprits for name in one.parameters})
    if scale is not None and not culprits and scale_of_optimizers(task.sides) == 1.0:
        culprits += value_culprits(_scaled_back(seen, alone), "gradients", "step", owners)
    return [_with_line(task.sides[1].side.model, one) for one in culprits], scale


def _explained(task: StepTask, seen: SeenSteps, culprit: StepCulprit) -> StepCulprit:
    """Say why the loss is wrong; a setting is tried in one more step on the reference's tensors."""
    side = task.sides[1]

    def agrees_with(loss: Model) -> bool:
        judge = StepJudge(seen.noise, seen.precision)
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


def _updates(task: StepTask, seen: SeenSteps, *, scaled: bool) -> list[StepCulprit]:
    """What the optimizers do otherwise with the reference's gradients; a scale that is `scaled` off is no fault."""
    trained = {one.name for one in seen.parameters[1].parameters if one.trainable}
    found = update_culprits(compare_step_updates(task.sides, seen.traces, seen.names, seen.start, trained))
    return [one for one in found if not (scaled and one.cause == "gradient-scale")]


def _given(task: StepTask, seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What a step of the user's own makes of right gradients before an optimizer gets them.

    What is off by more than the noise of the gradient, and by more than arithmetic in its dtype explains, is wrong.
    """
    if all(side.training.step is None for side in task.sides):
        return []
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    given = seen.traces[0].values(0, GIVEN), seen.replaced.given_gradients
    pairs = [one for one in paired_values(seen.names, *given) if one.pairing.target in right]
    by_dtype = judge_values(iter(pairs), None, (0, GIVEN), alone=True, coarser=seen.precision_of)
    by_noise = judge_values(iter(pairs), seen.noise.alone, (0, COMPUTED), alone=True, coarser=seen.precision_of)
    return [
        min(both, key=lambda one: one.factor) for both in zip(by_dtype, by_noise, strict=True) if not both[0].is_noise
    ]


def _scaled_back(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What the step makes of its own scaled gradients: clipping by a norm that counts the scale shows only there."""
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    pairs = paired_values(seen.names, *(trace.values(0, GIVEN) for trace in seen.traces))
    taken = (one for one in pairs if one.pairing.target in right)
    judged = [*judge_values(taken, seen.noise.together, (0, COMPUTED), alone=False, coarser=seen.precision_of)]
    related = [one for one in judged if one.relation.cause]
    return clipped_by_norm(related, seen.traces[1].values(0, GIVEN))


def _later_gradients(
    seen: SeenSteps, owners: Mapping[str, str], first: Sequence[JudgedValue], named: set[str]
) -> Iterator[StepCulprit]:
    """Gradients that are right in the first step and not in a later one: what a step leaves behind for the next."""
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
        related = [one for one in judged if one.relation.cause]
        if found := value_culprits(related, "gradients", "step", owners, step + 1):
            yield from found
            return


def _buffers(seen: SeenSteps, owners: Mapping[str, str]) -> list[StepCulprit]:
    """Running statistics after the first step on the reference's tensors."""
    buffers = {one.name for one in seen.parameters[0].parameters if one.buffer}
    after = {name: value for name, value in seen.traces[0].values(0, AFTER).items() if name in buffers}
    held = {name: value for name, value in seen.replaced.after.items() if value.dtype.kind == "f"}
    pairs = [one for one in paired_values(seen.names, after, held) if one.meant is not None and one.value is not None]
    found = []
    judged = judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True, coarser=seen.precision_of)
    for pair, one in zip(pairs, judged, strict=True):
        before = seen.start.get(pair.pairing.target)
        if one.factor > 1.0 and before is not None and pair.meant is not None and pair.value is not None:
            if np.abs(pair.value - pair.meant).max() <= STATISTIC_UNITS * _size_of_inputs(seen, pair.pairing.source):
                continue  # a mean of nearly nothing, of large values that cancel
            found.append(replace(one, relation=relate_statistics(before, pair.meant, pair.value)))
    return value_culprits(found, "buffer", "layer", owners)


def _size_of_inputs(seen: SeenSteps, buffer: str) -> float:
    """The root mean square of what the layer of a statistic was given, or its square if that is more."""
    module = owners_of(seen.parameters[0]).get(buffer, "")
    trace = seen.traces[0].forward
    values = [
        trace.value(one).astype(np.float64) for one in trace.inputs if one.module == module and is_float(one.dtype)
    ]
    square = max((float(np.mean(one**2)) for one in values), default=0.0)
    return max(sqrt(square), square)
