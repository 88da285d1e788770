"""How many steps would tell alternatives from each other, by simulating them further."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.training.thresholds import FURTHER_STEPS, SEARCH_ELEMENTS
from align.training.updates.apply_rule import apply_rule
from align.training.updates.observed_steps import ObservedSteps, excess, rounding_limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.training.updates.apply_rule import GradientStep
    from align.training.updates.update_rules import UpdateRule


def steps_to_tell(steps: ObservedSteps, rules: Sequence[UpdateRule]) -> int | None:
    """Return after how many steps the first rule differs from all others, None if not within FURTHER_STEPS more.

    The gradients of further steps are those of the observed ones, moved along the elements and growing.
    """
    some = steps.spread(SEARCH_ELEMENTS)
    gradients = tuple(_continued(some.gradients, len(steps.before) + FURTHER_STEPS))
    first = _simulated(rules[0], some, gradients)
    found = [_first_difference(first, _simulated(one, some, gradients), rules[0]) for one in rules[1:]]
    known = [one for one in found if one is not None]
    return max(known) if known and len(known) == len(found) else None


def _continued(gradients: Sequence[GradientStep], count: int) -> Iterator[GradientStep]:
    for number in range(count):
        one, lap = gradients[number % len(gradients)], number // len(gradients)
        growth = 1 + lap / 2
        values = np.roll(one.values, lap) * growth
        yield replace(one, values=values, norm=one.norm * growth, global_norm=one.global_norm * growth)


def _simulated(rule: UpdateRule, steps: ObservedSteps, gradients: tuple[GradientStep, ...]) -> ObservedSteps:
    after: list[Array] = apply_rule(rule, steps.before[0], gradients)
    return ObservedSteps((steps.before[0], *after[:-1]), tuple(after), gradients, steps.dtype)


def _first_difference(one: ObservedSteps, other: ObservedSteps, rule: UpdateRule) -> int | None:
    over = excess(one.moved, other.moved, rounding_limits(one, rule, other)).max(axis=1) > 1
    return int(np.argmax(over)) + 1 if over.any() else None
