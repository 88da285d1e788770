"""What was found for a few of a run of repeated blocks, said of all of them.

A pair of families follows only if each matched member of the one is paired with the member of the other that has the
same number; what contradicts that is to be matched whole.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from scipy.cluster.hierarchy import DisjointSet

from align.names.matching.open_groups import OpenGroup, in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair
    from align.names.layers.repeated_blocks import BlockPosition, Coordinates, RepeatedBlocks

Folded = tuple["RepeatedBlocks", "RepeatedBlocks"]
_SIDES = {"source": 0, "target": 1}


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
    found: tuple[set[str], set[str]] = (set(), set())
    for group in groups:
        positions: tuple[list[BlockPosition], list[BlockPosition]] = ([], [])
        for side, layer in group.members:
            positions[_SIDES[side]].append(_position(folded, side, layer))
        if all(positions) and len({frozenset(len(position.lengths) for position in own) for own in positions}) > 1:
            for lists, own in zip(found, positions, strict=True):
                lists.update(name for position in own for name in position.lists)
    return found


def unfold_pairs(folded: Folded, pairs: Sequence[tuple[Pair, float]]) -> list[tuple[Pair, float]]:
    """The pairs with all that follow them, these as sure as the least sure of their family."""
    found = []
    families: dict[tuple[str, str], float] = {}
    for (a, b), sure in pairs:
        positions = folded[0].positions[a.path], folded[1].positions[b.path]
        if not positions[0].lengths:
            found.append(((a, b), sure))
            continue
        both = positions[0].family, positions[1].family
        families[both] = min(sure, families.get(both, 1.0))
    for (mine, theirs), sure in families.items():
        others = folded[1].members[theirs]
        found += [((a, others[at]), sure) for at, a in folded[0].members[mine].items()]
    return found


def unfold_groups(folded: Folded, groups: Sequence[OpenGroup]) -> list[OpenGroup]:
    """The groups with all members of their families: one group a block, where no group reaches beyond its block."""
    joined: DisjointSet[tuple[str, str]] = DisjointSet()
    of_family: dict[tuple[str, str], list[OpenGroup]] = defaultdict(list)
    for group in groups:
        keys = [(side, _position(folded, side, layer).family) for side, layer in group.members]
        for key in keys:
            joined.add(key)
            joined.merge(keys[0], key)
        of_family[keys[0]].append(group)
    found: list[OpenGroup] = []
    for families in joined.subsets():
        found += _of_families(folded, sorted(families), [group for key in sorted(families) for group in of_family[key]])
    return in_order(found)


def _of_families(
    folded: Folded, families: Sequence[tuple[str, str]], groups: Sequence[OpenGroup]
) -> Iterable[OpenGroup]:
    if not any(_position(folded, *member).lengths for group in groups for member in group.members):
        return groups
    apart = _separating_axes(folded, groups)
    blocks: dict[Coordinates, list[tuple[str, Layer]]] = defaultdict(list)
    for side, family in families:
        for at, layer in folded[_SIDES[side]].members[family].items():
            blocks[tuple(at[axis] for axis in apart)].append((side, layer))
    return [OpenGroup(tuple(members), groups[0].reason) for members in blocks.values()]


def _separating_axes(folded: Folded, groups: Sequence[OpenGroup]) -> list[int]:
    """Runs, counted from the outermost, of which no group holds more than one child."""
    positions = [[_position(folded, *member) for member in group.members] for group in groups]
    lengths = {position.lengths for group in positions for position in group}
    if len(lengths) > 1:
        return []
    return [
        axis
        for axis in range(len(next(iter(lengths))))
        if all(len({position.coordinates[axis] for position in group}) == 1 for group in positions)
    ]


def _position(folded: Folded, side: str, layer: Layer) -> BlockPosition:
    return folded[_SIDES[side]].positions[layer.path]
