"""Learning rates of two groups held against each other, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align.core.layer_settings import LearningRates

TOLERANCE = 1e-4
"""Of the larger rate. MindSpore computes schedules in float32 from the number of the step: up to 3e-5 in 1000 steps."""
FLOOR = 1e-6  # of the highest rate: below, near the end of a cosine, cancellation is all that is left of a float32


@dataclass(frozen=True, slots=True)
class RatesDiffer:
    """The first step, counted from 0, at which two schedules differ, both rates there, and in how many of the steps."""

    step: int
    rates: tuple[float, float]
    differing: int
    steps: int


def first_unlike_rate(mine: LearningRates, theirs: LearningRates) -> RatesDiffer | None:
    """Compare over all steps that both have, a rate that stays over all of the other's."""
    steps = common_steps(mine, theirs)
    floor = FLOOR * max(map(abs, (*mine.values, *theirs.values)))
    unlike = [step for step in range(steps) if not _close(mine.at(step), theirs.at(step), floor)]
    if not unlike:
        return None
    first = unlike[0]
    return RatesDiffer(first, (mine.at(first), theirs.at(first)), len(unlike), steps)


def common_steps(mine: LearningRates, theirs: LearningRates) -> int:
    """The number of steps whose rates both sides have."""
    return min((len(one.values) for one in (mine, theirs) if len(one.values) > 1), default=1)


def steps_a_period(mine: LearningRates, theirs: LearningRates) -> int | None:
    """The number of steps for which one side keeps a rate that the other changes at each, if that explains all.

    So a scheduler that is stepped once an epoch stands against a list with a rate for each step.
    """
    return _period(mine, theirs) or _period(theirs, mine)


def _period(quick: LearningRates, slow: LearningRates) -> int | None:
    values = slow.values
    length = next((step for step, value in enumerate(values) if value != values[0]), len(values))
    needed = -(-len(values) // length) if length else 0
    if length < 2 or needed < 2 or len(quick.values) < needed:
        return None
    floor = FLOOR * max(map(abs, values))
    alike = all(_close(quick.at(step // length), value, floor) for step, value in enumerate(values))
    return length if alike else None


def _close(one: float, other: float, floor: float) -> bool:
    return abs(one - other) <= max(TOLERANCE * max(abs(one), abs(other)), floor)
