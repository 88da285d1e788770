"""Rules that a user gives by hand, and what they say of names; and names that differ only in their numbers.

They come first and are never overruled. Exact names win over drops, drops over patterns; of several patterns the first
that matches the whole name is taken. Every contradiction of one file is listed at once.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.documents import limited, seconds_left
from align.core.name_map import Dropped, NameMap, Pairing, Unmatched, cut_faults
from align.core.piece_transforms import join_fault, joins
from align.core.thresholds import PATTERN_SECONDS
from align.core.transforms import IDENTITY, Transform
from align.errors import MapError
from align.names.read_layers import USUAL_ROLES, roles_by_name, transform_between
from align.names.thresholds import MOST_NAMES_OF_RANGES
from align.rules.layer_rules import rule_for
from align.words.catalogue import ELLIPSIS, say, sentence

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

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
        match = self.matched([rename.pattern for rename in self.renames], source)
        if match is None:
            return None
        rename = self.renames[match[0]]
        return match[1].expand(rename.to), rename.transform, renaming(rename.pattern)

    def matched(self, patterns: Sequence[re.Pattern[str]], name: str) -> tuple[int, Any] | None:
        """Index and match of the first pattern that matches a whole name, None if none does.

        Raises MapError for one that is still at it after `PATTERN_SECONDS` for all of them together.
        """
        end = time.thread_time() + PATTERN_SECONDS
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
        if first is not pairing and not all(joins(item.transform) for item in (first, pairing)):
            both = {"one": rules.named(first.source), "other": rules.named(pairing.source)}
            yield "rule_fault.both_lead", {"target": pairing.target, **both}
        takers[pairing.target].append(pairing)
        if known is not None and pairing.target not in known:
            yield "rule_fault.no_such_target", {"source": rules.named(pairing.source), "target": pairing.target}
    for name, parts in takers.items():
        changes = [item.transform for item in parts]
        if all(map(joins, changes)) and (fault := join_fault(changes)):
            sources = [rules.named(item.source) for item in parts]
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


# Names that differ only in their numbers, as one: the layers of a model repeat, and a list of all tells no more.
#
# For the eye a fold is `layers.{0…11}.weight`. In a file it is `layers.{0..11}.weight`, of which nothing is lost: a
# run is a full range in each of its numbers, and names that stand side by side (a source and its target) run
# together, each range of one along the same range of the other or along one that is shifted. A name that itself holds
# such a text is written with one more brace before it.


WILD = re.compile(r"[*?\[]")  # what makes a name a glob
NUMBER = re.compile(r"[0-9]{1,18}")  # longer ones, which only a hostile file has, count as several
RANGE = re.compile(r"(\{+)([0-9]{1,9})\.\.([0-9]{1,9})\}")
# Numbers with leading zeros are words: `07` and `7` are two names.
PLAIN_NUMBER = re.compile(r"(?<![0-9])(0|[1-9][0-9]{0,8})(?![0-9])")
TextParts = tuple[str, ...]


def fold_names(names: Iterable[str]) -> list[str]:
    """Put names that differ only in their numbers into one line each: `layers.{0…11}.weight (12)`."""
    return [
        name + (f" ({len(places)})" if len(places) > 1 else "")
        for name, places in fold_alike((name, None) for name in names)
    ]


def fold_alike(rows: Iterable[tuple[str, Hashable]]) -> list[tuple[str, list[int]]]:
    """Fold the names of rows that differ only in their numbers and are alike in all else, given beside the name.

    Returns each folded name, such as `layers.{0…11}.weight`, with the places of its rows.
    """
    groups: dict[tuple[str, Hashable], tuple[list[int], list[set[str]]]] = {}
    for place, (name, rest) in enumerate(rows):
        numbers = NUMBER.findall(name)
        template = NUMBER.sub("#", name.replace("#", "\0"))
        if (template, rest) not in groups:
            groups[template, rest] = ([], [set() for _ in numbers])
        places, slots = groups[template, rest]
        places.append(place)
        for slot, number in zip(slots, numbers, strict=True):
            slot.add(number)
    return [(_folded(template, slots), places) for (template, _), (places, slots) in groups.items()]


def common_glob(names: Sequence[str]) -> str:
    """The glob over names that differ only in their numbers: `layers.*.weight`.

    >>> common_glob(["layers.0.fc1", "layers.1.fc1"])
    'layers.*.fc1'
    """
    texts = [as_literal(text) for text in NUMBER.split(names[0])]
    values = [set(column) for column in zip(*(NUMBER.findall(name) for name in names), strict=True)]
    slots = ["*" if len(column) > 1 else column.pop() for column in values]
    return texts[0] + "".join(slot + text for slot, text in zip(slots, texts[1:], strict=True))


def _folded(template: str, numbers: list[set[str]]) -> str:
    parts = template.split("#")
    slots = [_slot(sorted(set(map(int, values)))) for values in numbers]
    text = parts[0] + "".join(slot + part for slot, part in zip(slots, parts[1:], strict=True))
    return text.replace("\0", "#")


def _slot(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{{{values[0]}{ELLIPSIS}{values[-1]}}}"


def as_literal(name: str) -> str:
    """Write a name so that it is no glob."""
    return WILD.sub(lambda wild: f"[{wild[0]}]", name)


def quote_ranges(name: str) -> str:
    """Write a name so that it is read as this name alone.

    >>> quote_ranges("a{0..3}"), expand_ranges(["a{{0..3}"])
    ('a{{0..3}', [('a{0..3}',)])
    """
    return RANGE.sub(lambda found: "{" + found[0], name)


def expand_ranges(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names that texts stand for, side by side; raises ValueError for ranges that do not go together.

    >>> expand_ranges(["a.{0..1}.w", "b{1..2}"])
    [('a.0.w', 'b1'), ('a.1.w', 'b2')]
    """
    read = [_read(text) for text in texts]
    lengths = [[last - first + 1 for first, last in ranges] for _, ranges in read]
    if any(length < 1 for length in lengths[0]):
        msg = f"a range in {texts[0]} ends before it begins"
        raise ValueError(msg)
    for text, other in zip(texts[1:], lengths[1:], strict=True):
        if other != lengths[0]:
            msg = f"the ranges of {texts[0]} and {text} are not equally many, or not equally long"
            raise ValueError(msg)
    if prod(lengths[0]) > MOST_NAMES_OF_RANGES:
        msg = f"{texts[0]} stands for {prod(lengths[0]):,} names, more than {MOST_NAMES_OF_RANGES:,}"
        raise ValueError(msg)
    return [tuple(_at(one, steps) for one in read) for steps in product(*map(range, lengths[0]))]


