"""The user's rules turned into pairings and drops, with every contradiction of one file listed at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.core.mappings import rule_for
from align.core.names import Dropped, NameMap, Pairing, Unmatched
from align.core.transforms import IDENTITY, Reshape
from align.errors import MapError
from align.steps.layers import USUAL_ROLES, read_layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.core.parameters import ParameterSet, Shape
    from align.core.rename import NameRules


def apply_rules(rules: NameRules, source: Sequence[str], target: Sequence[str] | None) -> NameMap:
    """Return what the rules say of the names of both sides; what they do not mention is unmatched.

    `target` None means that the target's names are whatever the rules produce. Raises MapError listing every
    contradiction: two sources for one target, a target that does not exist, a name both paired and dropped.
    """
    applied = _apply_to_source(rules, source)
    _apply_to_target(rules, applied, target or ())
    faults = [*applied.faults, *_contradictions(rules, applied.pairings, target)]
    if faults:
        raise MapError(rules.label, faults)
    spoken = {p.target for p in applied.pairings} | {d.name for d in applied.dropped if d.side == "target"}
    unmatched = [Unmatched(name, "source", "no rule mentions it") for name in applied.rest]
    unmatched += [Unmatched(name, "target", "no rule leads to it") for name in target or () if name not in spoken]
    return _as_map(rules, applied, unmatched)


def apply_rules_to_sides(rules: NameRules, source: ParameterSet, target: ParameterSet) -> NameMap:
    """Return what the rules say of two known sides, with shapes checked; what they do not mention is left out.

    A rename may name the parameter as torch does: `blocks.0.norm.weight` also finds `blocks.0.norm.gamma`. An axis that
    the target's layer class inserts is added. Raises MapError listing every contradiction and every shape that does
    not fit.
    """
    applied = _apply_to_source(rules, source.names)
    applied.pairings = [replace(p, target=_by_role(p.target, target)) for p in applied.pairings]
    _apply_to_target(rules, applied, target.names)
    faults = [*applied.faults, *_contradictions(rules, applied.pairings, target.names)]
    shapes = _torch_shapes(source), _torch_shapes(target)
    known = [p for p in applied.pairings if p.target in target.by_name]
    fitted = {p.source: _with_axis(p, (source, target), shapes) for p in known}
    faults += [fault for p in fitted.values() if (fault := _shape_fault(p, source, target, rules.named(p.source)))]
    if faults:
        raise MapError(rules.label, faults)
    applied.pairings = list(fitted.values())
    return _as_map(rules, applied, [])


def check_shapes(name_map: NameMap, source: ParameterSet, target: ParameterSet) -> None:
    """Raise MapError listing every pair of a map whose shapes do not fit, after its transform."""
    known = [p for p in name_map.pairings if p.source in source.by_name and p.target in target.by_name]
    if faults := [fault for p in known if (fault := _shape_fault(p, source, target))]:
        raise MapError("the name map", faults)


@dataclass
class _Applied:
    """What the rules did so far: `rest` are source names that no rule mentions, `used` the rules that did something."""

    pairings: list[Pairing] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)


def _apply_to_source(rules: NameRules, names: Iterable[str]) -> _Applied:
    applied = _Applied()
    for name in names:
        pair, drop = rules.target_of(name), rules.drop_of("source", name)
        if name in rules.names and rules.drops_exactly("source", name):
            applied.faults.append(
                f"{rules.named(name)} is both paired under [names] and dropped under [dropped.source]"
            )
        if pair and (name in rules.names or not drop):
            applied.pairings.append(Pairing(name, pair[0], "user", 1.0, pair[1]))
            applied.used.add(pair[2])
        elif drop:
            applied.dropped.append(Dropped(name, "source", drop[0]))
            applied.used.add(drop[1])
        else:
            applied.rest.append(name)
    return applied


def _apply_to_target(rules: NameRules, applied: _Applied, names: Iterable[str]) -> None:
    taken = {pairing.target: pairing.source for pairing in applied.pairings}
    for name in names:
        drop = rules.drop_of("target", name)
        if drop and name not in taken:
            applied.dropped.append(Dropped(name, "target", drop[0]))
            applied.used.add(drop[1])
        elif name in taken and rules.drops_exactly("target", name):
            applied.faults.append(
                f"{name} is dropped under [dropped.target], and {rules.named(taken[name])} leads to it"
            )


def _contradictions(rules: NameRules, pairings: Sequence[Pairing], target: Sequence[str] | None) -> list[str]:
    faults = []
    sources: dict[str, str] = {}
    known = None if target is None else set(target)
    for pairing in pairings:
        if pairing.target in sources:
            both = f"{rules.named(sources[pairing.target])} and {rules.named(pairing.source)}"
            faults.append(f"{both} both lead to {pairing.target}")
        sources.setdefault(pairing.target, pairing.source)
        if known is not None and pairing.target not in known:
            faults.append(f"{rules.named(pairing.source)} -> {pairing.target}: the target has no such parameter")
    return faults


def _as_map(rules: NameRules, applied: _Applied, unmatched: Sequence[Unmatched]) -> NameMap:
    return NameMap(
        source="source",
        target="target",
        pairings=tuple(applied.pairings),
        dropped=tuple(applied.dropped),
        unmatched=tuple(unmatched),
        unused_rules=tuple(rule for rule in rules.all_rules if rule not in applied.used),
        frameworks=rules.frameworks,
    )


def _by_role(name: str, target: ParameterSet) -> str:
    """Return the target's name of what torch would call `name`, or the name itself."""
    if name in target.by_name:
        return name
    path, _, attribute = name.rpartition(".")
    module = next((module for module in target.modules if module.path == path), None)
    if module is not None and (known := rule_for(module.classes)):
        rule, family = known
        torch = rule.families.get("torch")
        roles = {own: role for role, own in torch.parameters.items()} if torch else {}
        named = f"{path}.{rule.families[family].parameters.get(roles.get(attribute, ''), '')}"
        return named if named in target.by_name else name
    role = USUAL_ROLES.get(attribute)
    twins = [p.name for p in target.parameters if p.module == path and USUAL_ROLES.get(p.attribute) == role]
    return twins[0] if role and len(twins) == 1 else name


def _torch_shapes(side: ParameterSet) -> dict[str, Shape]:
    """Shape of each parameter as torch's layer of its class has it."""
    layers = read_layers(side, frozenset())
    return {p.name: layer.shapes[role] for layer in layers for role, p in layer.roles.items()}


def _with_axis(
    pairing: Pairing, sides: tuple[ParameterSet, ParameterSet], shapes: tuple[dict[str, Shape], dict[str, Shape]]
) -> Pairing:
    own, wanted = sides[0].by_name[pairing.source].shape, sides[1].by_name[pairing.target].shape
    as_torch = shapes[0].get(pairing.source, own), shapes[1].get(pairing.target, wanted)
    if pairing.transform != IDENTITY or own == wanted or as_torch[0] != as_torch[1]:
        return pairing
    return replace(pairing, transform=Reshape(wanted, own))


def _shape_fault(pairing: Pairing, source: ParameterSet, target: ParameterSet, called: str = "") -> str:
    called = called or pairing.source
    shape, wanted = source.by_name[pairing.source].shape, target.by_name[pairing.target].shape
    try:
        got = pairing.transform.output_shape(shape)
    except ValueError as error:
        return f"{called} -> {pairing.target}: {error}"
    return "" if got == wanted else f"{called} {list(got)} -> {pairing.target}: the target has {list(wanted)}"
