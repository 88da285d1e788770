"""Rules that a user gives by hand, and what they say of names: exact names, patterns with groups, drops with a reason.

They come first and are never overruled. Exact names win over drops, drops over patterns; of several patterns the first
that matches the whole name is taken. Every contradiction of one file is listed at once.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from align.core.documents import limited, seconds_left
from align.core.name_map import Dropped, NameMap, Pairing, Unmatched
from align.core.piece_transforms import apart_from_whole, cut_faults, join_fault
from align.core.thresholds import PATTERN_SECONDS
from align.core.transforms import IDENTITY, Transform
from align.errors import MapError
from align.names.fold_names import WILD, expand_ranges
from align.names.read_layers import USUAL_ROLES, roles_by_name, transform_between
from align.rules.layer_rules import rule_for
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import Frameworks, SideName
    from align.core.parameters import ParameterSet
    from align.names.read_layers import Roles
    from align.words.catalogue import Note


@dataclass(frozen=True, slots=True)
class Rename:
    """A regular expression over the whole source name, and the target as a template of its groups.

    `back` is the same for the way back: an expression over the whole target name, and the source as a template.
    """

    pattern: re.Pattern[str]
    to: str
    transform: Transform = IDENTITY
    back: tuple[re.Pattern[str], str] | None = None


@dataclass(frozen=True, slots=True)
class NameRules:
    """All rules of one file. `dropped_source` and `dropped_target` map a name or glob to the reason.

    A rule is called by its table and its text: `[names] fc.weight`. `frameworks` says whose names both sides have.
    `further` holds the other targets of a name under [names] that is cut into several.
    `lines` tells on which line of its file a rule stands, where that is known.
    """

    label: str = "no rules"
    names: dict[str, tuple[str, Transform]] = field(default_factory=dict)
    renames: tuple[Rename, ...] = ()
    dropped_source: dict[str, str] = field(default_factory=dict)
    dropped_target: dict[str, str] = field(default_factory=dict)
    frameworks: Frameworks = (None, None)
    further: Mapping[str, tuple[tuple[str, Transform], ...]] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    _drops: dict[SideName, _Drops] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sides: dict[SideName, _Drops] = {"source": _Drops(self.dropped_source), "target": _Drops(self.dropped_target)}
        object.__setattr__(self, "_drops", sides)

    def target_of(self, source: str) -> tuple[str, Transform, str] | None:
        """Target, transform and the rule's name for a source name, None if no rule pairs it."""
        if source in self.names:
            target, transform = self.names[source]
            return target, transform, _named(source)
        found = self.matched([rename.pattern for rename in self.renames], source)
        if found is None:
            return None
        rename = self.renames[found[0]]
        return found[1].expand(rename.to), rename.transform, renaming(rename.pattern)

    def matched(self, patterns: Sequence[re.Pattern[str]], name: str) -> tuple[int, Any] | None:
        """Index and match of the first pattern that matches a whole name, None if none does.

        Raises MapError for one that is still at it after `PATTERN_SECONDS` for all of them together.
        """
        end = time.monotonic() + PATTERN_SECONDS
        for index, pattern in enumerate(patterns):
            try:
                match = limited(pattern).fullmatch(name, timeout=seconds_left(end))
            except TimeoutError:
                raise self._endless(pattern, name) from None
            if match:
                return index, match
        return None

    def _endless(self, pattern: re.Pattern[str], name: str) -> MapError:
        rule = renaming(pattern)
        facts = {"rule": rule, "line": self.lines.get(rule), "name": name, "seconds": PATTERN_SECONDS}
        return MapError.of_one(self.label, "names_error.endless", **facts)

    def targets_of(self, source: str) -> tuple[tuple[str, Transform, str], ...]:
        """All that `target_of` says of a source name: several entries for one that is cut, none if no rule pairs it."""
        first = self.target_of(source)
        further = self.further.get(source, ()) if source in self.names else ()
        return () if first is None else (first, *((target, transform, first[2]) for target, transform in further))

    @property
    def all_names(self) -> tuple[tuple[str, str, Transform], ...]:
        """Source, target and transform of all exact names."""
        return tuple((name, to, change) for name in self.names for to, change, _ in self.targets_of(name))

    def drop_of(self, side: SideName, name: str) -> tuple[str, str] | None:
        """Reason and name of the first drop that covers a name, exact names before globs; None if none does."""
        drops = self._drops[side]
        glob = drops.covering(name)
        return None if glob is None else (drops.reasons[glob], _dropping(side, glob))

    def drops_exactly(self, side: SideName, name: str) -> bool:
        """Tell whether a drop names this very name."""
        return name in self._drops[side].reasons or name in self._drops[side].literals

    def named(self, source: str) -> str:
        """A source name with the line of the rule that pairs it, for messages."""
        found = self.target_of(source)
        line = self.lines.get(found[2]) if found else None
        return f"{source} (line {line})" if line else source

    @property
    def all_rules(self) -> tuple[str, ...]:
        """The name of every rule, table by table."""
        return tuple(self._called())

    def _called(self) -> Iterator[str]:
        yield from map(_named, self.names)
        yield from (renaming(rename.pattern) for rename in self.renames)
        for side, drops in self._drops.items():
            yield from (_dropping(side, glob) for glob in drops.reasons)


