"""What stands around a layer: its modules and numbered lists, what they hold, and which settled layers are beside it.

Of containers that are renamed or nested otherwise, what they hold says which is which: ports rarely split a branch.
Pairs in question are left out of account, so that no guess confirms another, and so that two layers of which one is
missing on the other side have the same neighbours: what stands between the same neighbours stays undecided.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from align.names.layers.path_words import is_number, modules_above
from align.names.thresholds import AGREEING_BLOCKS, BENEFIT_OF_MAJORITY, LONGEST_END

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair

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
    found: list[str] = []
    for place in range(len(parts) - 1, -1, -1):
        above = "".join(f"{part}." for part in parts[:place])
        found += [above + stem for stem in _stems(parts[place])]
        found.append(above[:-1])
    return tuple(dict.fromkeys(found))


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
    held: dict[str, Counter[object]] = defaultdict(Counter)
    for layer in layers:
        for container in containers(layer.path):
            held[container][layer.signature] += 1
    contents = {
        container: codes.setdefault(frozenset(counter.items()), len(codes)) for container, counter in held.items()
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
        own = [(x.path, y.path) for x, y in judged if self.partner.get(x.position) == y.position]
        left, right = (frozenset(layer.path for layer in side) for side in zip(*rivals, strict=True))
        if not (apart := _apart(pair[0].path, left)) or not (around := _apart(pair[1].path, right)):
            return 0.0
        mine = _held(containers(pair[0].path), self.below_left, [x for x, _ in own])
        theirs = _held(around, self.below_right, [y for _, y in own])[: None if len(right) > 1 else 1]
        most = shared = 0.0
        for x, held in mine:
            for y, other_held in theirs:
                if both := self.joined[x, y]:
                    both -= sum(x in containers(one) and y in containers(two) for one, two in own)
                    share = both / (held + other_held - both)
                    most, shared = (max(most, share), shared) if x in apart else (most, max(shared, share))
        return most if most > BENEFIT_OF_MAJORITY and most >= shared else 0.0

    def context(self, pair: Pair, judged: Sequence[Pair]) -> float:
        """1 if the nearest modules around both that hold settled layers hold some in common, -1 if none; 0: unknown."""
        a, b = pair
        own = [(x, y) for x, y in judged if self.partner.get(x.position) == y.position]
        mine = _nearest(modules_above(a.path), self.below_left, [x.path for x, _ in own])
        theirs = _nearest(modules_above(b.path), self.below_right, [y.path for _, y in own])
        if not mine or not theirs:
            return 0.0
        shared = self.joined[mine, theirs]
        if shared > len(own):  # more than could be left out
            return 1.0
        left_out = sum(mine in containers(x.path) and theirs in containers(y.path) for x, y in own)
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
    found = containers(path)
    if len(judged) < 2:
        return found[: found.index(path.rpartition(".")[0]) + 1]
    for rival in judged:
        if rival != path:
            own = _without(path, rival)
            found = tuple(one for one in found if one in own) if _without(rival, path) else ()
    return found


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
