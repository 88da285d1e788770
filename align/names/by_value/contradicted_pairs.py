"""Pairs that names make sure and a run contradicts: layers that are given what another of their kind is given.

Names cannot know that a port calls `norm1` where the original calls `norm2`. The values are right, so the run decides,
and what it does not decide is open. Layers that are given the same tensors (query, key and value) show it one layer
later, where what they return meets; their exchange is tried where that place is given something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.core.name_map import Ambiguity
from align.names.by_value.trial_groups import open_groups
from align.names.thresholds import MOST_SIBLING_GROUPS
from align.names.trial_parts.seen_tensors import agree
from align.names.trial_parts.trial_sides import module_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.name_map import Pairing
    from align.names.by_value.trial_groups import Alternative
    from align.names.by_value.trial_runs import PairedRuns
    from align.names.layers.read_layers import Layer, Signature

    Layers = Sequence[Mapping[str, Layer]]

CROSSED = sentence("pair_note.crossed_in_run")
# What names and shapes say may be doubted; what the user, equal values or a run say may not.
_CERTAIN = ("user", "values", "trial", "dataflow")


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Groups of pairs, by role, in which layers stand in another's place, and the names of those that surely do."""

    groups: list[Ambiguity]
    crossed: set[str]

    def __bool__(self) -> bool:
        return bool(self.groups)


def contradicted_pairs(
    pairings: Sequence[Pairing], calls: PairedRuns, layer_of: Layers, free: tuple[Sequence[Layer], Sequence[Layer]]
) -> Contradiction:
    """What a run with all pairs contradicts: a layer is given what the counterpart of another one is given.

    Its rivals that are given anything else than their counterparts are in question with it, and those that are `free`.
    """
    joined = _layers(pairings, layer_of)
    off = {a: b for a, b in calls.modules.items() if a in joined and calls.same_place(a, b) is False}
    sources = [*(joined[a][0] for a in off), *free[0]]
    targets = [*(joined[a][1] for a in off), *free[1]]
    crossed = {a for a in off if any(_stands(calls, joined[a][0], b) for b in targets)}
    crossed |= {a for a in off if any(_stands(calls, one, joined[a][1]) for one in sources)}
    found = []
    for form in dict.fromkeys(_form(joined[a][0]) for a in off if a in crossed):
        sides = (
            [layer for layer in sources if _form(layer) == form],
            [layer for layer in targets if _form(layer) == form],
        )
        found += [_group(role, *sides) for role in sides[0][0].roles]
    return Contradiction(found, {p.source for a in crossed for p in joined[a][2]})


def _form(layer: Layer) -> tuple[str, Signature]:
    return layer.kind, layer.signature


def _stands(calls: PairedRuns, a: Layer, b: Layer) -> bool:
    return _form(a) == _form(b) and bool(calls.same_place(module_of(a), module_of(b)))


def _group(role: str, sources: Sequence[Layer], targets: Sequence[Layer]) -> Ambiguity:
    left, right = ([one.roles[role].name for one in side if role in one.roles] for side in (sources, targets))
    return Ambiguity(tuple(left), tuple(right), CROSSED)


def sibling_orders(pairings: Sequence[Pairing], calls: PairedRuns, layer_of: Layers) -> list[list[Alternative]]:
    """Every order of siblings before a layer that is given something else than its counterpart; the present one first.

    Siblings are paired layers of one kind and shape that are given the same tensors.
    """
    joined = {path: both for path, both in _layers(pairings, layer_of).items() if path in calls.modules}
    order = [path for path, call in calls.source.outputs if not call and path in joined]
    off = {path for path in order if calls.same_place(path, calls.modules[path]) is False}
    if not off:
        return []
    groups: dict[str, list[str]] = {}
    doubted: dict[tuple[str, ...], list[Alternative]] = {}
    for path in order:
        if path in off:
            nearest = [tuple(group) for group in reversed(groups.values()) if len(group) > 1][:1]
            doubted |= {group: _orders(group, joined, layer_of) for group in nearest if group not in doubted}
        first = next((one for one in groups if _siblings(calls, joined, one, path)), path)
        members = groups.pop(first, [])
        groups[first] = [*members, path]
    return [orders for orders in doubted.values() if len(orders) > 1][:MOST_SIBLING_GROUPS]


def _layers(pairings: Sequence[Pairing], layer_of: Layers) -> dict[str, tuple[Layer, Layer, list[Pairing]]]:
    """The two layers and the pairings of each module of the source that may be doubted."""
    found: dict[str, tuple[Layer, Layer, list[Pairing]]] = {}
    for pairing in pairings:
        a, b = layer_of[0].get(pairing.source), layer_of[1].get(pairing.target)
        if a and b and pairing.evidence not in _CERTAIN:
            found.setdefault(a.path, (a, b, []))[2].append(pairing)
    return found


def _alike(layer: Layer, joined: Mapping[str, tuple[Layer, Layer, list[Pairing]]], target: str) -> bool:
    return any(
        b.path == target and (a.kind, a.signature) == (layer.kind, layer.signature) for a, b, _ in joined.values()
    )


def _by_role(pairings: Sequence[Pairing], layer_of: Mapping[str, Layer]) -> Iterator[Ambiguity]:
    roles: dict[str, list[Pairing]] = {}
    for pairing in pairings:
        own = layer_of[pairing.source].roles
        roles.setdefault(next(role for role, p in own.items() if p.name == pairing.source), []).append(pairing)
    for group in roles.values():
        yield Ambiguity(tuple(p.source for p in group), tuple(p.target for p in group), CROSSED)


def _siblings(
    calls: PairedRuns, joined: Mapping[str, tuple[Layer, Layer, list[Pairing]]], one: str, other: str
) -> bool:
    a, b = joined[one][0], joined[other][0]
    if (a.kind, a.signature) != (b.kind, b.signature) or calls.source.calls(one) != calls.source.calls(other):
        return False
    given = calls.source.inputs
    return all(agree(given.get((one, n), ()), given.get((other, n), ())) for n in range(calls.source.calls(one)))


def _orders(
    group: Sequence[str], joined: Mapping[str, tuple[Layer, Layer, list[Pairing]]], layer_of: Layers
) -> list[Alternative]:
    present = tuple(p for path in group for p in joined[path][2])
    groups = open_groups(list(_by_role(present, layer_of[0])), *layer_of)
    if len(groups) != 1:
        return []
    edges = groups[0].edges(lambda *_: True)
    others = groups[0].alternatives(list(groups[0].sources), list(groups[0].targets), edges) or []
    same = {(p.source, p.target) for p in present}
    return [present, *(one for one in others if {(p.source, p.target) for p in one} != same)]
