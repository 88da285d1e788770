"""Square matrices of classes that nobody knows, against linear layers: no shape tells whether they are transposed.

A class keeps all its matrices one way round, so those of it that are not square tell it. Where there are none, or they
tell both, the weight stays open: a trial with values decides.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.names import Ambiguity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.parameters import ParameterSet
    from align.steps.evidence import Pair
    from align.steps.layers import Layer

Sure = tuple["Pair", float]
_REASON = "a square weight of a class that no rule knows: a trial with values tells whether it is transposed"
_BY_CLASS = 0.9


def doubt_squares(
    pairs: Sequence[Sure], sides: tuple[ParameterSet, ParameterSet]
) -> tuple[list[Sure], list[Ambiguity]]:
    """Return the pairs with squares turned as their classes show, and the weights for which nothing does."""
    classes = tuple({module.path: module.class_name for module in side.modules} for side in sides)
    seen: dict[object, set[bool]] = defaultdict(set)
    for pair, _ in pairs:
        for side, layer in enumerate(pair):
            shape = layer.shapes.get("weight", ())
            if not layer.kind and len(shape) == 2 and shape[0] != shape[1] and pair[1 - side].kind == "linear":
                seen[side, _key(layer, classes[side])].add(bool(layer.inputs_first))
    settled: list[Sure] = []
    doubtful: list[Ambiguity] = []
    for (a, b), sure in pairs:
        index = _unknown_square(a, b)
        told = {False} if index is None else seen[index, _key((a, b)[index], classes[index])]
        if index is None or told == {False} or not _key((a, b)[index], classes[index])[0]:
            settled.append(((a, b), sure))
        elif told == {True}:
            turned = replace((a, b)[index], inputs_first=True)
            settled.append(((a, turned) if index else (turned, b), min(sure, _BY_CLASS)))
        else:
            settled.append(((a, b), sure))
            doubtful.append(Ambiguity((a.roles["weight"].name,), (b.roles["weight"].name,), _REASON))
    return settled, doubtful


def _unknown_square(a: Layer, b: Layer) -> int | None:
    """Which of two layers has a square matrix that may be transposed; None if neither, or nothing makes it doubtful."""
    shapes = a.shapes.get("weight", ()), b.shapes.get("weight", ())
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][0] != shapes[0][1]:
        return None
    if {a.kind, b.kind} != {"", "linear"}:
        return None
    return int(not b.kind)


def _key(layer: Layer, classes: dict[str, str]) -> tuple[str, str]:
    weight = layer.roles["weight"]
    return classes.get(weight.module, ""), weight.attribute
