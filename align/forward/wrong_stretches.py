"""The search for all stretches between points that go wrong, by halving, from the last one to the first.

What a stretch begins with may depend on nothing of what is wrong before it. So where its value is right, the last point
before it that is wrong is looked for, and the search goes on from there. Points that depend on no input (a table of
positions, a branch from a parameter) are no places where a stretch begins: they are judged by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.forward.thresholds import MOST_POINTS_ASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from align.forward.bisect_result import PointState

    Judge = Callable[[tuple[int, ...], int], float]

INPUTS = -1  # no limit: stands for the model's inputs among points


@dataclass(frozen=True, slots=True)
class FoundStretch:
    """A stretch between two points by number, INPUTS (-1) and the count of points standing for the model's ends."""

    start: int
    end: int
    factor: float


@dataclass(slots=True)
class StretchSearch:
    """What a search found: stretches from the last to the first, and what is known of the points that it used."""

    stretches: list[FoundStretch] = field(default_factory=list)
    states: dict[int, PointState] = field(default_factory=dict)


def find_wrong_stretches(
    count: int, judge: Judge, constant: Set[int] = frozenset(), sure: Set[int] = frozenset()
) -> StretchSearch:
    """Find all stretches that go wrong between `count` points.

    `judge(spliced, target)` returns the factor of what the port makes at a target, a point's number or `count` for the
    outputs, with the right values at the points `spliced`: above 1 it is wrong. Each stretch takes about log2(count) +
    2 judgements, and as many more for each point that has to be dropped: without the reference's value there all is
    right, with it not. `constant` points depend on no input; `sure` ones are known to be the same on both sides.
    """
    search = StretchSearch()
    usable = [point for point in range(count) if point not in constant]
    put_in: set[int] = set()

    def judged(spliced: tuple[int, ...], target: int) -> float:
        return judge(tuple(sorted({*put_in, *spliced})), target)

    if sure & constant and judge((), count) > 1.0:
        search.stretches += _wrong_of_themselves(sorted(sure & constant), judge)
        put_in.update(one.end for one in search.stretches)
    target = count
    while target > INPUTS:
        before = [point for point in usable if point < target]
        if judged((), target) <= 1.0:
            target = _last_wrong_point(before, judged, sure) if search.stretches else INPUTS
            continue
        near = bool(search.stretches)  # one fault may be anywhere, several mostly come in a row
        last = _last_wrong(before, lambda spliced, end=target: judged(spliced, end), near=near)  # type: ignore[misc]
        start, upto = (before[last], tuple(before[:last])) if last >= 0 else (INPUTS, ())
        if last > 0 and judged(upto, target) <= 1.0:
            search.states[start] = "dropped"
            usable.remove(start)
            continue
        free = sorted(point for point in constant - put_in if point < target)
        if wrong := _wrong_constants(free, before[: last + 1], target, judged):
            search.stretches += wrong
            put_in.update(free)
            continue
        if start > INPUTS:
            search.states[start] = "corresponds" if judged(upto, start) <= 1.0 else "doubtful"
        end = before[last + 1] if last + 1 < len(before) else target
        search.stretches.append(FoundStretch(start, end, judged(tuple(before[: last + 1]), target)))
        target = start
    return search


def _wrong_constants(free: Sequence[int], spliced: Sequence[int], target: int, judge: Judge) -> list[FoundStretch]:
    """The constants that are wrong of themselves, if their right values make right what else goes wrong."""
    right = free and judge((*spliced, *free), target) <= 1.0
    return _wrong_of_themselves(free, judge) if right else []


def _wrong_of_themselves(constants: Sequence[int], judge: Judge) -> list[FoundStretch]:
    """The constants that are wrong where those before them are right."""
    wrong = [(place, point) for place, point in enumerate(constants) if judge((), point) > 1.0]
    factors = {point: judge(tuple(constants[:place]), point) for place, point in wrong}
    return [FoundStretch(point - 1, point, factor) for point, factor in factors.items() if factor > 1.0]


def _last_wrong_point(before: Sequence[int], judge: Judge, sure: Set[int]) -> int:
    """The last point that is wrong though it is the same on both sides, as far as that is known; INPUTS if none is.

    One that is not sure to be the same has to be right where all before it is.
    """
    wrong = [point for point in reversed(before) if judge((), point) > 1.0][:MOST_POINTS_ASKED]
    alike = (one for one in wrong if one in sure or judge(tuple(own for own in before if own < one), one) <= 1.0)
    return next(alike, INPUTS)


def _last_wrong(points: list[int], judge: Callable[[tuple[int, ...]], float], *, near: bool) -> int:
    """Position of the last point up to which the right values leave the target wrong, -1 for none at all.

    By halving; where it may be `near` the end, in growing steps from there first.
    """
    wrong, right, step = -1, len(points), 1
    while right - wrong > 1:
        middle = max(len(points) - step, wrong + 1) if near else (wrong + right) // 2
        if judge(tuple(points[: middle + 1])) <= 1.0:
            right, step = middle, 2 * step
        else:
            wrong, near = middle, False
    return wrong
