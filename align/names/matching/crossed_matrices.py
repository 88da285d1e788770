"""Matrices of unknown layout that fit as they stand and crosswise transposed: (16, 8) and (8, 16) against both.

A checkpoint has no classes that would tell the layout of a matrix, and a class of one's own is known to no rule.
So the shapes of two such layers side by side pair nothing: what their names say decides, and how other matrices of the
class stand. A pair that is turned so is never sure. Where neither says anything, or they contradict, it is open.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.fold_names import NUMBER
from align.names.layers.exchange_evidence import SETTLED, exchange_benefit, learn_from_pairs
from align.names.layers.path_words import number_order, numbered
from align.names.matching.open_groups import group_links
from align.names.matching.other_forms import TURNED, transposed_layer
from align.names.matching.square_matrices import ClassOrientations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from align.core.parameters import ParameterSet
    from align.names.layers.read_layers import Layer, Pair
    from align.names.matching.open_groups import OpenGroup

Sure = tuple["Pair", float]
BY_NAME = "by its name, against its shape: as it stands, the layer beside it has this shape"
_REASON = "each of these fits as it stands or transposed, and classes and names do not settle which is which"


@dataclass(frozen=True, slots=True)
class CrossedMatrices:
    """The pairs, some of them exchanged; a note on each weight that was, what is open, and the paths of its sources."""

    pairs: list[Sure]
    notes: dict[str, str] = field(default_factory=dict)
    ambiguous: list[Ambiguity] = field(default_factory=list)
    open_paths: set[str] = field(default_factory=set)


def settle_crossed_matrices(
    pairs: Sequence[Sure], sides: tuple[ParameterSet, ParameterSet], spoken: Set[str]
) -> CrossedMatrices:
    """Return the pairs, those exchanged for which only their shapes speak; nothing that the user has `spoken` of."""
    rivals = _rivals([pair for pair, _ in pairs if pair[0].roles.get("weight") and _weight(pair[0]) not in spoken])
    if not rivals:
        return CrossedMatrices(list(pairs))
    in_doubt = {pair[0].path for both in rivals for pair in both}
    speaks = _witness([one for one in pairs if one[0][0].path not in in_doubt], sides)
    told = [(both, speaks(*both)) for both in rivals]
    found = CrossedMatrices([])
    exchanged: dict[str, Layer] = {}
    better = _better([both for both, benefit in told if benefit < 0])
    for group in group_links([both for both, benefit in told if benefit <= 0]):
        paths = {layer.path for side, layer in group.members if side == "source"}
        if paths <= better.keys():
            exchanged.update({path: better[path] for path in paths})
        elif _fits_turned(group):
            found.open_paths.update(paths)
            found.ambiguous.append(_ambiguity(group))
    for (a, b), sure in pairs:
        if a.path in exchanged:
            found.notes[_weight(a)] = BY_NAME
            found.pairs.append((_turned(a, exchanged[a.path]), min(sure, TURNED)))
        else:
            found.pairs.append(((a, b), sure))
    return found


def _rivals(pairs: Sequence[Pair]) -> list[tuple[Pair, Pair]]:
    """Pairs side by side that would fit as well if both were turned and their partners exchanged."""
    places: dict[object, list[Pair]] = defaultdict(list)
    for a, b in pairs:
        shape = a.shapes["weight"]
        biased = "bias" in a.roles and "bias" in b.roles
        if len(shape) == 2 and shape[0] != shape[1] and not biased and a.path != b.path:
            places[_block(a.path), _block(b.path), frozenset(shape)].append((a, b))
    return [
        (one, two)
        for beside in places.values()
        for one, two in combinations(beside, 2)
        if one[0].shapes["weight"] != two[0].shapes["weight"]
        and _may_turn(one[0], two[1])
        and _may_turn(two[0], one[1])
    ]


def _may_turn(a: Layer, b: Layer) -> bool:
    """Tell whether both may be linear, and the layout of one is known to nobody."""
    layers = a, b
    unknown = any(not layer.inputs_first and (not layer.kind or layer.inputs_first is None) for layer in layers)
    return unknown and {layer.kind for layer in layers} <= {"", "linear"}


def _turned(a: Layer, b: Layer) -> Pair:
    """The pair with the matrix of that side as (in, out) whose layout nobody knows."""
    other = transposed_layer(b if b.kind else replace(b, inputs_first=None))
    if other:
        return a, other
    return transposed_layer(a if a.kind else replace(a, inputs_first=None)) or a, b


def _witness(pairs: Sequence[Sure], sides: tuple[ParameterSet, ParameterSet]) -> Callable[[Pair, Pair], int]:
    """Return what says of two rivals: 1 that they stand right, -1 that they are to be exchanged, 0 nothing."""
    learnt = learn_from_pairs((pair for pair, _ in pairs), ordered=False)
    ways = ClassOrientations(pairs, sides)
    known: dict[object, int] = {}

    def names(one: Pair, two: Pair) -> int:
        like = tuple(_in_any_block(layer.path) for pair in (one, two) for layer in pair)
        if like not in known:
            numbers = number_order(one[0].path, two[0].path) * number_order(one[1].path, two[1].path)
            benefit = numbers or exchange_benefit(one, two, learnt)
            known[like] = (benefit >= SETTLED) - (benefit <= -SETTLED)
        return known[like]

    def speaks(one: Pair, two: Pair) -> int:
        of_class = ways.of(one) | ways.of(two)
        return names(one, two) + (of_class == {False}) - (of_class == {True})

    return speaks


def _better(rivals: Sequence[tuple[Pair, Pair]]) -> dict[str, Layer]:
    """The better partner of each source by its path, where there is but one."""
    count = Counter(pair[0].path for both in rivals for pair in both)
    swaps = [swap for one, two in rivals for swap in ((one[0].path, two[1]), (two[0].path, one[1]))]
    return {path: partner for path, partner in swaps if count[path] == 1}


def _in_any_block(path: str) -> str:
    """The path with the numbers of the blocks left open: what names tell in one, they tell in all."""
    block, dot, last = path.rpartition(".")
    return NUMBER.sub("#", block) + dot + last


def _block(path: str) -> str:
    """The nearest numbered block around a layer."""
    blocks = [block for _, _, block in numbered(path.rpartition(".")[0])]
    return blocks[-1] if blocks else ""


def _fits_turned(group: OpenGroup) -> bool:
    """Tell whether there are as many matrices of each shape on one side as of the transposed on the other."""
    shapes = Counter(layer.shapes["weight"] for side, layer in group.members if side == "source")
    other = Counter(layer.shapes["weight"][::-1] for side, layer in group.members if side == "target")
    return shapes == other


def _ambiguity(group: OpenGroup) -> Ambiguity:
    sources, targets = (
        tuple(_weight(layer) for side, layer in group.members if side == one) for one in ("source", "target")
    )
    return Ambiguity(sources, targets, _REASON)


def _weight(layer: Layer) -> str:
    return layer.roles["weight"].name
