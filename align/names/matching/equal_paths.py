"""Layers that have one path on both sides, where the numbers on it mean the same on both.

An index in a list means the same only if both lists are numbered alike: a Sequential that counts its activations says 3
where another says 1. So a numbered list is believed if one side's indices are all found on the other side, no index
holds layers of different kinds, no layer that is left over stands on the other side of it, and no index holds other
shapes where a child is missing or stands elsewhere in the list.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.names.layers.path_words import numbered
from align.names.layers.read_layers import crosses, may_pair, of_one_kind

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from align.names.layers.read_layers import Layer, Pair


@dataclass(frozen=True, slots=True)
class EqualPaths:
    """Layers that have one path on both sides: `pairs` are the same layer, what is at an `unlike` path has changed.

    A layer whose width was changed, or that keeps its matrix the other way round, is no other layer for it.
    """

    pairs: list[Pair]
    unlike: Set[str]


def find_equal_paths(left: Sequence[Layer], right: Sequence[Layer]) -> EqualPaths:
    """Return the layers of equal path whose indices, if the path has any, mean the same on both sides."""
    others = {layer.path: layer for layer in right}
    common = [(layer, others[layer.path]) for layer in left if layer.path in others]
    if not common:
        return EqualPaths([], set())
    changed = {a.path for a, b in common if a.signature != b.signature and of_one_kind(a, b)}
    moved = _moved_lists(left, right, changed)
    doubtful = _unlike_lists(left, right) | _clashing_lists(left, right, common) | _crossed_lists(left, right, common)
    doubtful |= moved | _shortened_lists(left, right, changed)
    pairs = [(a, b) for a, b in common if may_pair(a, b) and doubtful.isdisjoint(_lists_above(a.path))]
    return EqualPaths(pairs, {path for path in changed if moved.isdisjoint(_lists_above(path))})


def _moved_lists(left: Sequence[Layer], right: Sequence[Layer], changed: Set[str]) -> set[str]:
    """Lists with changed layers of which the children of one side are all on the other, at whatever numbers."""
    above = {container for path in changed for container in _lists_above(path)}
    mine, theirs = (_children(side) for side in (left, right)) if above else ({}, {})
    return {one for one in above if mine[one] <= theirs[one] or theirs[one] <= mine[one]}


def _children(layers: Sequence[Layer]) -> dict[str, Counter[frozenset[object]]]:
    """What the children of each numbered list hold, and how many hold that."""
    held: dict[tuple[str, str], set[object]] = defaultdict(set)
    for layer in layers:
        for container, _, child in numbered(layer.path):
            held[container, child].add((layer.path[len(child) :], layer.signature))
    children: dict[str, Counter[frozenset[object]]] = defaultdict(Counter)
    for (container, _), content in held.items():
        children[container][frozenset(content)] += 1
    return children


def _shortened_lists(left: Sequence[Layer], right: Sequence[Layer], changed: Set[str]) -> set[str]:
    """Lists with changed layers that have fewer children on one side: numbers do not say which are missing."""
    mine, theirs = (_lists(side) for side in (left, right)) if changed else ({}, {})
    return {one for path in changed for one in _lists_above(path) if mine[one] != theirs[one]}


def _unlike_lists(left: Sequence[Layer], right: Sequence[Layer]) -> set[str]:
    mine, theirs = _lists(left), _lists(right)
    return {
        container
        for container in mine.keys() & theirs.keys()
        if not (mine[container] <= theirs[container] or theirs[container] <= mine[container])
    }


def _clashing_lists(left: Sequence[Layer], right: Sequence[Layer], common: Sequence[Pair]) -> set[str]:
    """Lists in which one path holds layers of two kinds, or a layer on one side and a module of layers on the other."""
    clashes = [a.path for a, b in common if a.kind != b.kind and a.kind and b.kind]
    for mine, theirs in ((left, right), (right, left)):
        modules = {path.rpartition(".")[0] for path in (layer.path for layer in theirs)}
        clashes += [layer.path for layer in mine if layer.path in modules]
    return {container for path in clashes for container in _lists_above(path)}


def _crossed_lists(left: Sequence[Layer], right: Sequence[Layer], common: Sequence[Pair]) -> set[str]:
    """Lists that stand before a free layer on one side and behind the free layer that it may be on the other.

    `in, conv1, conv2` against `conv1, conv2, conv3`: the numbers may have been shifted by one.
    """
    named = {a.path for a, _ in common}
    mine, theirs = ([layer for layer in side if layer.path not in named] for side in (left, right))
    free: dict[object, list[Pair]] = defaultdict(list)
    others: dict[object, list[Layer]] = defaultdict(list)
    for layer in _ends(theirs):
        others[layer.signature].append(layer)
    for x in _ends(mine):
        free[x.signature] += [(x, y) for y in others.get(x.signature, ()) if may_pair(x, y)]
    rivals = ((a, b, free.get(b.signature, ())) for a, b in common)
    crossed = [a.path for a, b, own in rivals if any(may_pair(x, b) and crosses((a, b), (x, y)) for x, y in own)]
    return {container for path in crossed for container in _lists_above(path)}


def _ends(layers: Sequence[Layer]) -> list[Layer]:
    """The first and the last of all layers that may pair the same: what crosses one between crosses one of these."""
    likes: dict[object, list[Layer]] = defaultdict(list)
    for layer in sorted(layers, key=lambda layer: layer.position):
        likes[layer.signature, layer.kind, layer.aside].append(layer)
    return [end for own in likes.values() for end in own[:: max(len(own) - 1, 1)]]


def _lists(layers: Sequence[Layer]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for layer in layers:
        for container, index, _ in numbered(layer.path):
            found[container].add(index)
    return found


def _lists_above(path: str) -> list[str]:
    return [container for container, _, _ in numbered(path)]
