"""Learning rates of two groups held against each other, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.thresholds import FLOAT32_ROUNDING, LONGEST_SCHEDULE
from align.lint.thresholds import PERIODS_COMPARED, RATE_TOLERANCE, USUAL_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.protocols import LearningRates


@dataclass(frozen=True, slots=True)
class RatesDiffer:
    """The first step, counted from 0, at which two schedules differ, both rates there, and in how many of the steps.

    `behind` is the end of the schedule that is made for fewer steps than that, None if none is.
    """

    step: int
    rates: tuple[float, float]
    differing: int
    steps: int
    behind: int | None = None


def first_unlike_rate(mine: LearningRates, theirs: LearningRates) -> RatesDiffer | None:
    """Compare over all steps that both have, a rate that stays over all of the other's."""
    steps = common_steps(mine, theirs)
    # Below, near the end of a cosine, cancellation is all that is left of a float32.
    floor = FLOAT32_ROUNDING * max(map(abs, (*mine.values, *theirs.values)))
    unlike = [step for step in range(steps) if not _close(mine.at(step), theirs.at(step), floor)]
    if not unlike:
        return None
    first = unlike[0]
    behind = next((one.steps for one in (mine, theirs) if one.steps and one.steps <= first), None)
    return RatesDiffer(first, (mine.at(first), theirs.at(first)), len(unlike), steps, behind)


def steps_to_sample(rates: Iterable[LearningRates]) -> int:
    """The steps that tell schedules apart: up to the last end if all have one, else some periods of the longest.

    One that has no end goes on where the other's has come: only behind it a restart differs from what stays.
    """
    changing = [one for one in rates if one.scheduled and not one.problem]
    ends = [one.steps for one in changing]
    if changing and all(ends):
        return min(max(one or 0 for one in ends), LONGEST_SCHEDULE)
    longest = max((max(one.reach, one.steps or 0) for one in changing), default=0)
    return min(max(USUAL_STEPS, PERIODS_COMPARED * longest + 1), LONGEST_SCHEDULE)


def common_steps(mine: LearningRates, theirs: LearningRates) -> int:
    """The number of steps whose rates both sides have, not behind the later end if all that change have one."""
    length = min((len(one.values) for one in (mine, theirs) if len(one.values) > 1), default=1)
    ends = _ends(mine, theirs)
    return min(length, max(one or 0 for one in ends)) if ends and all(ends) else length


def is_whole(mine: LearningRates, theirs: LearningRates) -> bool:
    """Tell whether no step was left out: all that change have come to an end, or one has no rates behind it."""
    ends, steps = _ends(mine, theirs), common_steps(mine, theirs)
    stopped = any(one.steps == len(one.values) == steps for one in (mine, theirs))
    return stopped or (all(ends) and max((one or 0 for one in ends), default=0) <= steps)


def _ends(mine: LearningRates, theirs: LearningRates) -> list[int | None]:
    return [one.steps for one in (mine, theirs) if one.scheduled]


def stretched_by(mine: LearningRates, theirs: LearningRates) -> int | None:
    """The number of steps of the one side that are one of the other's, if all rates that both have then agree.

    So a scheduler that is stepped once an epoch, whatever it does in these, stands against one that is stepped always.
    """
    first, other = _first_change(mine), _first_change(theirs)
    if first is None or other is None:
        return None
    quick, slow = (mine, theirs) if first < other else (theirs, mine)
    length, left = divmod(max(first, other), min(first, other))
    if length < 2 or left:
        return None
    floor = FLOAT32_ROUNDING * max(map(abs, slow.values))
    steps = min(len(slow.values), length * len(quick.values))
    alike = all(_close(quick.at(step // length), slow.at(step), floor) for step in range(steps))
    return length if alike else None


def _first_change(rates: LearningRates) -> int | None:
    return next((step for step, value in enumerate(rates.values) if value != rates.values[0]), None)


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
    floor = FLOAT32_ROUNDING * max(map(abs, values))
    alike = all(_close(quick.at(step // length), value, floor) for step, value in enumerate(values))
    return length if alike else None


def _close(one: float, other: float, floor: float) -> bool:
    return abs(one - other) <= max(RATE_TOLERANCE * max(abs(one), abs(other)), floor)
