"""A map that is followed from its source names to its targets, or back.

Back, each transform is inverted, what the map dropped is filled again (from the value that a record kept, else from the
default that a layer rule states), and what only the target had is dropped. The direction is the one against which
nothing stands, and never the likelier of two. Mostly names decide: only one side of the map has those of the file.
Where both have them and the values would differ, what is stated is held against the file and its destination: whose
names the sides have, and the shapes and dtypes that a record or a cast remembers. What does not decide is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.checkpoints.names_in_file import REASONS
from align.convert.planning.plan_conversion import plan_conversion, refilled
from align.core.name_map import Dropped, NameMap, Pairing, Unmatched
from align.core.piece_transforms import filled_up, join_fault
from align.core.transforms import Cast
from align.errors import MapError, UsageError
from align.names.fold_names import as_literal
from align.names.user_rules import NameRules, apply_rules
from align.words.catalogue import say, sentence
from align.words.message_words import close_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array
    from align.core.name_map import Fill, FrameworkName, SideName
    from align.core.parameters import Shape
    from align.core.transforms import Transform

    Tensors = Mapping[str, StoredTensor]

Ties = tuple[tuple[str, ...], ...]
Target = tuple[str, "Transform"]
SIDES: tuple[SideName, SideName] = ("source", "target")
FILLED = sentence("fill.filled_before")


@dataclass(frozen=True, slots=True)
class TwoWayMap:
    """Rules, and what is known beside them.

    `given` is the map that the rules were made of, if it was one. `forms` holds shapes and dtypes of sources,
    `target_forms` of targets, `values` dropped sources, `ties` targets that were one tensor.
    """

    rules: NameRules
    given: NameMap | None = None
    forms: Mapping[str, tuple[Shape, str]] = field(default_factory=dict)
    target_forms: Mapping[str, tuple[Shape, str]] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    ties: Ties = ()


@dataclass(frozen=True, slots=True)
class DirectedMap:
    """A map followed in one direction, with all that stands against it for the file at hand."""

    name_map: NameMap
    backwards: bool
    fills: tuple[Fill, ...] = ()
    ties: Ties = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def as_two_way(name_map: NameMap, label: str) -> TwoWayMap:
    """A map at hand."""
    drops = {side: {as_literal(d.name): d.reason for d in name_map.dropped if d.side == side} for side in SIDES}
    names, further = as_rules((p.source, p.target, p.transform) for p in name_map.pairings)
    rules = NameRules(label, names, (), drops["source"], drops["target"], name_map.frameworks, further)
    return TwoWayMap(rules, name_map)


def as_rules(
    pairs: Iterable[tuple[str, str, Transform]],
) -> tuple[dict[str, Target], dict[str, tuple[Target, ...]]]:
    """Source, target and transform of each pair as the `names` and `further` of NameRules."""
    names: dict[str, Target] = {}
    further: dict[str, tuple[Target, ...]] = {}
    for source, target, transform in pairs:
        if source in names:
            further[source] = (*further.get(source, ()), (target, transform))
        names.setdefault(source, (target, transform))
    return names, further


def follow_forward(two_way: TwoWayMap, tensors: Mapping[str, StoredTensor]) -> DirectedMap:
    """Follow the map from its sources to its targets."""
    if two_way.given is not None:
        return DirectedMap(two_way.given, backwards=False, ties=two_way.ties)
    rules = two_way.rules
    try:
        name_map = apply_rules(rules, list(tensors), None)
    except MapError as error:
        return DirectedMap(NameMap("", ""), backwards=False, problems=error.faults)
    absent = [Pairing(name, to, "user", 1.0, change) for name, to, change in rules.all_names if name not in tensors]
    name_map = replace(
        name_map,
        pairings=(*name_map.pairings, *absent),
        unmatched=tuple(_suggested(name_map.unmatched, rules.names)),
        unused_rules=tuple(rule for rule in name_map.unused_rules if not rule.startswith("[dropped.target]")),
    )
    only_there = [glob for glob in rules.dropped_target if glob not in rules.dropped_source]
    fills, lost = refilled(only_there, {}, {p.target for p in name_map.pairings})
    missing = [glob for glob in lost if rules.dropped_target[glob] == FILLED]
    warnings = (sentence("convert_warning.filled_before", names=missing),) if missing else ()
    return DirectedMap(name_map, False, tuple(fills), two_way.ties, warnings)


def follow_backward(two_way: TwoWayMap, tensors: Mapping[str, StoredTensor]) -> DirectedMap:
    """Follow the map from its targets to its sources."""
    rules, names = two_way.rules, SourceNames(two_way.rules)
    pairings, dropped, unmatched = _led_back(two_way, names, tensors)
    absent = [
        Pairing(to, source, "user", 1.0)
        for to, found in names.exact.items()
        for source, _ in found
        if to not in tensors
    ]
    named = {*(drop.name for drop in dropped), *(pairing.target for pairing in (*pairings, *absent))}
    drops = [glob for glob, reason in rules.dropped_source.items() if reason not in REASONS]
    fills, lost = refilled(drops, two_way.values, named)
    warnings = []
    if lost:
        warnings.append(sentence("convert_warning.dropped_before", names=lost))
    if cut := [pair for pair in pairings if filled_up(pair.transform)]:
        warnings.append(sentence("convert_warning.cropped_before", names=[pair.target for pair in cut]))
    name_map = NameMap(
        "target",
        "source",
        (*pairings, *absent),
        tuple(dropped),
        unmatched=tuple(_suggested(unmatched, names.exact)),
        frameworks=(rules.frameworks[1], rules.frameworks[0]),
    )
    sources = {p.source: p.target for p in pairings}
    ties = tuple(tuple(sources[name] for name in group if name in sources) for group in two_way.ties)
    return DirectedMap(name_map, True, tuple(fills), ties, tuple(warnings))


def _led_back(
    two_way: TwoWayMap, names: SourceNames, tensors: Iterable[str]
) -> tuple[list[Pairing], list[Dropped], list[Unmatched]]:
    """What becomes of each tensor on the way back: it is paired, once for each of its sources, dropped, or neither."""
    pairings: list[Pairing] = []
    dropped: list[Dropped] = []
    unmatched: list[Unmatched] = []
    for name in tensors:
        drop = two_way.rules.drop_of("target", name)
        for source, there in (found := names.sources_of(name)):
            back, fault = _undone(there, *two_way.forms.get(source, (None, None)))
            if back is None:
                unmatched.append(
                    Unmatched(name, "source", sentence("way_back.cannot_go_back", source=source, fault=fault))
                )
            else:
                pairings.append(Pairing(name, source, "user", 1.0, back))
        if drop and not found:
            dropped.append(Dropped(name, "source", drop[0]))
        elif not found:
            unmatched.append(Unmatched(name, "source", names.why_not(name)))
    return pairings, dropped, unmatched


def _undone(there: Transform, shape: Shape | None, dtype: str | None) -> tuple[Transform | None, str]:
    """The inverse, or why there is none."""
    try:
        return there.inverse(shape, dtype), ""
    except ValueError as error:
        return None, str(error)


class SourceNames:
    """The names of a map's sources, by those of its targets."""

    def __init__(self, rules: NameRules) -> None:
        self.rules = rules
        self.exact: dict[str, list[Target]] = {}
        for source, target, transform in rules.all_names:
            self.exact.setdefault(target, []).append((source, transform))
        shared = {target: found for target, found in self.exact.items() if len(found) > 1}
        self.shared = {
            target: [source for source, _ in found]
            for target, found in shared.items()
            if join_fault([transform for _, transform in found])
        }

    def sources_of(self, target: str) -> list[Target]:
        """Sources and transforms of a target name, several if it is joined of them.

        There are none if no rule leads to it from a source that leads back to it.
        """
        if target in self.exact:
            return [] if target in self.shared else self.exact[target]
        for rename in self.rules.renames:
            if rename.back and (found := self.rules.matched([rename.back[0]], target)):
                source = found[1].expand(rename.back[1])
                there = self.rules.target_of(source)
                if there and there[0] == target and not self.rules.drop_of("source", source):
                    return [(source, there[1])]
        return []

    def why_not(self, target: str) -> str:
        """Why no source is known for a target name."""
        if target in self.shared:
            return sentence("way_back.all_lead", sources=self.shared[target])
        for rename in self.rules.renames:
            if rename.back and (found := self.rules.matched([rename.back[0]], target)):
                source = found[1].expand(rename.back[1])
                return sentence("way_back.leads_elsewhere", pattern=rename.pattern.pattern, source=source)
        if any(rename.back is None for rename in self.rules.renames):
            return sentence("way_back.rename_without_back")
        return sentence("way_back.no_rule")