def fold_ranges(rows: Sequence[tuple[tuple[str, ...], Hashable]]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Fold rows of names that stand side by side, and are alike in all else, which is given beside the names.

    The names behind the first of a row (the pieces of one source) run together in the same place, or not at all.
    Returns each run as texts, with the places of its rows, in the order of their first rows.

    >>> fold_ranges([(("a.0", "b.1"), None), (("a.1", "b.2"), None), (("c", "d"), None)])
    [(('a.{0..1}', 'b.{1..2}'), [0, 1]), (('c', 'd'), [2])]
    """
    groups: dict[tuple[tuple[TextParts, ...], Hashable], list[_Box]] = {}
    for place, (names, alike) in enumerate(rows):
        parts, box = _parts(names, place)
        groups.setdefault((parts, alike), []).append(box)
    folded = [
        (_texts(parts, box), sorted(box.places))
        for (parts, _), boxes in groups.items()
        for box in _merged(boxes, [len(words) - 1 for words in parts])
    ]
    return sorted(folded, key=lambda run: run[1][0])


class _Box(NamedTuple):
    """Rows that fill a box: a range for each number of each name, and which numbers run together."""

    slots: tuple[tuple[tuple[int, int], ...], ...]
    places: tuple[int, ...]
    links: tuple[tuple[int, ...], ...] = ()


def _parts(names: tuple[str, ...], place: int) -> tuple[tuple[TextParts, ...], _Box]:
    """The words between the numbers of each name, and the numbers; a name with braces keeps its numbers as words."""
    joined = "".join(names)
    if "{" in joined or "}" in joined:
        return tuple([(quote_ranges(name),) for name in names]), _Box(((),) * len(names), (place,))
    split = list(map(_split, names))
    return tuple([words for words, _ in split]), _Box(tuple([slots for _, slots in split]), (place,))


@lru_cache(maxsize=2)  # a source and its target are often called alike
def _split(name: str) -> tuple[TextParts, tuple[tuple[int, int], ...]]:
    """The words between the numbers of a name, and the numbers."""
    parts = PLAIN_NUMBER.split(name)
    return tuple(parts[::2]), tuple([(n, n) for n in map(int, parts[1::2])])


def _merged(boxes: list[_Box], counts: list[int]) -> list[_Box]:
    heads, same = counts[:2], len(set(counts[1:])) < 2
    for ends in product(*(range(count - 1, -1, -1) for count in heads)) if same else ():
        link = (*ends, *ends[1:] * (len(counts) - 2))
        if len(boxes) > 1:
            boxes = list(_merge_along(boxes, link))
    return boxes


def _merge_along(boxes: list[_Box], link: tuple[int, ...]) -> Iterator[_Box]:
    """Join boxes that follow each other in the linked numbers, one of each name, and are equal in the others."""
    rows: dict[Hashable, list[_Box]] = {}
    for box in boxes:
        if not _goes_with(link, box.links):
            yield box
            continue
        first = [slots[i][0] for slots, i in zip(box.slots, link, strict=True)]
        others = tuple((*slots[:i], *slots[i + 1 :]) for slots, i in zip(box.slots, link, strict=True))
        rows.setdefault((others, box.links, tuple(n - first[0] for n in first)), []).append(box)
    for row in rows.values():
        yield from _joined(sorted(row, key=lambda box: box.slots[0][link[0]]), link)


def _goes_with(link: tuple[int, ...], links: tuple[tuple[int, ...], ...]) -> bool:
    """Ranges are read in the order in which they stand, so links must not cross, or share a number."""
    signs = [{(a > b) - (a < b) for a, b in zip(link, other, strict=True)} for other in links]
    return all(sign in ({1}, {-1}) for sign in signs)


def _joined(row: list[_Box], link: tuple[int, ...]) -> Iterator[_Box]:
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end - 1].slots[0][link[0]][1] + 1 != row[end].slots[0][link[0]][0]:
            yield _linked(row[start:end], link)
            start = end


def _linked(row: list[_Box], link: tuple[int, ...]) -> _Box:
    """Boxes that follow each other as one."""
    slots = tuple(
        (*mine[:i], (mine[i][0], theirs[i][1]), *mine[i + 1 :])
        for mine, theirs, i in zip(row[0].slots, row[-1].slots, link, strict=True)
    )
    first, last = slots[0][link[0]]
    links = (*row[0].links, link) if last > first else row[0].links
    return _Box(slots, tuple(place for box in row for place in box.places), links)


def _texts(parts: tuple[TextParts, ...], box: _Box) -> tuple[str, ...]:
    return tuple(
        words[0]
        + "".join((f"{{{a}..{b}}}" if b > a else str(a)) + word for (a, b), word in zip(slots, words[1:], strict=True))
        for words, slots in zip(parts, box.slots, strict=True)
    )


def _read(text: str) -> tuple[TextParts, list[tuple[int, int]]]:
    """The words between the ranges of a text, and the ranges."""
    words, ranges, start, word = [], [], 0, ""
    for numbers in RANGE.finditer(text):
        word += text[start : numbers.start()]
        start = numbers.end()
        if len(numbers[1]) == 1:
            words.append(word)
            ranges.append((int(numbers[2]), int(numbers[3])))
            word = ""
        else:
            word += numbers[0][1:]
    return (*words, word + text[start:]), ranges


def _at(read: tuple[TextParts, list[tuple[int, int]]], steps: tuple[int, ...]) -> str:
    words, ranges = read
    numbers = (str(first + step) for (first, _), step in zip(ranges, steps, strict=True))
    return words[0] + "".join(number + word for number, word in zip(numbers, words[1:], strict=True))
