"""What the numbers of paths say: whether two layers of the source stand in one order with two of the target.

A number counts within its list. Which list of the one side is which of the other, and whether both run the same way,
is learnt from pairs that shapes or words settle: `up.0` is the deepest block of one decoder and the last of another,
and `heads.0.layers.2` may be `layers.2.heads.0`. Where two readings of nested lists fit as well, numbers say nothing.
Two pairs that fall may be a whole list turned round, or two blocks exchanged in a list that is otherwise as it was:
they tell which where one of both cannot be; else nobody knows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations, takewhile
from math import gcd
from operator import itemgetter
from typing import TYPE_CHECKING

from align.names.layers.path_words import likeness, words
from align.names.thresholds import DEEPEST_NESTING, NUMBERS_OF_A_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.names.layers.read_layers import Layer, Pair


_INDEX = re.compile(r"(?<![^._\-\s])[A-Za-z]*([0-9]{1,9})(?![^._\-\s])")
Lists = tuple[str, ...]


@lru_cache(maxsize=1 << 17)
def list_levels(path: str) -> tuple[tuple[str, int], ...]:
    """The numbered lists that a path goes through, the outermost first, each with the number there.

    >>> list_levels("up.2.block_1.conv")
    (('up.', 2), ('up.#.block_', 1))
    """
    found: list[tuple[str, int]] = []
    name, end = "", 0
    for index in _INDEX.finditer(path):
        name += path[end : index.start(1)]
        found.append((name, int(index[1])))
        name, end = f"{name}#", index.end(1)
    return tuple(found)


@lru_cache(maxsize=1 << 17)
def _compared(a: str, b: str) -> tuple[Lists, tuple[int, ...]]:
    """The lists that both paths go through, and the order of the two numbers in each: -1, 0 or 1."""
    both = list(takewhile(lambda two: two[0][0] == two[1][0], zip(list_levels(a), list_levels(b), strict=False)))
    return tuple(mine[0] for mine, _ in both), tuple(
        (mine[1] > other[1]) - (mine[1] < other[1]) for mine, other in both
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """A list of the target: its place among those of a path, and whether it runs as the source's (1) or not (-1)."""

    place: int
    way: int


