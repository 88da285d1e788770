"""Layers that are kept out of the ordinary stages, since all shows that they are pieces of fused ones.

A q, k and v of the size of the projection behind them would be rivals for its counterpart where the other side holds
the three in one. They are pieces if their names say q, k and v (or k and v), the other side has a layer of their joint
size for each such group, and neither side has the other's form.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from align.steps.piece_order import piece_sign

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.steps.layers import Layer

_GROUPS = (("q", "k", "v"), ("k", "v"))

Group = tuple["Layer", ...]


def reserve_fused(left: Sequence[Layer], right: Sequence[Layer]) -> tuple[set[str], set[str]]:
    """Names of the parameters of each side that belong to fused layers or to their pieces."""
    names: tuple[set[str], set[str]] = (set(), set())
    for signs in _GROUPS:
        for index, (wholes, others) in enumerate(((left, right), (right, left))):
            for found in _matching(wholes, others, signs):
                for side, layers in zip((index, 1 - index), found, strict=True):
                    names[side].update(p.name for layer in layers for p in layer.roles.values())
    return names


def _matching(
    wholes: Sequence[Layer], others: Sequence[Layer], signs: tuple[str, ...]
) -> Iterator[tuple[list[Layer], list[Layer]]]:
    """Yield fused layers and all pieces of them, form by form."""
    groups: dict[object, list[Group]] = defaultdict(list)
    for group in named_groups(others, signs):
        groups[_joint_form(group)].append(group)
    taken = {_joint_form(group) for group in named_groups(wholes, signs)}
    for form, found in groups.items():
        fused = [layer for layer in wholes if layer.signature == form]
        if len(fused) == len(found) and form not in taken and not any(layer.signature == form for layer in others):
            yield fused, [piece for group in found for piece in group]


def named_groups(layers: Sequence[Layer], signs: tuple[str, ...]) -> Iterator[Group]:
    """Yield the layers of each module that are called by these signs, each once."""
    places: dict[str, dict[str, list[Layer]]] = defaultdict(lambda: defaultdict(list))
    for layer in layers:
        if len(layer.shapes.get("weight", ())) == 2 and (sign := piece_sign(layer.path)) in signs:
            places[layer.path.rpartition(".")[0]][sign].append(layer)
    for found in places.values():
        if all(len(found[sign]) == 1 for sign in signs):
            yield tuple(found[sign][0] for sign in signs)


def _joint_form(group: Group) -> object:
    """The signature of a layer that is all of a group; None if they do not fit together."""
    first = group[0]
    joint = []
    for role, shape in first.signature:
        shapes = [layer.shapes.get(role, ()) for layer in group]
        if any(other[1:] != shape[1:] for other in shapes) or not all(shapes):
            return None
        joint.append((role, (sum(other[0] for other in shapes), *shape[1:])))
    return tuple(joint)
