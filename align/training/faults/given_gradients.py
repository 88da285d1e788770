"""Gradients as optimizers get them: what a loop of the user's own makes of right ones, in the first step and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.training.faults.find_step_faults import value_culprits
from align.training.faults.gradient_scale import clipped_by_norm
from align.training.steps.compare_values import judge_values, paired_values
from align.training.steps.gradient_relations import NOT_CLEARED
from align.training.steps.record_step import COMPUTED, GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue


def given_by_loops(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
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


def given_in_whole(seen: SeenSteps) -> list[JudgedValue]:
    """What the optimizers of both sides get in the first step, as each takes it."""
    pairs = paired_values(seen.names, *(trace.values(0, GIVEN) for trace in seen.traces))
    return [*judge_values(pairs, seen.noise.together, (0, COMPUTED), alone=False, coarser=seen.precision_of)]


def same_given(seen: SeenSteps) -> bool:
    """Tell whether they get the same."""
    judged = given_in_whole(seen)
    return bool(judged) and all(one.factor <= 1.0 for one in judged if not one.is_noise)


def scaled_back(seen: SeenSteps, computed: Sequence[JudgedValue]) -> list[JudgedValue]:
    """What the step makes of its own scaled gradients: clipping by a norm that counts the scale shows only there."""
    right = {one.pairing.target for one in computed if one.factor <= 1.0 and not one.is_noise}
    related = [one for one in given_in_whole(seen) if one.pairing.target in right and one.relation.cause]
    return clipped_by_norm(related, seen.traces[1].values(0, GIVEN))


def later_gradients(
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