class NumberedLists:
    """How the numbered lists of two sides go together, as settled pairs and the lists themselves tell."""

    def __init__(self, left: Iterable[Layer], right: Iterable[Layer], settled: Iterable[Pair]) -> None:
        self._sides = _Side(left), _Side(right)
        learnt = self._learn_ways(settled)
        self._ways = {lists: one.way for lists, one in learnt.items() if one.way is not None}
        self._moved = {(mine, number) for (mine, _), one in learnt.items() for number in one.moved}
        self._turned = {_beside(*lists) for lists, way in self._ways.items() if way < 0 or learnt[lists].shifted}
        self._alike = {(*_beside(*lists), self._fall(*lists)) for lists, way in self._ways.items() if way > 0}
        self._readings: dict[tuple[Lists, Lists], list[_Read]] = {}

    def agreement(self, one: Pair, two: Pair) -> tuple[int, bool]:
        """1 if two pairs stand in one order by their numbers, -1 if in opposite orders, 0 if numbers do not tell.

        And whether the lists are nested alike, so that what is in one list of the source is in one of the target.
        """
        (a, b), (a2, b2) = one, two
        mine, signs = _compared(a.path, a2.path)
        theirs, other_signs = _compared(b.path, b2.path)
        first, at = next(filter(itemgetter(0), zip(signs, mine, strict=True)), (0, ""))
        moved = any((at, dict(list_levels(path)).get(at)) in self._moved for path in (a.path, a2.path))
        if not first or not any(other_signs) or moved:
            return 0, True
        if (mine, theirs) not in self._readings:
            self._readings[mine, theirs] = self._read(mine, theirs)
        reading = self._readings[mine, theirs]
        read = next((one for one in reading if other_signs[one.place]), None)
        alike = all(one.place <= other.place for one, other in pairwise(reading))
        return (first * other_signs[read.place] * read.way if read else 0), alike

    def _read(self, mine: Lists, theirs: Lists) -> list[_Read]:
        """The target's lists in the order of the source's that they are; none if numbers say nothing."""
        inner, outer = self._sides[0].varying(mine), self._sides[1].varying(theirs)
        order = self._order(inner, outer)
        found = []
        for at, name in enumerate(order):
            way = self._way(inner[at] if len(inner) == len(outer) or not at else "", name)
            if not way:
                return []
            found.append(_Read(theirs.index(name), way))
        return found

    def _way(self, mine: str, theirs: str) -> int:
        """1 if two lists run the same way, -1 if opposite ways, 0 if that is not known.

        Lists of which no pair tells it run the same way, unless others beside both run opposite ways, or one is
        registered from its last number to its first, and none beside both, registered alike, runs the same way.
        """
        if (mine, theirs) in self._ways:
            return self._ways[mine, theirs]
        beside, falls = _beside(mine, theirs), self._fall(mine, theirs)
        return int(beside not in self._turned and (falls[0] == falls[1] or (*beside, falls) in self._alike))

    def _fall(self, mine: str, theirs: str) -> tuple[bool, bool]:
        return mine in self._sides[0].falling, theirs in self._sides[1].falling

    def _learn_ways(self, settled: Iterable[Pair]) -> dict[tuple[str, str], ListDirection]:
        points: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
        for a, b in settled:
            for mine, number in list_levels(a.path):
                for theirs, other in list_levels(b.path):
                    points[mine, theirs].add((number, other))
        left, right = (side.seen for side in self._sides)
        return {(x, y): list_direction(places, left[x], right[y], "#" in x + y) for (x, y), places in points.items()}

    def _order(self, inner: Lists, outer: Lists) -> Lists:
        """The outer lists in the order of the inner ones that they are; () if several orders fit as well."""
        if len(inner) != len(outer) or not 1 < len(inner) <= DEEPEST_NESTING:
            return outer
        runs = [side.runs(lists) for side, lists in zip(self._sides, (inner, outer), strict=True)]
        own = self._sides[0].numbers(inner)
        fitting: dict[Lists, float] = {}
        for order in permutations(range(len(outer))):
            same_places = [run[at] == run[place] for run in runs for at, place in enumerate(order)]
            lists = tuple(outer[place] for place in order)
            ways = [self._ways.get(two) for two in zip(inner, lists, strict=True)]
            if all(same_places) and 0 not in ways and self._sides[1].numbers(lists) == own:
                words_alike = sum(_name_likeness(x, y) for x, y in zip(inner, lists, strict=True))
                fitting[lists] = words_alike + sum(way is not None for way in ways)
        if not fitting:
            return outer
        best = [lists for lists, score in fitting.items() if score == max(fitting.values())]
        return best[0] if len(best) == 1 else ()


