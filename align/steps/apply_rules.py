"""The user's rules turned into pairings and drops, without looking at anything but names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.core.names import Dropped, NameMap, Pairing, Unmatched
from align.errors import MapError
from align.steps.layers import USUAL_ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.names import SideName
    from align.core.parameters import ParameterSet
    from align.core.rename import NameRules


def apply_rules(rules: NameRules, source: Sequence[str], target: Sequence[str] | None) -> NameMap:
    """Return what the rules say of the names of both sides; what they do not mention is unmatched.

    `target` None means that the target's names are whatever the rules produce. Raises MapError listing every
    contradiction: two sources for one target, a target that does not exist.
    """
    pairings: list[Pairing] = []
    dropped: list[Dropped] = []
    unmatched: list[Unmatched] = []
    used: set[str] = set()
    for name in source:
        if drop := rules.drop_reason(rules.dropped_source, name):
            dropped.append(Dropped(name, "source", drop[0]))
            used.add(drop[1])
        elif rule := rules.target_of(name):
            pairings.append(Pairing(name, rule[0], "user", 1.0, rule[1]))
            used.add(rule[2])
        else:
            unmatched.append(Unmatched(name, "source", "no rule mentions it"))
    unmatched += _rest_of_target(rules, pairings, target or (), dropped, used)
    _refuse_contradictions(rules, pairings, target)
    return NameMap(
        source="source",
        target="target",
        pairings=tuple(pairings),
        dropped=tuple(dropped),
        unmatched=tuple(unmatched),
        unused_rules=tuple(rule for rule in rules.all_rules if rule not in used),
    )


def _rest_of_target(
    rules: NameRules, pairings: list[Pairing], target: Sequence[str], dropped: list[Dropped], used: set[str]
) -> list[Unmatched]:
    taken = {pairing.target for pairing in pairings}
    rest = []
    for name in target:
        if name in taken:
            continue
        if drop := rules.drop_reason(rules.dropped_target, name):
            dropped.append(Dropped(name, "target", drop[0]))
            used.add(drop[1])
        else:
            side: SideName = "target"
            rest.append(Unmatched(name, side, "no rule leads to it"))
    return rest


def _refuse_contradictions(rules: NameRules, pairings: list[Pairing], target: Sequence[str] | None) -> None:
    faults = []
    sources: dict[str, str] = {}
    known = None if target is None else set(target)
    for pairing in pairings:
        if pairing.target in sources:
            faults.append(f"{sources[pairing.target]} and {pairing.source} both lead to {pairing.target}")
        sources.setdefault(pairing.target, pairing.source)
        if known is not None and pairing.target not in known:
            faults.append(f"{pairing.source} -> {pairing.target}: the target has no such parameter")
    if faults:
        raise MapError(rules.label, faults)


def apply_rules_to_sides(rules: NameRules, source: ParameterSet, target: ParameterSet) -> NameMap:
    """Return what the rules say of two known sides, with shapes checked; what they do not mention is left out.

    A rename may name the parameter as torch does: `blocks.0.norm.weight` also finds `blocks.0.norm.gamma` by its role.
    Raises MapError listing every contradiction and every shape that does not fit.
    """
    ruled = apply_rules(rules, source.names, None)
    drops = [(n, rules.drop_reason(rules.dropped_target, n)) for n in target.names]
    pairings = [replace(p, target=_by_role(p.target, target)) for p in ruled.pairings]
    _refuse_contradictions(rules, pairings, target.names)
    faults = [fault for p in pairings if (fault := _shape_fault(p, source, target))]
    if faults:
        raise MapError(rules.label, faults)
    used = {drop[1] for _, drop in drops if drop}
    return replace(
        ruled,
        pairings=tuple(pairings),
        dropped=(*ruled.dropped, *(Dropped(name, "target", drop[0]) for name, drop in drops if drop)),
        unmatched=(),
        unused_rules=tuple(rule for rule in ruled.unused_rules if rule not in used),
    )


def _by_role(name: str, target: ParameterSet) -> str:
    if name in target.by_name:
        return name
    path, _, attribute = name.rpartition(".")
    role = USUAL_ROLES.get(attribute)
    twins = [
        p.name for p in target.parameters if p.module == path and USUAL_ROLES.get(p.attribute, p.attribute) == role
    ]
    return twins[0] if role and len(twins) == 1 else name


def _shape_fault(pairing: Pairing, source: ParameterSet, target: ParameterSet) -> str:
    shape, wanted = source.by_name[pairing.source].shape, target.by_name[pairing.target].shape
    try:
        got = pairing.transform.output_shape(shape)
    except ValueError as error:
        return f"{pairing.source} -> {pairing.target}: {error}"
    return "" if got == wanted else f"{pairing.source} {list(got)} -> {pairing.target}: the target has {list(wanted)}"
