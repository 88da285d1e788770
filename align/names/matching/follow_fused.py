"""The other parameters of fused layers follow the one that the user cut or joined: a bias goes with its weight."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import Pairing
from align.core.piece_transforms import Part, Reorder, Slice, cut_faults, join_fault
from align.core.transforms import Transform, chained, steps_of
from align.names.layers.read_layers import roles_by_name
from align.names.layers.weight_transforms import is_turned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.parameters import ParameterSet, Shape
    from align.names.layers.read_layers import Layer

    Known = dict[str, tuple[Layer, str]]


def follow_fused(
    sides: tuple[ParameterSet, ParameterSet], ruled: Sequence[Pairing], spoken: tuple[set[str], set[str]]
) -> list[Pairing]:
    """Pair what no rule speaks of in layers that the user's rules cut or join; nothing of a role that does not fit."""
    fused = [pairing for pairing in ruled if _places(pairing.transform)]
    if not fused:
        return []
    known = roles_by_name(sides[0]), roles_by_name(sides[1])
    groups: dict[tuple[bool, str, str], list[Pairing | None]] = {}
    for pairing in fused:
        cut = not isinstance(_places(pairing.transform)[-1], Part)
        whole = known[0][pairing.source][0].path if cut else known[1][pairing.target][0].path
        for role, follower in _followers(pairing, known):
            groups.setdefault((cut, whole, role), []).append(follower)
    shapes = {parameter.name: parameter.shape for parameter in sides[0].parameters}
    found = ([one for one in group if one is not None] for group in groups.values() if None not in group)
    return [one for group in found if _is_whole(group, shapes) and _are_free(group, spoken) for one in group]


def _is_whole(group: Sequence[Pairing], shapes: Mapping[str, Shape]) -> bool:
    """Tell whether the pieces are all of what is cut, or make all of what is joined."""
    if isinstance(_places(group[0].transform)[-1], Part):
        return not join_fault([one.transform for one in group])
    return not cut_faults(group, shapes)


def _are_free(group: Sequence[Pairing], spoken: tuple[set[str], set[str]]) -> bool:
    return all(one.source not in spoken[0] and one.target not in spoken[1] for one in group)


def _places(transform: Transform) -> list[Slice | Part | Reorder]:
    """The steps that take pieces out of a tensor or put them into one."""
    places = [step for step in steps_of(transform) if isinstance(step, (Slice, Part, Reorder))]
    return places if any(isinstance(step, (Slice, Part)) for step in places) else []


def _followers(pairing: Pairing, known: tuple[Known, Known]) -> Iterator[tuple[str, Pairing | None]]:
    """Yield each other role that either layer has with the pair of it, None where that does not fit."""
    (a, role), (b, other) = known[0][pairing.source], known[1][pairing.target]
    if role != other:
        return
    for follower in dict.fromkeys((*a.roles, *b.roles)):
        if follower != role:
            yield follower, _pair(pairing.transform, a, b, (role, follower))


def _pair(transform: Transform, a: Layer, b: Layer, roles: tuple[str, str]) -> Pairing | None:
    role, follower = roles
    if follower not in a.roles or follower not in b.roles or is_turned(a, follower) != is_turned(b, follower):
        return None
    source, target = a.roles[follower], b.roles[follower]
    steps: list[Transform] = []
    for place in _places(transform):
        layer = b if isinstance(place, Part) else a
        if place.axis != int(is_turned(layer, role)):
            return None
        moved = replace(place, axis=int(is_turned(layer, follower)))
        if isinstance(moved, Slice):
            moved = replace(moved, origin=source.shape)
        steps.append(replace(moved, shape=target.shape) if isinstance(moved, Part) else moved)
    change = chained(*steps)
    try:
        fits = change.output_shape(source.shape) == target.shape
    except ValueError:
        fits = False
    return Pairing(source.name, target.name, "structure", 1.0, change) if fits else None
