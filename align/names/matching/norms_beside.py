"""Norms that no word tells apart, known by what stands between them: an attention before each, or behind.

Only where a module has the same norms on both sides, and all of them stand among the settled layers of the module as
their counterparts do. Where one side registers a norm before the attention and the other behind, each norm would have
a wrong neighbour, and nothing is said.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from align.names.layers.path_words import tokens
from align.names.thresholds import CONFIDENCE_BESIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.names.layers.read_layers import Layer, Pair
    from align.names.matching.open_groups import OpenGroup

_NORMS = frozenset({"layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"})
_NAMES = ("source", "target")
# What the norms of a block are called after, in the order in which blocks have it; norms have words of one row or none.
_ATTENDING, _FEEDING = ("attention", "att", "self", "attends"), ("mlp", "feedforward", "ff", "moe", "feed")
_WORDS = {**dict.fromkeys(_ATTENDING, 1), **dict.fromkeys(_FEEDING, 2), "1": 1, "2": 2}


def settle_norms_beside(
    groups: Sequence[OpenGroup], settled: Sequence[Pair]
) -> tuple[list[tuple[Pair, float]], list[OpenGroup]]:
    """Return pairs of norms with their confidence, and the groups that stay open; `settled` pairs are their anchors."""
    if not any(map(_of_norms, groups)):
        return [], list(groups)
    anchors = _Anchors(settled, 0), _Anchors(settled, 1)
    pairs: list[tuple[Pair, float]] = []
    rest = []
    for group in groups:
        sides = [[layer for side, layer in group.members if side == name] for name in _NAMES]
        if _of_norms(group) and _stand_alike(sides, anchors):
            pairs += [(pair, CONFIDENCE_BESIDE) for pair in zip(*sides, strict=True)]
        else:
            rest.append(group)
    return pairs, rest


def norms_by_words(left: Sequence[Layer], right: Sequence[Layer]) -> list[Pair]:
    """Pair the two norms of a block of an attention and layers behind it, if both sides say which is which.

    By what they are called after (`attn_norm`, `ffn_norm`), or by number.
    """
    sides = [[layer for layer in side if _is_norm(layer)] for side in (left, right)]
    if [len(own) for own in sides] != [2, 2] or len({layer.signature for own in sides for layer in own}) > 1:
        return []
    if len({_module(layer) for layer in sides[0]}) > 1 or len({_module(layer) for layer in sides[1]}) > 1:
        return []
    mine, theirs = map(_first_and_second, sides)
    return list(zip(mine, theirs, strict=True)) if mine and theirs else []


def _first_and_second(norms: Sequence[Layer]) -> list[Layer]:
    names = [tokens(layer.path.rpartition(".")[2]) for layer in norms]
    if any(name[-1:] == ("2",) for name in names) and sorted(map(len, names)) == [1, 2]:
        names = [name if len(name) > 1 else (*name, "1") for name in names]  # `norm` and `norm2`
    signs = [{_WORDS[word] for word in name if word in _WORDS} for name in names]
    if sorted(map(sorted, signs)) != [[1], [2]]:
        return []
    return [layer for _, layer in sorted(zip(map(min, signs), norms, strict=True), key=lambda one: one[0])]


def _is_norm(layer: Layer) -> bool:
    return layer.kind in _NORMS or (not layer.kind and _has_vectors(layer))


def _of_norms(group: OpenGroup) -> bool:
    """Tell whether a group is of norms; one whose class no rule knows has vectors alone."""
    layers = [layer for _, layer in group.members]
    return all(map(_is_norm, layers))


def _has_vectors(layer: Layer) -> bool:
    return "weight" in layer.shapes and all(len(shape) == 1 for _, shape in layer.signature)


def _stand_alike(sides: Sequence[Sequence[Layer]], anchors: tuple[_Anchors, _Anchors]) -> bool:
    """Tell whether both sides have as many, each in one module, with the same settled pairs around each."""
    modules = [{_module(layer) for layer in side} for side in sides]
    if len(sides[0]) != len(sides[1]) or any(len(own) != 1 for own in modules):
        return False
    mine, theirs = ([beside.around(layer) for layer in side] for side, beside in zip(sides, anchors, strict=True))
    return mine == theirs and len(set(mine)) == len(mine)


def _module(layer: Layer) -> str:
    return layer.path.rpartition(".")[0]


class _Anchors:
    """The settled layers of one side, by position."""

    def __init__(self, settled: Sequence[Pair], side: int) -> None:
        placed = sorted((pair[side].position, number) for number, pair in enumerate(settled))
        self._paths = [settled[number][side].path for _, number in placed]
        self._numbers = [number for _, number in placed]
        self._positions = [position for position, _ in placed]

    def around(self, layer: Layer) -> tuple[int | None, int | None]:
        """The numbers of the settled pairs right before and behind a layer in its module; None at its ends."""
        place = bisect_left(self._positions, layer.position)
        return self._within(place - 1, layer), self._within(place, layer)

    def _within(self, place: int, layer: Layer) -> int | None:
        module = _module(layer)
        inside = 0 <= place < len(self._paths) and (not module or self._paths[place].startswith(f"{module}."))
        return self._numbers[place] if inside else None
