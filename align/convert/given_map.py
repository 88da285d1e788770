"""What a user gives as `--map`: a map at hand, a map file, or the record of a conversion.

A record is read as the map that it was made with and all that leads back. It knows more than a map: the sources' shapes
and dtypes, which undo a reshape and a cast, the values of small tensors that were left out, and which tensors were one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.checkpoints.names_in_file import REASONS
from align.convert.plan_conversion import plan_conversion, refilled
from align.core.align_sequences import grouped
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, Form, read_json
from align.core.name_map import Dropped, NameMap, Pairing, Unmatched
from align.core.parameters import is_numeric, numpy_dtype
from align.core.piece_transforms import filled_up, is_cut, join_fault
from align.core.transforms import Cast
from align.errors import MapError, UsageError
from align.names.map_file import declared_framework, parse_transform, read_rules
from align.names.user_rules import NameRules, apply_rules, as_literal
from align.words.catalogue import close_names, say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import Fill, FrameworkName, SideName
    from align.core.parameters import Array, Shape, StoredTensor
    from align.core.transforms import Transform

    Tensors = Mapping[str, StoredTensor]


RECORD = Form({"type": "object"})  # what stands in it is told fault by fault
SCHEMAS = "mindalign.convert/3", "mindalign.convert/2", "mindalign.convert/1"


def read_given_map(given: NameMap | Path | str) -> TwoWayMap:
    """Return a map that can be followed either way; raises MissingFileError, or MapError with all faults."""
    if isinstance(given, NameMap):
        return as_two_way(given, "the map")
    path = existing_file(Path(given), "map file")
    return read_record_map(path) if is_record(path) else TwoWayMap(read_rules(path))


def is_record(path: Path) -> bool:
    """Tell whether a file is meant as a record: it is JSON, not TOML."""
    with path.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"{")


def read_record_map(path: Path) -> TwoWayMap:
    """Read a record; raises MapError listing every fault."""
    try:
        document = RECORD.require(read_json(path))
    except DocumentFault as error:
        raise MapError(path, [str(error)]) from error
    if document.get("schema") not in SCHEMAS:
        fault = say("given_map.schema", schema=document.get("schema"), expected=SCHEMAS[0])
        raise MapError(path, [fault], say("given_map.as_toml"))
    faults: list[str] = []
    tensors = _each(document.get("tensors"), "tensors", _tensor, faults)
    dropped = _by_name(document.get("dropped", {}), "dropped", _text, faults)
    values = _by_name(document.get("dropped_values", {}), "dropped_values", _value, faults)
    ties = _each(document.get("ties", []), "ties", _texts, faults)
    there = set(_each(document.get("dropped_target", []), "dropped_target", _text, faults))
    frameworks = (
        declared_framework(document, "source_framework", faults),
        declared_framework(document, "framework", faults),
    )
    if faults or (faults := list(_repeat_faults(tensors))):
        raise MapError(path, faults)
    with_source = [tensor for tensor in tensors if tensor.source]
    names, further = as_rules((tensor.source, tensor.target, tensor.transform) for tensor in with_source)
    filled = {as_literal(tensor.target): FILLED for tensor in tensors if not tensor.source}
    drops = {as_literal(name): reason for name, reason in dropped.items()}
    rules = NameRules(
        f"the record {path}",
        names=names,
        dropped_source={as_literal(name): reason for name, reason in dropped.items() if name not in there},
        dropped_target=drops | filled,  # what the source dropped, the target may have too
        frameworks=frameworks,
        further=further,
    )
    return TwoWayMap(
        rules,
        forms={tensor.source: tensor.source_form for tensor in with_source},
        target_forms={tensor.target: tensor.form for tensor in with_source if tensor.form},
        values=values,
        ties=tuple(ties),
    )


class _Tensor(NamedTuple):
    source: str
    target: str
    transform: Transform
    source_form: tuple[Shape, str]
    form: tuple[Shape, str] | None


def _tensor(entry: Any) -> _Tensor:
    return _Tensor(
        _text(entry["source"]),
        _text(entry["target"]),
        parse_transform(entry["transform"]),
        (_shape(entry["source_shape"]), _dtype(entry["source_dtype"])),
        (_shape(entry["shape"]), _dtype(entry["dtype"])) if "shape" in entry else None,
    )


def _repeat_faults(tensors: Sequence[_Tensor]) -> Iterable[str]:
    """Yield what stands against following the record in either direction: names that stand twice, and are no pieces."""
    sources = grouped((tensor.source, tensor) for tensor in tensors if tensor.source)
    targets = grouped((tensor.target, tensor) for tensor in tensors)
    for name, group in sources.items():
        if len(group) > 1 and not all(is_cut(tensor.transform) for tensor in group):
            yield say("given_map.source_of_several", name=name, count=len(group))
    for name, group in targets.items():
        if len(group) > 1 and (fault := join_fault([tensor.transform for tensor in group])):
            yield say("given_map.target_of_several", name=name, count=len(group), fault=fault)


def _value(entry: Any) -> Array:
    shape, dtype = _shape(entry["shape"]), _dtype(entry["dtype"])
    return np.frombuffer(bytes.fromhex(entry["data"]), numpy_dtype(dtype)).reshape(shape)


def _each(entries: Any, where: str, read: Callable[[Any], Any], faults: list[str]) -> list[Any]:
    values = []
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        value, fault = _tried(read, entry)
        faults += [say("fault_list.one", head=f"{where}[{number}]", fault=fault)] if fault else []
        values.append(value)
    return values


def _tried(read: Callable[[Any], Any], entry: Any) -> tuple[Any, str]:
    try:
        return read(entry), ""
    except (KeyError, TypeError, ValueError) as error:
        return None, repr(error)


def _by_name(table: Any, where: str, read: Callable[[Any], Any], faults: list[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        faults.append(say("given_map.no_object", where=where))
        return {}
    return dict(zip(table, _each(list(table.values()), where, read, faults), strict=True))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(say("given_map.no_text", value=value))
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values)


def _shape(values: Any) -> Shape:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise TypeError(say("given_map.no_shape", values=values))
    return tuple(values)


def _dtype(name: Any) -> str:
    if not is_numeric(_text(name)):
        raise ValueError(say("given_map.no_dtype", name=name))
    return str(name)


# A map that is followed from its source names to its targets, or back.
#
# Back, each transform is inverted, what the map dropped is filled again (from the value that a record kept, else from
# the default that a layer rule states), and what only the target had is dropped. The direction is the one against
# which nothing stands, and never the likelier of two. Mostly names decide: only one side of the map has those of the
# file. Where both have them and the values would differ, what is stated is held against the file and its destination:
# whose names the sides have, and the shapes and dtypes that a record or a cast remembers. What does not decide is
# refused.

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
        for source, there in (origins := names.sources_of(name)):
            back, fault = _undone(there, *two_way.forms.get(source, (None, None)))
            if back is None:
                unmatched.append(
                    Unmatched(name, "source", sentence("way_back.cannot_go_back", source=source, fault=fault))
                )
            else:
                pairings.append(Pairing(name, source, "user", 1.0, back))
        if drop and not origins:
            dropped.append(Dropped(name, "source", drop[0]))
        elif not origins:
            unmatched.append(Unmatched(name, "source", names.why_not(name)))
    return pairings, dropped, unmatched


def _undone(there: Transform, shape: Shape | None, dtype: str | None) -> tuple[Transform | None, str]:
    try:
        return there.inverse(shape, dtype), ""
    except ValueError as error:
        return None, str(error)


class SourceNames:
    """The names of a map's sources, by those of its targets."""

    def __init__(self, rules: NameRules) -> None:
        self.rules = rules
        self.exact = grouped((target, (source, transform)) for source, target, transform in rules.all_names)
        shared = {target: origins for target, origins in self.exact.items() if len(origins) > 1}
        self.shared = {
            target: [source for source, _ in origins]
            for target, origins in shared.items()
            if join_fault([transform for _, transform in origins])
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
        return sentence("map_reason.no_rule_leads")


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
    both = say("map_direction.sides_then", sides=sides, wanted=wanted)
    if set(two_way.rules.frameworks) == {"torch", "mindspore"}:
        return UsageError(message, wanted)
    return UsageError(message, sides if ends.file or ends.destination else both)