def _suggested(unmatched: Sequence[Unmatched], known: Collection[str]) -> Iterator[Unmatched]:
    close = close_names((one.name for one in unmatched if one.name not in known), known)
    return (replace(one, suggestions=close.get(one.name, ())) for one in unmatched)


@dataclass(frozen=True, slots=True)
class EndFrameworks:
    """Whose names the file has by its format, and whose the destination is to have; None where nothing says so."""

    file: FrameworkName | None = None
    destination: FrameworkName | None = None


def choose_direction(two_way: TwoWayMap, tensors: Tensors, ends: EndFrameworks) -> DirectedMap:
    """Follow the map in the direction that fits these tensors; `problems` tells what stands against it if none does.

    Raises UsageError if both directions fit, with different results, and nothing that is stated decides which is meant.
    """
    known = names_known(two_way, tensors)
    whole = two_way.given is None or two_way.given.complete
    follow = (follow_forward, follow_backward) if whole else (follow_forward,)
    able = [one for one, count in zip(follow, known, strict=False) if count == len(tensors)]
    sound = [way for one in able if not (way := _checked(one(two_way, tensors), tensors)).problems]
    if not sound:
        return _checked(
            (follow_backward if whole and known[1] > known[0] else follow_forward)(two_way, tensors), tensors
        )
    if len(sound) == 1 or _meaning(sound[0]) == _meaning(sound[1]):
        return sound[0]
    said = _said(two_way, tensors, ends, sound)
    if len(said) != 1:
        raise _undecided(two_way, ends, sound)
    return sound[said.pop()]


