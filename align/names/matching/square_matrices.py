"""Square matrices of classes that nobody knows: no shape tells whether they are transposed.

A class keeps all its matrices one way round, so those of it that are not square tell it. Against a linear layer the
weight stays open where there are none, or they tell both: a trial with values decides. Of two such classes of which
nothing is told, both stand alike.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.matching.other_forms import TURNED

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from align.core.parameters import ParameterSet
    from align.names.layers.read_layers import Layer, Pair

Sure = tuple["Pair", float]
Sides = tuple["ParameterSet", "ParameterSet"]
_REASON = "a square weight of a class that no rule knows: a trial with values tells whether it is transposed"
_EITHER = frozenset({False, True})


class ClassOrientations:
    """Whether matrices of unknown classes stand turned to their counterparts, as told by those that are not square.

    Those at `open_paths` may stand either way.
    """

    def __init__(self, pairs: Sequence[Sure], sides: Sides, open_paths: Set[str] = frozenset()) -> None:
        self._classes = [{module.path: module.class_name for module in side.modules} for side in sides]
        self._seen: dict[object, set[bool]] = defaultdict(set)
        for pair, _ in pairs:
            key = self._key(pair)
            if key and not _is_square(pair):
                self._seen[key] |= _EITHER if pair[0].path in open_paths else {_way(pair)}

    def of(self, pair: Pair) -> Set[bool]:
        """The ways that matrices of these classes are seen to stand; all of them may be, or none."""
        return self._seen.get(self._key(pair), frozenset())

    def is_unsure(self, pair: Pair) -> bool:
        """Tell whether a pair is square, and of a class whose layout no rule knows."""
        return self._key(pair) is not None and _is_square(pair)

    def _key(self, pair: Pair) -> object:
        """The unknown classes of a pair of matrices, with the names of their weights; None if there are none."""
        kinds = {layer.kind for layer in pair}
        if "" not in kinds or kinds - {"", "linear"} or any(len(x.shapes.get("weight", ())) != 2 for x in pair):
            return None
        key = [self._class_of(layer, side) for side, layer in enumerate(pair)]
        return tuple(key) if all(one is None or one[0] for one in key) else None

    def _class_of(self, layer: Layer, side: int) -> tuple[str, str] | None:
        weight = layer.roles["weight"]
        return None if layer.kind else (self._classes[side].get(weight.module, ""), weight.attribute)


def settle_square_matrices(
    pairs: Sequence[Sure], sides: Sides, open_paths: Set[str] = frozenset()
) -> tuple[list[Sure], list[Ambiguity]]:
    """Return the pairs with square matrices turned as their classes show, and the weights for which nothing does.

    The matrices at `open_paths` of the source may stand either way.
    """
    ways = ClassOrientations(pairs, sides, open_paths)
    settled: list[Sure] = []
    unsure: list[Ambiguity] = []
    for (a, b), sure in pairs:
        told = ways.of((a, b)) if ways.is_unsure((a, b)) else {False}
        if told == {True}:
            turned = (a, replace(b, inputs_first=True)) if not b.kind else (replace(a, inputs_first=True), b)
            settled.append((turned, min(sure, TURNED)))
            continue
        settled.append(((a, b), sure))
        if len(told) > 1 or (not told and (a.kind or b.kind)):
            unsure.append(Ambiguity((a.roles["weight"].name,), (b.roles["weight"].name,), _REASON))
    return settled, unsure


def _way(pair: Pair) -> bool:
    """Whether the matrix of an unknown class stands as (in, out); of two such, whether they stand unlike."""
    a, b = (None if layer.kind else bool(layer.inputs_first) for layer in pair)
    return bool(a) != bool(b)


def _is_square(pair: Pair) -> bool:
    rows, columns = pair[0].shapes["weight"]
    return rows == columns and pair[0].shapes["weight"] == pair[1].shapes["weight"]
