"""What is left when all pairs are made: dropped for a stated reason, or unmatched with the names that come closest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.name_map import Dropped
from align.names.layers.read_layers import roles_by_name
from align.names.matching.why_unmatched import WhyUnmatched
from align.rules.computed_constants import constant_reason
from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.name_map import Ambiguity, NameMap, Pairing, SideName, Unmatched
    from align.core.parameters import Parameter, ParameterSet
    from align.names.layers.read_layers import Layer, Pair
    from align.names.matching.why_unmatched import Roles

_SIDES: tuple[SideName, SideName] = ("source", "target")


def explain_unpaired(
    sides: tuple[ParameterSet, ParameterSet],
    ruled: Sequence[Dropped],
    pairings: Sequence[Pairing],
    ambiguous: Sequence[Ambiguity],
    layers: Sequence[Pair],
) -> tuple[list[Dropped], list[Unmatched]]:
    """Return what is dropped and what is unmatched on both sides, in the order of their names.

    `ruled` was dropped by the user; `layers` are the pairs of layers that `pairings` come from.
    """
    pairs = [(p.source, p.target) for p in pairings]
    paired = {a for a, _ in pairs}, {b for _, b in pairs}
    in_groups = {n for group in ambiguous for n in group.sources}, {n for group in ambiguous for n in group.targets}
    rest = []
    for index, side in enumerate(sides):
        spoken = paired[index] | in_groups[index] | {d.name for d in ruled if d.side == _SIDES[index]}
        rest.append([p for p in side.parameters if p.name not in spoken])
    dropped = list(ruled)
    unmatched: list[Unmatched] = []
    known = tuple(roles_by_name(side) for side in sides) if any(rest) else ({}, {})
    for index, name in enumerate(_SIDES):
        counterparts = {p.name: pair[1 - index] for pair in layers for p in pair[index].roles.values()}
        if not rest[index]:
            continue
        roles = known[index], known[1 - index]
        reasons = _constants(sides[index], rest[index]) | _drop_reasons(roles, counterparts)
        reasons |= _tie_reasons(sides[index], paired[index])
        partners = dict(names if index else names[::-1] for names in pairs)
        seen = WhyUnmatched(name, counterparts, partners, rest[index], rest[1 - index], roles)
        for parameter in rest[index]:
            if reason := reasons.get(parameter.name):
                dropped.append(Dropped(parameter.name, name, reason))
            else:
                unmatched.append(seen.explain(parameter))
    return dropped, unmatched


def explain_unpaired_anew(sides: tuple[ParameterSet, ParameterSet], name_map: NameMap) -> NameMap:
    """Return the map with what is not paired explained by the pairings that it has now.

    Of a group that has lost all names of one side, the others are unmatched.
    """
    left, right = (roles_by_name(side) for side in sides)
    layers = [
        (left[p.source][0], right[p.target][0]) for p in name_map.pairings if p.source in left and p.target in right
    ]
    ambiguous = [group for group in name_map.ambiguous if group.sources and group.targets]
    dropped, unmatched = explain_unpaired(sides, name_map.dropped, name_map.pairings, ambiguous, layers)
    return replace(name_map, ambiguous=tuple(ambiguous), dropped=tuple(dropped), unmatched=tuple(unmatched))


def _tie_reasons(side: ParameterSet, paired: set[str]) -> dict[str, str]:
    """Reasons, by name, for names of a tensor that is paired under another of its names."""
    tensors = {p.tied_to or p.name: p.name for p in side.parameters if p.name in paired}
    return {
        p.name: f"the same tensor as {tensors[p.tied_to or p.name]}, which is paired"
        for p in side.parameters
        if (p.tied_to or p.name) in tensors
    }


def _constants(side: ParameterSet, rest: Iterable[Parameter]) -> dict[str, str]:
    """Reasons, by name, for tensors that a model computes from its settings alone."""
    known = {module.path for module in side.modules if rule_for(module.classes)}
    reasons = {p.name: constant_reason(p, known_layer=p.module in known) for p in rest}
    return {name: reason for name, reason in reasons.items() if reason}


def _drop_reasons(roles: tuple[Roles, Roles], counterparts: dict[str, Layer]) -> dict[str, str]:
    """Reasons, by name, for roles that the counterpart, or the other side's layers of the same kind, do not have."""
    own, others = roles
    reasons = {(layer.kind, role): reason for layer, _ in others.values() for role, reason in layer.dropped.items()}
    found = {}
    for name, (layer, role) in own.items():
        counterpart = counterparts.get(name)
        reason = reasons.get((layer.kind, role)) if counterpart is None else counterpart.dropped.get(role)
        if reason:
            found[name] = reason
    return found
