"""Repeated blocks of a model stand for each other, so that thousands of them are matched as fast as a few.

Children of a numbered list that hold the same layers under the same names, evenly numbered, are a run. Of a run the
first two and the last are matched; the others follow if all that were matched agree, child by child. Runs of both
sides are cut where any run of either side begins or ends, so that a longer list never seems as long as a shorter one.
What was found for a few is then said of all; what does not agree is unfolded and matched whole.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.read_layers import numbered
from align.names.thresholds import LONGEST_WHOLE_RUN
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence, Set

    from scipy.cluster.hierarchy import DisjointSet

    from align.names.read_layers import Layer, Pair

    _Held = dict[int, tuple[str, list[tuple[Layer, bool]]]]


_DIGITS = re.compile(r"\d+")
Coordinates = tuple[int, ...]
Folded = tuple["RepeatedBlocks", "RepeatedBlocks"]
_SIDES = {"source": 0, "target": 1}


@dataclass(frozen=True, slots=True)
class BlockPosition:
    """Where a layer stands in the runs around it, the outermost first.

    `family` is its path with the numbers of the runs left open, `lengths` are those of the runs, `lists` their lists
    with no numbers at all.
    """

    family: str
    coordinates: Coordinates
    lengths: Coordinates
    lists: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether the layer itself is matched, not only a sibling for it."""
        return all(map(_is_kept, self.coordinates, self.lengths))


@dataclass(frozen=True)
class RepeatedBlocks:
    """The runs of one side: the position of each layer by its path, and the layers that are free to be paired."""

    positions: dict[str, BlockPosition]
    free: Sequence[Layer]

    @cached_property
    def kept(self) -> list[Layer]:
        """The free layers to match."""
        return [layer for layer in self.free if self.positions[layer.path].kept]

    @cached_property
    def members(self) -> dict[str, dict[Coordinates, Layer]]:
        """The free layers of each family by coordinates."""
        by_family: dict[str, dict[Coordinates, Layer]] = defaultdict(dict)
        for layer in self.free:
            position = self.positions[layer.path]
            by_family[position.family][position.coordinates] = layer
        return by_family


