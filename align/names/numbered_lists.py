"""What the numbers of paths say: whether two layers of the source stand in one order with two of the target.

A number counts within its list. Which list of the one side is which of the other, and whether both run the same way,
is learnt from pairs that shapes or words settle: `up.0` is the deepest block of one decoder and the last of another,
and `heads.0.layers.2` may be `layers.2.heads.0`. Where two readings of nested lists fit as well, numbers say nothing.
Two pairs that fall may be a whole list turned round, or two blocks exchanged in a list that is otherwise as it was:
they tell which where one of both cannot be; else nobody knows.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, permutations, takewhile
from math import gcd
from operator import itemgetter
from typing import TYPE_CHECKING

from align.names.read_layers import is_number, likeness, modules_above, words
from align.names.thresholds import AGREEING_BLOCKS, BENEFIT_OF_MAJORITY, DEEPEST_NESTING, LONGEST_END, NUMBERS_OF_A_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.names.read_layers import Layer, Pair


_INDEX = re.compile(r"(?<![^._\-\s])[A-Za-z]*([0-9]{1,9})(?![^._\-\s])")
Lists = tuple[str, ...]


@lru_cache(maxsize=1 << 17)
def list_levels(path: str) -> tuple[tuple[str, int], ...]:
    """The numbered lists that a path goes through, the outermost first, each with the number there.

    >>> list_levels("up.2.block_1.conv")
    (('up.', 2), ('up.#.block_', 1))
    """
    levels: list[tuple[str, int]] = []
    name, end = "", 0
    for index in _INDEX.finditer(path):
        name += path[end : index.start(1)]
        levels.append((name, int(index[1])))
        name, end = f"{name}#", index.end(1)
    return tuple(levels)


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

    def agreement(self, left_pair: Pair, two: Pair) -> tuple[int, bool]:
        """1 if two pairs stand in one order by their numbers, -1 if in opposite orders, 0 if numbers do not tell.

        And whether the lists are nested alike, so that what is in one list of the source is in one of the target.
        """
        (a, b), (a2, b2) = left_pair, two
        mine, signs = _compared(a.path, a2.path)
        theirs, other_signs = _compared(b.path, b2.path)
        first, at = next(filter(itemgetter(0), zip(signs, mine, strict=True)), (0, ""))
        moved = any((at, dict(list_levels(path)).get(at)) in self._moved for path in (a.path, a2.path))
        if not first or not any(other_signs) or moved:
            return 0, True
        if (mine, theirs) not in self._readings:
            self._readings[mine, theirs] = self._read(mine, theirs)
        reading = self._readings[mine, theirs]
        read = next((left_pair for left_pair in reading if other_signs[left_pair.place]), None)
        alike = all(left_pair.place <= other.place for left_pair, other in pairwise(reading))
        return (first * other_signs[read.place] * read.way if read else 0), alike

    def _read(self, mine: Lists, theirs: Lists) -> list[_Read]:
        """The target's lists in the order of the source's that they are; none if numbers say nothing."""
        inner, outer = self._sides[0].varying(mine), self._sides[1].varying(theirs)
        order = self._order(inner, outer)
        readings = []
        for at, name in enumerate(order):
            way = self._way(inner[at] if len(inner) == len(outer) or not at else "", name)
            if not way:
                return []
            readings.append(_Read(theirs.index(name), way))
        return readings

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
        inner_numbers = self._sides[0].numbers(inner)
        fitting: dict[Lists, float] = {}
        for order in permutations(range(len(outer))):
            same_places = [run[at] == run[place] for run in runs for at, place in enumerate(order)]
            lists = tuple(outer[place] for place in order)
            ways = [self._ways.get(two) for two in zip(inner, lists, strict=True)]
            if all(same_places) and 0 not in ways and self._sides[1].numbers(lists) == inner_numbers:
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
    instances: dict[tuple[object, ...], dict[int, None]] = defaultdict(dict)
    for own in layers:
        entries = tuple(own.items())
        for depth, (name, number) in enumerate(entries):
            instances[(*entries[:depth], name)][number] = None
    yield from ((str(key[-1]), list(numbers)) for key, numbers in instances.items())


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
    same_length = len(mine) == len(theirs) and not nested
    may_be_turned = way < 0 and not (same_length and any(x + y != len(mine) - 1 for x, y in ranks))
    moved = _exchanged(ranks, 0 if same_length else sum(y - x for x, y in ranks) / len(ranks))
    if moved and not may_be_turned:
        return ListDirection(None, frozenset(sorted(mine)[rank] for rank in moved))
    clear = len(ranks) == len(mine) if moved else same_length or len(ranks) >= NUMBERS_OF_A_RUN
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


# What stands around a layer: its modules and numbered lists, what they hold, and which settled layers are beside it.
#
# Of containers that are renamed or nested otherwise, what they hold says which is which: ports rarely split a branch.
# Pairs in question are left out of account, so that no guess confirms another, and so that two layers of which one is
# missing on the other side have the same neighbours: what stands between the same neighbours stays undecided.

_LETTERED = re.compile(r"(.*\d)[a-z]")
# `attn_norm` stands beside what is in `attn`, `dw_bn` beside `dw_conv`.
_TYPED = re.compile(r"(?!layer_)(.+?)_(?:layer_?norm|norm|ln|bn|conv)", re.IGNORECASE)
_COUNTED = re.compile(r"(.*?)_?\d+")
_NONE: frozenset[object] = frozenset()


@lru_cache(maxsize=1 << 16)
def containers(path: str) -> tuple[str, ...]:
    """Modules and numbered lists around a layer, the nearest first, the root ("") last.

    >>> containers("mixed.branch3x3_2a.conv")
    ('mixed.branch3x3_2a', 'mixed.branch3x3_2', 'mixed.branch3x3', 'mixed', '')
    """
    parts = path.split(".")
    containing: list[str] = []
    for place in range(len(parts) - 1, -1, -1):
        above = "".join(f"{part}." for part in parts[:place])
        containing += [above + stem for stem in _stems(parts[place])]
        containing.append(above[:-1])
    return tuple(dict.fromkeys(containing))


def _stems(part: str) -> list[str]:
    """The part without its letter (`2a`), without its number, without what a layer is: the like belong together."""
    if typed := _TYPED.fullmatch(part):
        return [typed[1]]
    lettered = _LETTERED.fullmatch(part)
    stems = [lettered[1]] if lettered else []
    counted = _COUNTED.fullmatch(lettered[1] if lettered else part)
    return stems + ([counted[1]] if counted and counted[1] else [])


@lru_cache(maxsize=1 << 16)
def path_ends(path: str) -> tuple[str, ...]:
    """The last part of a path, the last two, and the last three.

    >>> path_ends("layer.0.attn.q")
    ('q', 'attn.q', '0.attn.q')
    """
    parts = path.split(".")
    return tuple(".".join(parts[-length:]) for length in range(1, min(LONGEST_END, len(parts)) + 1))


@lru_cache(maxsize=1 << 16)
def unnumbered_ends(path: str) -> tuple[str, ...]:
    """The same ends, with what is a number left open."""
    return path_ends(".".join("#" if is_number(part) else part for part in path.split(".")))


@dataclass(frozen=True, slots=True)
class Contents:
    """For each layer of both sides, by its path, what the containers around it hold.

    `sized` are the paths of both sides with the length of its list behind each index (`block.0/12.layer.1/3.norm`).
    """

    source: dict[str, frozenset[object]] = field(default_factory=dict)
    target: dict[str, frozenset[object]] = field(default_factory=dict)
    sized: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))

    def alike(self, pair: Pair) -> float:
        """Number of containers around the one that hold the same shapes as containers around the other."""
        return float(len(self.source.get(pair[0].path, _NONE) & self.target.get(pair[1].path, _NONE)))


def read_contents(left: Iterable[Layer], right: Iterable[Layer]) -> Contents:
    """Return what the containers of both sides hold: the signatures of their layers, each with its number."""
    codes: dict[object, int] = {}
    left, right = list(left), list(right)
    sized = _sized(left), _sized(right)
    return Contents(_contents(left, codes), _contents(right, codes), sized)


def _sized(layers: list[Layer]) -> dict[str, str]:
    """Each path, and the same with the number of members behind each index in a list."""
    paths = [layer.path.split(".") for layer in layers]
    members: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for path in paths:
        for place, part in enumerate(path):
            members[tuple(path[:place])].update([part] if is_number(part) else [])
    return {
        ".".join(path): ".".join(
            f"{part}/{len(members[tuple(path[:place])])}" if is_number(part) else part
            for place, part in enumerate(path)
        )
        for path in paths
    }


def _contents(layers: list[Layer], codes: dict[object, int]) -> dict[str, frozenset[object]]:
    """As above; equal contents have one of the `codes`, for to compare all that a model holds takes long."""
    counters: dict[str, Counter[object]] = defaultdict(Counter)
    for layer in layers:
        for container in containers(layer.path):
            counters[container][layer.signature] += 1
    contents = {
        container: codes.setdefault(frozenset(counter.items()), len(codes)) for container, counter in counters.items()
    }
    return {layer.path: frozenset(contents[one] for one in containers(layer.path)) for layer in layers}


class BlockAgreement:
    """How many layers of both sides have each end of a path."""

    def __init__(self, left: Iterable[Layer], right: Iterable[Layer]) -> None:
        self._counts = tuple(Counter(end for layer in side for end in path_ends(layer.path)) for side in (left, right))

    def of_all_blocks(self, pairs: Sequence[Pair]) -> list[bool]:
        """Tell of each pair whether an end of its source went with one of its target in all layers that have either."""
        together = Counter((x, y) for a, b in pairs for x in path_ends(a.path) for y in path_ends(b.path))
        mine, theirs = self._counts
        whole = {
            (x, y) for (x, y), count in together.items() if count == mine[x] == theirs[y] and count >= AGREEING_BLOCKS
        }
        return [any((x, y) in whole for x in path_ends(a.path) for y in path_ends(b.path)) for a, b in pairs]


@dataclass
class SettledNeighbours:
    """Settled pairs by position, the settled children of each module in order, and how many pairs join two containers.

    Containers are modules and numbered lists.
    """

    partner: dict[int, int] = field(default_factory=dict)
    left: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    right: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    joined: Counter[tuple[str, str]] = field(default_factory=Counter)
    below_left: Counter[str] = field(default_factory=Counter)
    below_right: Counter[str] = field(default_factory=Counter)

    def add(self, a: Layer, b: Layer) -> None:
        """Take a settled pair in."""
        self.partner[a.position] = b.position
        if a.ran and b.ran:
            insort(self.left[modules_above(a.path)[0]], a.position)
            insort(self.right[modules_above(b.path)[0]], b.position)
        above_a, above_b = containers(a.path), containers(b.path)
        self.below_left.update(above_a)
        self.below_right.update(above_b)
        self.joined.update((x, y) for x in above_a for y in above_b)

    def neighbours(self, pair: Pair, judged: Sequence[Pair]) -> float:
        """1 if the nearest settled siblings before the pair, or those after it, are a pair; 0 if not, or unknown."""
        a, b = pair
        if not (a.ran and b.ran):
            return 0.0
        mine = _around(self.left.get(modules_above(a.path)[0], []), a.position, {x.position for x, _ in judged})
        theirs = _around(self.right.get(modules_above(b.path)[0], []), b.position, {y.position for _, y in judged})
        both = [(x, y) for x, y in zip(mine, theirs, strict=True) if x is not None and y is not None]
        return float(any(self.partner[x] == y for x, y in both))

    def company(self, pair: Pair, judged: Sequence[Pair], rivals: Sequence[Pair]) -> float:
        """Largest share, in [0, 1], of the settled layers in two containers around the pair that are in both; 0 if few.

        `rivals` are pairs whose other layers are rivals of its own. On a side with rivals only containers count that
        hold none of them, if each layer has such: a block that is not on the other side has no company. On a side
        without, the module counts that holds the layer.
        """
        partners = [(x.path, y.path) for x, y in judged if self.partner.get(x.position) == y.position]
        left, right = (frozenset(layer.path for layer in side) for side in zip(*rivals, strict=True))
        if not (apart := _apart(pair[0].path, left)) or not (around := _apart(pair[1].path, right)):
            return 0.0
        mine = _held(containers(pair[0].path), self.below_left, [x for x, _ in partners])
        theirs = _held(around, self.below_right, [y for _, y in partners])[: None if len(right) > 1 else 1]
        most = shared = 0.0
        for x, count in mine:
            for y, other_held in theirs:
                if both := self.joined[x, y]:
                    both -= sum(x in containers(one) and y in containers(two) for one, two in partners)
                    share = both / (count + other_held - both)
                    most, shared = (max(most, share), shared) if x in apart else (most, max(shared, share))
        return most if most > BENEFIT_OF_MAJORITY and most >= shared else 0.0

    def context(self, pair: Pair, judged: Sequence[Pair]) -> float:
        """1 if the nearest modules around both that hold settled layers hold some in common, -1 if none; 0: unknown."""
        a, b = pair
        partners = [(x, y) for x, y in judged if self.partner.get(x.position) == y.position]
        mine = _nearest(modules_above(a.path), self.below_left, [x.path for x, _ in partners])
        theirs = _nearest(modules_above(b.path), self.below_right, [y.path for _, y in partners])
        if not mine or not theirs:
            return 0.0
        shared = self.joined[mine, theirs]
        if shared > len(partners):  # more than could be left out
            return 1.0
        left_out = sum(mine in containers(x.path) and theirs in containers(y.path) for x, y in partners)
        return 1.0 if shared > left_out else -1.0


def _nearest(around: Iterable[str], below: Counter[str], left_out: Sequence[str]) -> str | None:
    """The first container that holds a settled layer beside those left out."""
    for path in around:
        held = below[path]
        if held > len(left_out) or (held and held > sum(path in containers(own) for own in left_out)):
            return path
    return None


@lru_cache  # of two pairs and their exchange each layer is asked for twice
def _apart(path: str, judged: frozenset[str]) -> tuple[str, ...]:
    """Containers that tell a layer from the others judged; none if one of these has none that tells it.

    Beside no others, these are the containers up to the module that holds the layer itself.
    """
    apart = containers(path)
    if len(judged) < 2:
        return apart[: apart.index(path.rpartition(".")[0]) + 1]
    for rival in judged:
        if rival != path:
            own = _without(path, rival)
            apart = tuple(one for one in apart if one in own) if _without(rival, path) else ()
    return apart


@lru_cache(maxsize=1 << 17)
def _without(path: str, rival: str) -> tuple[str, ...]:
    """Containers around a layer that do not hold its rival."""
    others = containers(rival)
    return tuple(one for one in containers(path) if one not in others)


def _held(around: Iterable[str], below: Counter[str], left_out: Sequence[str]) -> list[tuple[str, int]]:
    """Containers that hold settled layers beside those left out, with how many."""
    counts = [(one, below[one] - sum(one in containers(out) for out in left_out)) for one in around if below[one]]
    return [(one, count) for one, count in counts if count > 0]


def _around(settled: list[int], position: int, skipped: set[int]) -> tuple[int | None, int | None]:
    place = bisect_left(settled, position)
    return _first(settled, range(place - 1, -1, -1), skipped), _first(settled, range(place, len(settled)), skipped)


def _first(settled: list[int], places: range, skipped: set[int]) -> int | None:
    return next((settled[place] for place in places if settled[place] not in skipped), None)
