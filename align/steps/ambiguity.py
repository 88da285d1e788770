"""Layers whose assignment stays open, joined into the groups that a user has to settle together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scipy.cluster.hierarchy import DisjointSet

from align.core.names import Ambiguity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.steps.exchange import Link
    from align.steps.layers import Layer

_REASON = "equal class and shape, and nothing but a trial with values could tell them apart"


def group_links(links: Sequence[Link]) -> list[Ambiguity]:
    """One ambiguity for each role of each group of linked layers; a link says that two pairs may exchange partners."""
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
    found = [sorted(group, key=lambda key: members[key].position) for group in groups.subsets()]
    found.sort(key=lambda group: members[group[0]].position)
    return [ambiguity for group in found for ambiguity in _by_role([(key[0], members[key]) for key in group])]


def roles_of(layers: Iterable[Layer]) -> list[str]:
    """Every role of some layers that their counterparts must have, in order."""
    return list(dict.fromkeys(role for layer in layers for role, _ in layer.signature))


def _by_role(group: list[tuple[str, Layer]]) -> list[Ambiguity]:
    return [
        Ambiguity(
            tuple(layer.roles[role].name for side, layer in group if side == "source" and role in layer.roles),
            tuple(layer.roles[role].name for side, layer in group if side == "target" and role in layer.roles),
            _REASON,
        )
        for role in roles_of(layer for _, layer in group)
    ]