class KnownPairs:
    """Pairs that are known already, and what their layers say of numbered lists, read once however often they teach."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self._sides = _KnownLayers([a for a, _ in pairs]), _KnownLayers([b for _, b in pairs])

    def runs(self, side: int, free: Sequence[Layer], more: Sequence[Layer], unfolded: Set[str]) -> _Lists:
        """The runs of each list of a side, with layers that are free and more that are known beside those here."""
        return self._sides[side].runs(free, more, unfolded)

    def teaching(self, passed: tuple[Set[str], Set[str]]) -> list[Pair]:
        """The pairs that lie in none of the children that others stand for, which are `passed` on each side."""
        kept = [side.kept(own) for side, own in zip(self._sides, passed, strict=True)]
        return [pair for pair, one, other in zip(self.pairs, *kept, strict=True) if one and other]


def find_repeated_blocks(
    sides: tuple[Sequence[Layer], Sequence[Layer]],
    known: KnownPairs,
    more: Sequence[Pair],
    whole: tuple[Set[str], Set[str]],
) -> tuple[Folded, list[Pair]]:
    """Return the runs of both sides, and the pairs in them that teach.

    `known` pairs, and `more`, are no longer free, lists named in `whole` are not folded.
    """
    joined = [a for a, _ in more], [b for _, b in more]
    lists = [known.runs(side, sides[side], joined[side], whole[side]) for side in (0, 1)]
    runs = [[run for one in side_runs for run in one] for side_runs in lists]
    cutting = _cutting(lists)
    ranks = {end for run in cutting for end in (run[0].rank, run[-1].rank + 1)}
    numbers = {(_step(run), end) for run in cutting for end in (run[0].number, run[-1].number + _step(run))}
    blocks = []
    passed = []
    for free, side_runs in zip(sides, runs, strict=True):
        places = {
            child.path: (piece, at) for piece in _pieces(side_runs, ranks, numbers) for at, child in enumerate(piece)
        }
        blocks.append(RepeatedBlocks(_positions([layer.path for layer in free], places), free))
        passed.append({path for path, (piece, at) in places.items() if not _is_kept(at, len(piece))})
    late = [pair for pair in more if all(map(_stands_outside, pair, passed))]
    return (blocks[0], blocks[1]), [*known.teaching((passed[0], passed[1])), *late]


def _is_kept(at: int, length: int) -> bool:
    """Whether a child of a run is matched itself, not only a sibling for it."""
    return at < 2 or at == length - 1


def _stands_outside(layer: Layer, passed: Set[str]) -> bool:
    return passed.isdisjoint(path for _, _, path in numbered(layer.path))


@dataclass(frozen=True, slots=True)
class _Child:
    """A child of a numbered list: `rank` counts the children before it; `content` is what its likes have too."""

    path: str
    number: int
    rank: int
    position: int
    content: frozenset[object]


_Lists = list[list[list[_Child]]]  # the runs of each list


class _KnownLayers:
    """The known layers of one side: what the children of each numbered list hold, and their runs."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        places = [numbered(layer.path) for layer in layers]
        self._groups = list(dict.fromkeys(places))
        index = {place: group for group, place in enumerate(self._groups)}
        self._group_of = [index[place] for place in places]
        self._lists = _held([(layer, False) for layer in layers], ())
        self._children: dict[str, dict[int, _Child]] = {}
        self._runs: dict[str, list[list[_Child]]] = {}

    def kept(self, passed: Set[str]) -> list[bool]:
        """For each layer, whether it lies in none of the children that are passed over."""
        kept = [passed.isdisjoint([path for _, _, path in places]) for places in self._groups]
        return [kept[group] for group in self._group_of]

    def runs(self, free: Sequence[Layer], more: Sequence[Layer], unfolded: Set[str]) -> _Lists:
        """The runs of each list that is long enough; lists that the new layers do not touch are read once."""
        before, behind = (
            _held([(layer, True) for layer in free], unfolded),
            _held([(one, False) for one in more], unfolded),
        )
        lists = []
        for container in dict.fromkeys((*before, *self._lists, *behind)):
            own, known = (before.get(container, {}), behind.get(container, {})), self._lists.get(container, {})
            if without_numbers(container) in unfolded or len({*own[0], *known, *own[1]}) <= LONGEST_WHOLE_RUN:
                continue
            lists.append(self._with(container, *own) if any(own) else self._alone(container))
        return lists

    def _alone(self, container: str) -> list[list[_Child]]:
        if container not in self._runs:
            self._runs[container] = list(_runs(list(self._known_children(container).values())))
        return self._runs[container]

    def _known_children(self, container: str) -> dict[int, _Child]:
        if container not in self._children:
            own = self._lists.get(container, {})
            self._children[container] = {
                number: _child(number, rank, *own[number]) for rank, number in enumerate(sorted(own))
            }
        return self._children[container]

    def _with(self, container: str, before: _Held, behind: _Held) -> list[list[_Child]]:
        known, children = self._lists.get(container, {}), self._known_children(container)
        merged = []
        for rank, number in enumerate(sorted({*before, *known, *behind})):
            if number in before or number in behind:
                parts = [own[number] for own in (before, known, behind) if number in own]
                merged.append(_child(number, rank, parts[0][0], [layer for _, held in parts for layer in held]))
            else:
                child = children[number]
                merged.append(child if child.rank == rank else replace(child, rank=rank))
        return list(_runs(merged))


def _held(layers: Iterable[tuple[Layer, bool]], unfolded: Collection[str]) -> dict[str, _Held]:
    """What each child of each numbered list holds, by its number, with the path of the child."""
    by_places: dict[tuple[tuple[str, str, str], ...], list[tuple[Layer, bool]]] = defaultdict(list)
    for layer, free in layers:
        by_places[numbered(layer.path)].append((layer, free))
    lists: dict[str, _Held] = defaultdict(dict)
    for places, held in by_places.items():
        for container, number, path in places:
            if without_numbers(container) not in unfolded:
                lists[container].setdefault(int(number), (path, []))[1].extend(held)
    return dict(lists)


def _child(number: int, rank: int, path: str, layers: Sequence[tuple[Layer, bool]]) -> _Child:
    start = min(layer.position for layer, _ in layers)
    content = frozenset(
        (layer.path[len(path) :], layer.position - start, layer.kind, layer.signature, layer.aside, free)
        for layer, free in layers
    )
    return _Child(path, number, rank, start, content)


def _runs(children: list[_Child]) -> Iterator[list[_Child]]:
    """Yield the children of a list in runs: alike, evenly numbered, and registered in the order of their numbers."""
    run = children[:1]
    for last, child in pairwise(children):
        even = len(run) < 2 or child.number - last.number == run[1].number - run[0].number
        if even and child.content == last.content and child.position > last.position:
            run.append(child)
        else:
            yield run
            run = [child]
    yield run


def _pieces(runs: Iterable[list[_Child]], ranks: Set[int], numbers: Set[tuple[int, int]]) -> Iterator[list[_Child]]:
    """Yield the runs cut where any run begins or ends, by rank, or by number if as wide apart; none that is short."""
    for run in runs:
        step = _step(run)
        starts = [at for at, one in enumerate(run) if not at or one.rank in ranks or (step, one.number) in numbers]
        for start, end in pairwise([*starts, len(run)]):
            if end - start > LONGEST_WHOLE_RUN:
                yield run[start:end]


