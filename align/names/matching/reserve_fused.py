"""Layers that are kept out of the ordinary stages, since all shows that they are pieces of fused ones.

A q, k and v of the size of the projection behind them would be rivals for its counterpart where the other side holds
the three in one. They are pieces if their names say q, k and v (or k and v), the other side has a layer of their joint
size for each such group, and neither side has the other's form.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from align.names.matching.piece_order import piece_sign

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.names.layers.read_layers import Layer, Signature

_GROUPS = (("q", "k", "v"), ("k", "v"))

Group = tuple["Layer", ...]
Form = tuple["Signature", bool]


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
    groups: dict[Form | None, list[Group]] = defaultdict(list)
    for group in named_groups(others, signs):
        groups[_joint_form(group)].append(group)
    taken = {_joint_form(group) for group in named_groups(wholes, signs)}
    for form, found in groups.items():
        fused = [layer for layer in wholes if _has(layer, form)]
        if len(fused) == len(found) and form not in taken and not any(_has(layer, form) for layer in others):
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


def _joint_form(group: Group) -> Form | None:
    """What a layer that is all of a group has, and whether that is all it has; None if they do not fit together.

    Where some have a bias and others not, the whole one may have one or not.
    """
    signatures = [dict(layer.signature) for layer in group]
    shared = [role for role in signatures[0] if all(role in signature for signature in signatures)]
    even = all(len(signature) == len(shared) for signature in signatures)
    if not even and shared != ["weight"]:
        return None
    joint = []
    for role in shared:
        shapes = [signature[role] for signature in signatures]
        if not all(shapes) or len({shape[1:] for shape in shapes}) > 1:
            return None
        joint.append((role, (sum(shape[0] for shape in shapes), *shapes[0][1:])))
    return tuple(joint), even


def _has(layer: Layer, form: Form | None) -> bool:
    if form is None:
        return False
    signature, even = form
    return layer.signature == signature if even else set(signature) <= set(layer.signature)
