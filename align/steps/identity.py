"""Layers that have the same path on both sides, where that path means the same.

An index in a list means the same only if both lists are numbered alike: a Sequential that counts its activations says
3 where another says 1. So a numbered list is believed if one side's indices are all found on the other side, no index
holds layers of different kinds, and no layer that is left over stands on the other side of it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING

from align.steps.exchange import crosses, may_pair
from align.steps.paths import numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.steps.evidence import Pair
    from align.steps.layers import Layer


def same_paths(left: Sequence[Layer], right: Sequence[Layer]) -> list[Pair]:
    """Pairs of equal path, class and shapes whose indices, if the path has any, mean the same on both sides."""
    others = {layer.path: layer for layer in right}
    common = [(layer, others[layer.path]) for layer in left if layer.path in others]
    if not common:
        return []
    doubtful = _unlike_lists(left, right) | _clashing_lists(left, right, common) | _crossed_lists(left, right, common)
    return [(a, b) for a, b in common if may_pair(a, b) and doubtful.isdisjoint(_lists_above(a.path))]


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
    free = [(x, y) for x, y in product(mine, theirs) if may_pair(x, y)]
    crossed = [a.path for a, b in common for x, y in free if may_pair(x, b) and crosses((a, b), (x, y))]
    return {container for path in crossed for container in _lists_above(path)}


def _lists(layers: Sequence[Layer]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for layer in layers:
        for container, index, _ in numbered(layer.path):
            found[container].add(index)
    return found


def _lists_above(path: str) -> list[str]:
    return [container for container, _, _ in numbered(path)]
