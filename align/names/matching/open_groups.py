"""Layers that belong together and stay open: nothing tells which is which, and the user settles them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.cluster.hierarchy import DisjointSet

from align.core.name_map import Ambiguity
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.names.layers.read_layers import Layer, Pair


# An unpaired layer: (source, None) or (None, target).
Rival = tuple["Layer | None", "Layer | None"]
# Two pairs that may exchange partners, or a pair and an unpaired layer that may take a place in it.
Link = tuple["Pair", "Pair | Rival"]
Member = tuple[str, "Layer"]  # the name of its side, and a layer
_REASON = sentence("open_reason.alike")


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Layers of both sides that belong together, in their order, and nothing tells which is which."""

    members: tuple[Member, ...]
    reason: str = _REASON


def group_links(links: Sequence[Link]) -> list[OpenGroup]:
    """Groups of linked layers; a link says that two pairs may exchange partners."""
    members: dict[tuple[str, str], Layer] = {}
    groups: DisjointSet[tuple[str, str]] = DisjointSet()
    for link in links:
        keys = []
        for source, target in link:
            for side, layer in (("source", source), ("target", target)):
                if layer is not None:
                    keys.append((side, layer.path))
                    members[side, layer.path] = layer
                    groups.add((side, layer.path))
        for key in keys[1:]:
            groups.merge(keys[0], key)
    return in_order([OpenGroup(tuple((key[0], members[key]) for key in group)) for group in groups.subsets()])


def in_order(groups: Iterable[OpenGroup]) -> list[OpenGroup]:
    """The groups, and the members of each, as they stand on their sides."""
    placed = [OpenGroup(tuple(sorted(group.members, key=_place)), group.reason) for group in groups]
    return sorted(placed, key=lambda group: _place(group.members[0]))


def as_ambiguities(group: OpenGroup) -> list[Ambiguity]:
    """One ambiguity for each role of a group."""
    return [
        Ambiguity(
            tuple(layer.roles[role].name for side, layer in group.members if side == "source" and role in layer.roles),
            tuple(layer.roles[role].name for side, layer in group.members if side == "target" and role in layer.roles),
            group.reason,
        )
        for role in _roles_of(layer for _, layer in group.members)
    ]


def _place(member: Member) -> int:
    return member[1].position


def _roles_of(layers: Iterable[Layer]) -> list[str]:
    """Every role of some layers that their counterparts must have, in order."""
    return list(dict.fromkeys(role for layer in layers for role, _ in layer.signature))
