"""Halving: which stretch between two points makes something wrong of right values, then which one in front of it.

At a point and all before it the reference's values are put in; the later the point, the more is right. The last stretch
that goes wrong shows at the output. What goes wrong in front of it shows where that stretch begins, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.forward.bisect_result import PointState

INPUTS = -1


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


def find_wrong_stretches(count: int, judge: Callable[[tuple[int, ...], int], float]) -> StretchSearch:
    """Find all stretches that go wrong between `count` points.

    `judge(spliced, target)` returns the factor of what the port makes at a target, a point's number or `count` for the
    outputs, with the right values at the points `spliced`: above 1 it is wrong. Each stretch takes about log2(count) +
    2 judgements, and as many more for each point that has to be dropped: without the reference's value there all is
    right, with it not.
    """
    search = StretchSearch()
    usable = list(range(count))
    target = count
    while target > INPUTS:
        before = [point for point in usable if point < target]
        if judge((), target) <= 1.0:
            break
        near = bool(search.stretches)  # one fault may be anywhere, several mostly come in a row
        last = _last_wrong(before, lambda spliced, end=target: judge(spliced, end), near=near)  # type: ignore[misc]
        start, upto = (before[last], tuple(before[:last])) if last >= 0 else (INPUTS, ())
        if last > 0 and judge(upto, target) <= 1.0:
            search.states[start] = "dropped"
            usable.remove(start)
            continue
        if start > INPUTS:
            search.states[start] = "corresponds" if judge(upto, start) <= 1.0 else "doubtful"
        end = before[last + 1] if last + 1 < len(before) else target
        search.stretches.append(FoundStretch(start, end, judge(tuple(before[: last + 1]), target)))
        target = start
    return search


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
