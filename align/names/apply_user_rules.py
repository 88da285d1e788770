"""The user's rules turned into pairings and drops, with every contradiction of one file listed at once.

The other parameters of a fused layer follow the one that a rule cuts or joins: a bias goes with its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.core.message_words import first_few
from align.core.name_map import Dropped, NameMap, Pairing, Unmatched
from align.core.piece_transforms import Part, Reorder, Slice, apart_from_whole, cut_faults, join_fault
from align.core.transforms import IDENTITY, Transform, chained, steps_of
from align.errors import MapError
from align.names.layers.read_layers import USUAL_ROLES, roles_by_name
from align.names.layers.weight_transforms import is_turned, transform_between
from align.names.user_rules import NameRules
from align.rules.layer_rules import rule_for
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import ParameterSet, Shape
    from align.names.layers.read_layers import Layer, LayeredSides, Names, Roles


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
    unmatched = [Unmatched(name, "source", sentence("map_reason.no_rule_mentions")) for name in applied.rest]
    unled = [name for name in target or () if name not in spoken]
    unmatched += [Unmatched(name, "target", sentence("map_reason.no_rule_leads")) for name in unled]
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
    known = [p for p in applied.pairings if p.target in target.by_name]
    fitted = _in_form(known, (source, target)) if known else []
    faults += [fault for p in fitted if (fault := _shape_fault(p, source, target, rules.named(p.source)))]
    faults += _cut_faults(applied.pairings, source, rules)
    if faults:
        raise MapError(rules.label, faults)
    applied.pairings = fitted
    return _as_map(rules, applied, [])


def check_shapes(name_map: NameMap, source: ParameterSet, target: ParameterSet) -> None:
    """Raise MapError listing every pair of a map whose shapes do not fit, and every source that is cut up badly."""
    known = [p for p in name_map.pairings if p.source in source.by_name and p.target in target.by_name]
    faults = [fault for p in known if (fault := _shape_fault(p, source, target))]
    if faults := [*faults, *_cut_faults(known, source, NameRules())]:
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
        pairs, drop = rules.targets_of(name), rules.drop_of("source", name)
        if name in rules.names and rules.drops_exactly("source", name):
            applied.faults.append(
                f"{rules.named(name)} is both paired under [names] and dropped under [dropped.source]"
            )
        if pairs and (name in rules.names or not drop):
            applied.pairings += [Pairing(name, to, "user", 1.0, change) for to, change, _ in pairs]
            applied.used.add(pairs[0][2])
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
    takers: dict[str, list[Pairing]] = {}
    known = None if target is None else set(target)
    for pairing in pairings:
        first, *_ = takers.setdefault(pairing.target, [])[:1] or [pairing]
        if first is not pairing and not all(apart_from_whole(one.transform)[1] for one in (first, pairing)):
            both = f"{rules.named(first.source)} and {rules.named(pairing.source)}"
            faults.append(f"{both} both lead to {pairing.target}")
        takers[pairing.target].append(pairing)
        if known is not None and pairing.target not in known:
            faults.append(f"{rules.named(pairing.source)} -> {pairing.target}: the target has no such parameter")
    for name, parts in takers.items():
        changes = [one.transform for one in parts]
        if all(apart_from_whole(change)[1] for change in changes) and (fault := join_fault(changes)):
            faults.append(f"{name} is not whole: {fault} (by {first_few([rules.named(one.source) for one in parts])})")
    return faults


def _cut_faults(pairings: Iterable[Pairing], source: ParameterSet, rules: NameRules) -> list[str]:
    shapes = {parameter.name: parameter.shape for parameter in source.parameters}
    return [
        f"{rules.named(name)} {list(shapes[name])}: {fault}" for name, fault in cut_faults(pairings, shapes).items()
    ]


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


def _in_form(pairings: Sequence[Pairing], sides: tuple[ParameterSet, ParameterSet]) -> list[Pairing]:
    """The pairings with what the classes of their layers say of their form, where the user says nothing of it."""
    source, target = (roles_by_name(side) for side in sides)
    return [_formed(pairing, source, target) for pairing in pairings]


def _formed(pairing: Pairing, source: Roles, target: Roles) -> Pairing:
    if pairing.transform != IDENTITY or pairing.source not in source or pairing.target not in target:
        return pairing
    (a, role), (b, other) = source[pairing.source], target[pairing.target]
    if a.shapes[role] != b.shapes[other]:
        return pairing
    return replace(pairing, transform=transform_between(a, b, role, other))


def _shape_fault(pairing: Pairing, source: ParameterSet, target: ParameterSet, called: str = "") -> str:
    called = called or pairing.source
    shape, wanted = source.by_name[pairing.source].shape, target.by_name[pairing.target].shape
    try:
        got = pairing.transform.output_shape(shape)
    except ValueError as error:
        return f"{called} -> {pairing.target}: {error}"
    return "" if got == wanted else f"{called} {list(got)} -> {pairing.target}: the target has {list(wanted)}"


def follow_fused(sides: LayeredSides, ruled: Sequence[Pairing], spoken: Names) -> list[Pairing]:
    """Pair what no rule speaks of in layers that the user's rules cut or join; nothing of a role that does not fit."""
    fused = [pairing for pairing in ruled if _places(pairing.transform)]
    if not fused:
        return []
    known = sides.roles
    groups: dict[tuple[bool, str, str], list[Pairing | None]] = {}
    for pairing in fused:
        cut = not isinstance(_places(pairing.transform)[-1], Part)
        whole = known[0][pairing.source][0].path if cut else known[1][pairing.target][0].path
        for role, follower in _followers(pairing, known):
            groups.setdefault((cut, whole, role), []).append(follower)
    shapes = {parameter.name: parameter.shape for parameter in sides.parameters[0].parameters}
    found = ([one for one in group if one is not None] for group in groups.values() if None not in group)
    return [one for group in found if _is_whole(group, shapes) and _are_free(group, spoken) for one in group]


def _is_whole(group: Sequence[Pairing], shapes: Mapping[str, Shape]) -> bool:
    """Tell whether the pieces are all of what is cut, or make all of what is joined."""
    if isinstance(_places(group[0].transform)[-1], Part):
        return not join_fault([one.transform for one in group])
    return not cut_faults(group, shapes)


def _are_free(group: Sequence[Pairing], spoken: Names) -> bool:
    return all(one.source not in spoken[0] and one.target not in spoken[1] for one in group)


def _places(transform: Transform) -> list[Slice | Part | Reorder]:
    """The steps that take pieces out of a tensor or put them into one."""
    places = [step for step in steps_of(transform) if isinstance(step, (Slice, Part, Reorder))]
    return places if any(isinstance(step, (Slice, Part)) for step in places) else []


def _followers(pairing: Pairing, known: tuple[Roles, Roles]) -> Iterator[tuple[str, Pairing | None]]:
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
