"""Which way a numbered list of the source runs beside one of the target, as settled pairs of numbers tell.

Two pairs that fall may be a whole list turned round, or two blocks exchanged in a list that is otherwise as it was.
They tell which where one of both cannot be; else nobody knows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

_FEW = 2


@dataclass(frozen=True, slots=True)
class ListDirection:
    """How two lists run as points tell: `way` is 1 for the same way, -1 for opposite ways, 0 for neither or unknown.

    None if the points stand at one place, or tell no more than that the `moved` numbers of the source are exchanged.
    """

    way: int | None
    moved: frozenset[int] = frozenset()


def list_direction(points: set[tuple[int, int]], mine: set[int], theirs: set[int], nested: bool) -> ListDirection:
    """Read points: a number of the source's list, and one of the target's, for each settled pair in both.

    `mine` and `theirs` are all numbers of the lists; those of `nested` lists stand in several lists of any length.
    """
    if any(len({point[side] for point in points}) == 1 for side in (0, 1)):
        return ListDirection(None)
    way = _way(points)
    if any(len({point[side] for point in points}) < len(points) for side in (0, 1)):
        return ListDirection(way)
    ranks = [(sorted(mine).index(number), sorted(theirs).index(other)) for number, other in sorted(points)]
    alike = len(mine) == len(theirs) and not nested
    may_be_turned = way < 0 and not (alike and any(x + y != len(mine) - 1 for x, y in ranks))
    moved = _exchanged(ranks, 0 if alike else sum(y - x for x, y in ranks) / len(ranks))
    if moved and not may_be_turned:
        return ListDirection(None, frozenset(sorted(mine)[rank] for rank in moved))
    clear = len(ranks) == len(mine) if moved else alike or len(ranks) > _FEW
    return ListDirection(way if way >= 0 or (may_be_turned and clear) else 0)


def _way(points: set[tuple[int, int]]) -> int:
    """Whether the second numbers grow (1) or fall (-1) with the first, or do neither (0)."""
    reached: dict[int, list[int]] = defaultdict(list)
    for number, other in sorted(points):
        reached[number].append(other)
    steps = list(pairwise(reached.values()))
    grows, falls = all(x[-1] <= y[0] for x, y in steps), all(x[0] >= y[-1] for x, y in steps)
    return grows - falls


def _exchanged(ranks: list[tuple[int, int]], shift: float) -> set[int]:
    """The two places of the source that stand in each other's, while all others that are told stay; none if not so.

    `shift` is that of a list that has lost its first blocks on one side: an exchange leaves the mean as it is.
    """
    moved = {x: y - shift for x, y in ranks if y - x != shift}
    return set(moved) if len(moved) == 2 and set(moved) == set(moved.values()) else set()