class _Side:
    """The numbered lists of one side."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        layers = sorted(layers, key=lambda layer: layer.position)
        self._levels = [dict(list_levels(layer.path)) for layer in layers]
        self._members = Counter(name for own in self._levels for name in own)
        self.seen: dict[str, set[int]] = defaultdict(set)
        falling: dict[str, bool] = {}
        for name, numbers in _instances(self._levels):
            self.seen[name].update(numbers)
            if len(numbers) >= NUMBERS_OF_A_RUN:
                falling[name] = falling.get(name, True) and numbers == sorted(numbers, reverse=True)
        self.falling = {
            name for name, falls in falling.items() if falls
        }  # registered from the last number to the first

    def varying(self, lists: Lists) -> Lists:
        """Those of the lists that hold more than one number."""
        return tuple(name for name in lists if len(self.seen[name]) > 1)

    def runs(self, lists: Lists) -> list[int]:
        """A number for each list, equal for those of which each holds nothing but the next."""
        found = [0]
        for name, below in pairwise(lists):
            found.append(found[-1] + (self._members[name] != self._members[below]))
        return found

    def numbers(self, lists: Lists) -> set[tuple[int, ...]]:
        """The numbers that layers have in the lists, counted from 0 in steps of 1."""
        rows = {tuple(own[name] for name in lists) for own in self._levels if all(name in own for name in lists)}
        starts = [min(column) for column in zip(*rows, strict=True)]
        steps = [
            gcd(*(n - low for n in column)) or 1 for low, column in zip(starts, zip(*rows, strict=True), strict=True)
        ]
        return {tuple((n - low) // step for n, low, step in zip(row, starts, steps, strict=True)) for row in rows}


def _instances(layers: Iterable[dict[str, int]]) -> Iterator[tuple[str, list[int]]]:
    """Yield each list in each place where it stands, with its numbers in the order of registration."""
    found: dict[tuple[object, ...], dict[int, None]] = defaultdict(dict)
    for own in layers:
        entries = tuple(own.items())
        for depth, (name, number) in enumerate(entries):
            found[(*entries[:depth], name)][number] = None
    yield from ((str(key[-1]), list(numbers)) for key, numbers in found.items())


def _beside(mine: str, theirs: str) -> tuple[str, str]:
    return _parent(mine), _parent(theirs)


def _parent(name: str) -> str:
    return name.rstrip(".").rpartition(".")[0]


def _name_likeness(mine: str, theirs: str) -> float:
    return likeness(*(words(name.rpartition("#")[2]) for name in (mine, theirs)))


@dataclass(frozen=True, slots=True)
class ListDirection:
    """How two lists run as points tell: `way` is 1 for the same way, -1 for opposite ways, 0 for neither or unknown.

    None if the points stand at one place, or tell no more than that the `moved` numbers of the source are exchanged.
    `shifted` says that one pair stands elsewhere in two lists of equal length: they do not run the same way.
    """

    way: int | None
    moved: frozenset[int] = frozenset()
    shifted: bool = False


def list_direction(points: set[tuple[int, int]], mine: set[int], theirs: set[int], nested: bool) -> ListDirection:
    """Read points: a number of the source's list, and one of the target's, for each settled pair in both.

    `mine` and `theirs` are all numbers of the lists; those of `nested` lists stand in several lists of any length.
    """
    if any(len({point[side] for point in points}) == 1 for side in (0, 1)):
        shifted = len(points) == 1 and len(mine) == len(theirs) and not nested
        shifted = shifted and any(sorted(mine).index(x) != sorted(theirs).index(y) for x, y in points)
        return ListDirection(0, shifted=True) if shifted else ListDirection(None)
    way = _way(points)
    if any(len({point[side] for point in points}) < len(points) for side in (0, 1)):
        return ListDirection(way)
    ranks = [(sorted(mine).index(number), sorted(theirs).index(other)) for number, other in sorted(points)]
    alike = len(mine) == len(theirs) and not nested
    may_be_turned = way < 0 and not (alike and any(x + y != len(mine) - 1 for x, y in ranks))
    moved = _exchanged(ranks, 0 if alike else sum(y - x for x, y in ranks) / len(ranks))
    if moved and not may_be_turned:
        return ListDirection(None, frozenset(sorted(mine)[rank] for rank in moved))
    clear = len(ranks) == len(mine) if moved else alike or len(ranks) >= NUMBERS_OF_A_RUN
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
    """The two places of the source that stand in each other's, while all others that are known stay; none if not so.

    `shift` is that of a list that has lost its first blocks on one side: an exchange leaves the mean as it is.
    """
    moved = {x: y - shift for x, y in ranks if y - x != shift}
    return set(moved) if len(moved) == 2 and set(moved) == set(moved.values()) else set()