def _cutting(lists: Sequence[Sequence[list[list[_Child]]]]) -> list[list[_Child]]:
    """The runs of both sides at whose ends other runs are cut: not short ones of a list whose like both sides have.

    Layers of another width each, in both models, say nothing about where the list of experts within them may be cut.
    """
    patterns = [[tuple(map(len, runs)) for runs in side_lists] for side_lists in lists]
    shared = set.intersection(*map(set, patterns))
    cutting = []
    for side_lists, lengths in zip(lists, patterns, strict=True):
        for runs, pattern in zip(side_lists, lengths, strict=True):
            is_shared = pattern in shared
            cutting += [run for run in runs if len(run) > LONGEST_WHOLE_RUN or not is_shared]
    return cutting


def _step(run: Sequence[_Child]) -> int:
    return run[1].number - run[0].number if len(run) > 1 else 1


def _positions(paths: Iterable[str], places: dict[str, tuple[list[_Child], int]]) -> dict[str, BlockPosition]:
    """The position of each path: that of the module around it, and its own where it is a child of a run."""
    known = {"": BlockPosition("", (), (), ())}

    def position(path: str) -> BlockPosition:
        if (found := known.get(path)) is not None:
            return found
        module, dot, name = path.rpartition(".")
        around = position(module)
        coordinates, lengths, lists = around.coordinates, around.lengths, around.lists
        if path in places:
            run, at = places[path]
            container = numbered(path)[-1][0]
            name = f"{container.rpartition('.')[2]}{{{run[0].number}…{run[-1].number}}}"
            coordinates, lengths, lists = (*coordinates, at), (*lengths, len(run)), (*lists, without_numbers(container))
        known[path] = BlockPosition(f"{around.family}{dot}{name}", coordinates, lengths, lists)
        return known[path]

    return {path: position(path) for path in paths}


@lru_cache(maxsize=1 << 17)
def without_numbers(path: str) -> str:
    """A path with its numbers left open."""
    return _DIGITS.sub("#", path)


def unlike_lists(folded: Folded, pairs: Iterable[Pair], groups: Iterable[OpenGroup]) -> tuple[set[str], set[str]]:
    """Lists of each side whose matched members do not agree, so that no other member can follow them."""
    unlike = _folded_alone(folded, groups)
    partners: list[dict[str, list[BlockPosition]]] = [defaultdict(list), defaultdict(list)]
    for a, b in pairs:
        positions = folded[0].positions[a.path], folded[1].positions[b.path]
        if positions[0].lengths != positions[1].lengths or positions[0].coordinates != positions[1].coordinates:
            for lists, position in zip(unlike, positions, strict=True):
                lists.update(position.lists)
        for own, position, other in zip(partners, positions, reversed(positions), strict=True):
            own[position.family].append(other)
    for side, lists, own in zip(folded, unlike, partners, strict=True):
        for family, others in own.items():
            members = [side.positions[layer.path] for layer in side.members[family].values()]
            if len({other.family for other in others}) > 1 or len(others) != sum(position.kept for position in members):
                lists.update(members[0].lists)
    return unlike


def _folded_alone(folded: Folded, groups: Iterable[OpenGroup]) -> tuple[set[str], set[str]]:
    """Lists of open groups that are folded on one side alone: there the other has its numbers within words."""
    names: tuple[set[str], set[str]] = (set(), set())
    for group in groups:
        positions: tuple[list[BlockPosition], list[BlockPosition]] = ([], [])
        for side, layer in group.members:
            positions[_SIDES[side]].append(_position_of(folded, side, layer))
        if all(positions) and len({frozenset(len(position.lengths) for position in own) for own in positions}) > 1:
            for lists, own in zip(names, positions, strict=True):
                lists.update(name for position in own for name in position.lists)
    return names


def unfold_pairs(folded: Folded, pairs: Sequence[tuple[Pair, float]]) -> list[tuple[Pair, float]]:
    """The pairs with all that follow them, these as sure as the least sure of their family."""
    unfolded = []
    families: dict[tuple[str, str], float] = {}
    for (a, b), sure in pairs:
        positions = folded[0].positions[a.path], folded[1].positions[b.path]
        if not positions[0].lengths:
            unfolded.append(((a, b), sure))
            continue
        both = positions[0].family, positions[1].family
        families[both] = min(sure, families.get(both, 1.0))
    for (mine, theirs), sure in families.items():
        others = folded[1].members[theirs]
        unfolded += [((a, others[at]), sure) for at, a in folded[0].members[mine].items()]
    return unfolded