def names_known(two_way: TwoWayMap, names: Iterable[str]) -> tuple[int, int]:
    """How many of the file's names the map has as sources, and how many as targets."""
    rules, back = two_way.rules, SourceNames(two_way.rules)
    listed = list(names)
    sources = sum(bool(rules.target_of(name) or rules.drop_of("source", name)) for name in listed)
    return sources, sum(bool(back.sources_of(name) or rules.drop_of("target", name)) for name in listed)


def _checked(way: DirectedMap, tensors: Tensors) -> DirectedMap:
    if way.problems:
        return way
    return replace(way, problems=plan_conversion(tensors, way.name_map, way.fills).problems)


def _meaning(way: DirectedMap) -> object:
    """Equal for two ways that write the same tensors."""
    fills = {(fill.name, fill.value.dtype.str, fill.value.shape, fill.value.tobytes()) for fill in way.fills}
    return {(pair.source, pair.target, pair.transform) for pair in way.name_map.pairings}, fills


def _said(two_way: TwoWayMap, tensors: Tensors, ends: EndFrameworks, ways: Sequence[DirectedMap]) -> set[bool]:
    """Which ways are stated, `True` for backwards; several if the statements contradict each other."""

    def sides(way: DirectedMap) -> Sequence[FrameworkName | None]:
        return two_way.rules.frameworks[:: -1 if way.backwards else 1]

    clues: tuple[Callable[[DirectedMap], bool], ...] = (
        lambda way: ends.file is None or sides(way)[0] in (None, ends.file),
        lambda way: ends.destination is None or sides(way)[1] in (None, ends.destination),
        lambda way: _has_forms(two_way, tensors, way),
    )
    fitting = ([way.backwards for way in ways if fits(way)] for fits in clues)
    return {only[0] for only in fitting if len(only) == 1}


def _has_forms(two_way: TwoWayMap, tensors: Tensors, way: DirectedMap) -> bool:
    """Tell whether the tensors have the shapes and dtypes that are remembered of the side from which the way starts."""
    forms = two_way.target_forms if way.backwards else two_way.forms
    return all(
        forms.get(pair.source) in (None, (tensors[pair.source].shape, tensors[pair.source].dtype))
        and _has_origin(pair, tensors[pair.source].dtype)
        for pair in way.name_map.pairings
    )


def _has_origin(pair: Pairing, dtype: str) -> bool:
    for step in pair.transform.steps:
        if isinstance(step, Cast) and step.origin not in (None, dtype):
            return False
        dtype = step.output_dtype(dtype)
    return True


def _undecided(two_way: TwoWayMap, ends: EndFrameworks, ways: Sequence[DirectedMap]) -> UsageError:
    there, back = ({pair.source: pair for pair in way.name_map.pairings} for way in ways)
    first = next((name for name in there if there[name] != back.get(name)), "")
    message = say("map_direction.both", label=two_way.rules.label, first=first or say("map_direction.fill"))
    wanted, sides = say("map_direction.name_destination"), say("map_direction.state_sides")
    if set(two_way.rules.frameworks) == {"torch", "mindspore"}:
        return UsageError(message, wanted)
    return UsageError(message, sides if ends.file or ends.destination else f"{sides}; then {wanted}")