class _Drops:
    """The drops of one side; only those that are patterns are tried one after the other."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        self.literals = {name: glob for glob in reasons if (name := literal_name(glob)) is not None}
        self.patterns = [(re.compile(translate(glob)), glob) for glob in reasons if literal_name(glob) is None]

    def covering(self, name: str) -> str | None:
        """The first drop that covers a name, exact names before globs."""
        if name in self.reasons:
            return name
        if name in self.literals:
            return self.literals[name]
        return next((glob for pattern, glob in self.patterns if pattern.match(name)), None)


_QUOTED = re.compile(r"\[([*?\[])\]")


def literal_name(glob: str) -> str | None:
    """The one name that a glob covers; None for a pattern."""
    return None if WILD.search(_QUOTED.sub("", glob)) else _QUOTED.sub(r"\1", glob)


def _named(source: str) -> str:
    return f"[names] {source}"


def renaming(pattern: re.Pattern[str]) -> str:
    """What a rename is called, by its pattern or that of its way back."""
    return f"[[rename]] {pattern.pattern}"


def _dropping(side: SideName, glob: str) -> str:
    return f"[dropped.{side}] {glob}"


def apply_rules(rules: NameRules, source: Sequence[str], target: Sequence[str] | None) -> NameMap:
    """Return what the rules say of the names of both sides; what they do not mention is unmatched.

    `target` None means that the target's names are whatever the rules produce. Raises MapError listing every
    contradiction: two sources for one target, a target that does not exist, a name both paired and dropped.
    """
    applied = _apply_to_source(rules, source)
    _apply_to_target(rules, applied, target or ())
    faults = [*applied.faults, *_contradictions(rules, applied.pairings, target)]
    if faults:
        raise MapError.of_notes(rules.label, faults)
    named = {p.target for p in applied.pairings} | {d.name for d in applied.dropped if d.side == "target"}
    unmatched = [Unmatched(name, "source", sentence("map_reason.no_rule_mentions")) for name in applied.rest]
    unled = [name for name in target or () if name not in named]
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
    faults += _pairs_among_drops(rules, source, target)
    known = [p for p in applied.pairings if p.target in target.by_name]
    fitted = _in_form(known, (source, target)) if known else []
    faults += (note for p in fitted for note in _shape_faults(p, source, target, rules.named(p.source)))
    faults += _cut_faults(applied.pairings, source, rules)
    if faults:
        raise MapError.of_notes(rules.label, faults)
    applied.pairings = fitted
    return _as_map(rules, applied, [])


def _pairs_among_drops(rules: NameRules, source: ParameterSet, target: ParameterSet) -> Iterator[Note]:
    """Yield a fault for each drop whose reason is a name of the other side: a pair that was written below [dropped]."""
    for side, drops, others in (
        ("source", rules.dropped_source, target.by_name),
        ("target", rules.dropped_target, source.by_name),
    ):
        for name, reason in drops.items():
            with suppress(ValueError):
                if expand_ranges([reason])[0][0] in others:
                    yield "rule_fault.pair_among_drops", {"name": name, "side": side, "reason": reason}


def check_shapes(name_map: NameMap, source: ParameterSet, target: ParameterSet) -> None:
    """Raise MapError listing every pair of a map whose shapes do not fit, and every source that is cut up badly."""
    known = [p for p in name_map.pairings if p.source in source.by_name and p.target in target.by_name]
    faults = [note for p in known for note in _shape_faults(p, source, target, p.source)]
    if faults := [*faults, *_cut_faults(known, source, NameRules())]:
        raise MapError.of_notes(say("names_reason.the_map"), faults)


@dataclass
class _Applied:
    """What the rules did so far: `rest` are source names that no rule mentions, `used` the rules that did something."""

    pairings: list[Pairing] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    faults: list[Note] = field(default_factory=list)


def _apply_to_source(rules: NameRules, names: Iterable[str]) -> _Applied:
    applied = _Applied()
    for name in names:
        pairs, drop = rules.targets_of(name), rules.drop_of("source", name)
        if name in rules.names and rules.drops_exactly("source", name):
            applied.faults.append(("rule_fault.paired_and_dropped", {"name": rules.named(name)}))
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
            facts = {"name": name, "source": rules.named(taken[name])}
            applied.faults.append(("rule_fault.dropped_and_led_to", facts))


def _contradictions(rules: NameRules, pairings: Sequence[Pairing], target: Sequence[str] | None) -> Iterator[Note]:
    takers: dict[str, list[Pairing]] = {}
    known = None if target is None else set(target)
    for pairing in pairings:
        first, *_ = takers.setdefault(pairing.target, [])[:1] or [pairing]
        if first is not pairing and not all(apart_from_whole(one.transform)[1] for one in (first, pairing)):
            both = {"one": rules.named(first.source), "other": rules.named(pairing.source)}
            yield "rule_fault.both_lead", {"target": pairing.target, **both}
        takers[pairing.target].append(pairing)
        if known is not None and pairing.target not in known:
            yield "rule_fault.no_such_target", {"source": rules.named(pairing.source), "target": pairing.target}
    for name, parts in takers.items():
        changes = [one.transform for one in parts]
        if all(apart_from_whole(change)[1] for change in changes) and (fault := join_fault(changes)):
            sources = [rules.named(one.source) for one in parts]
            yield "rule_fault.not_whole", {"name": name, "fault": fault, "sources": sources}


def _cut_faults(pairings: Iterable[Pairing], source: ParameterSet, rules: NameRules) -> Iterator[Note]:
    shapes = {parameter.name: parameter.shape for parameter in source.parameters}
    for name, fault in cut_faults(pairings, shapes).items():
        yield "rule_fault.cut", {"name": rules.named(name), "shape": str(list(shapes[name])), "fault": fault}


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


def _shape_faults(pairing: Pairing, source: ParameterSet, target: ParameterSet, called: str) -> Iterator[Note]:
    """None, or the one of a pair whose shapes do not fit; `called` is what the rules call its source."""
    names = {"source": called, "target": pairing.target}
    shape, wanted = source.by_name[pairing.source].shape, target.by_name[pairing.target].shape
    try:
        got = pairing.transform.output_shape(shape)
    except ValueError as error:
        yield "rule_fault.no_shape", {**names, "error": error}
        return
    if got != wanted:
        yield "rule_fault.shape", {**names, "shape": str(list(got)), "wanted": str(list(wanted))}