def unfold_groups(folded: Folded, groups: Sequence[OpenGroup]) -> list[OpenGroup]:
    """The groups with all members of their families: one group a block, where no group reaches beyond its block."""
    if not groups:
        return []
    joined = _disjoint_set()
    of_family: dict[tuple[str, str], list[OpenGroup]] = defaultdict(list)
    for group in groups:
        keys = [(side, _position_of(folded, side, layer).family) for side, layer in group.members]
        for key in keys:
            joined.add(key)
            joined.merge(keys[0], key)
        of_family[keys[0]].append(group)
    found: list[OpenGroup] = []
    for families in joined.subsets():
        found += _of_families(folded, sorted(families), [group for key in sorted(families) for group in of_family[key]])
    return in_order(found)


def _disjoint_set() -> DisjointSet[tuple[str, str]]:
    from scipy.cluster.hierarchy import (
        DisjointSet,
    )  # to import it takes a fifth of a second, and most maps have no group

    return DisjointSet()


def _of_families(
    folded: Folded, families: Sequence[tuple[str, str]], groups: Sequence[OpenGroup]
) -> Iterable[OpenGroup]:
    if not any(_position_of(folded, *member).lengths for group in groups for member in group.members):
        return groups
    apart = _separating_axes(folded, groups)
    blocks: dict[Coordinates, list[tuple[str, Layer]]] = defaultdict(list)
    for side, family in families:
        for at, layer in folded[_SIDES[side]].members[family].items():
            blocks[tuple(at[axis] for axis in apart)].append((side, layer))
    return [OpenGroup(tuple(members), groups[0].reason) for members in blocks.values()]


def _separating_axes(folded: Folded, groups: Sequence[OpenGroup]) -> list[int]:
    """Runs, counted from the outermost, of which no group holds more than one child."""
    positions = [[_position_of(folded, *member) for member in group.members] for group in groups]
    lengths = {position.lengths for group in positions for position in group}
    if len(lengths) > 1:
        return []
    return [
        axis
        for axis in range(len(next(iter(lengths))))
        if all(len({position.coordinates[axis] for position in group}) == 1 for group in positions)
    ]


def _position_of(folded: Folded, side: str, layer: Layer) -> BlockPosition:
    return folded[_SIDES[side]].positions[layer.path]


# Layers that belong together and stay open: nothing tells which is which, and the user settles them together.

# An unpaired layer: (source, None) or (None, target).
Rival = tuple["Layer | None", "Layer | None"]
# Two pairs that may exchange partners, or a pair and an unpaired layer that may take a place in it.
Link = tuple["Pair", "Pair | Rival"]
Member = tuple[str, "Layer"]  # the name of its side, and a layer
_REASON = sentence("open_reason.alike")


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Layers of both sides that belong together, in their order, and nothing tells which is which."""

    members: tuple[Member, ...]
    reason: str = _REASON


def group_links(links: Sequence[Link]) -> list[OpenGroup]:
    """Groups of linked layers; a link says that two pairs may exchange partners."""
    if not links:
        return []
    members: dict[tuple[str, str], Layer] = {}
    groups = _disjoint_set()
    for link in links:
        keys = []
        for source, target in link:
            for side, layer in (("source", source), ("target", target)):
                if layer is not None:
                    keys.append((side, layer.path))
                    members[side, layer.path] = layer
                    groups.add((side, layer.path))
        for key in keys[1:]:
            groups.merge(keys[0], key)
    return in_order([OpenGroup(tuple((key[0], members[key]) for key in group)) for group in groups.subsets()])


def in_order(groups: Iterable[OpenGroup]) -> list[OpenGroup]:
    """The groups, and the members of each, as they stand on their sides."""
    placed = [OpenGroup(tuple(sorted(group.members, key=_place)), group.reason) for group in groups]
    return sorted(placed, key=lambda group: _place(group.members[0]))


def as_ambiguities(group: OpenGroup) -> list[Ambiguity]:
    """One ambiguity for each role of a group."""
    return [
        Ambiguity(
            tuple(layer.roles[role].name for side, layer in group.members if side == "source" and role in layer.roles),
            tuple(layer.roles[role].name for side, layer in group.members if side == "target" and role in layer.roles),
            group.reason,
        )
        for role in _roles_of(layer for _, layer in group.members)
    ]


def _place(member: Member) -> int:
    return member[1].position


def _roles_of(layers: Iterable[Layer]) -> list[str]:
    """Every role of some layers that their counterparts must have, in order."""
    return list(dict.fromkeys(role for layer in layers for role, _ in layer.signature))
