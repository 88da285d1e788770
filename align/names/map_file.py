"""The editable map file: TOML with exact names, rename patterns and drops; what is open stands in comments.

One file format serves as result of `align map`, as input of `align convert --map` and as rules of
`align map --rules`, so that a map can be corrected by hand and fed back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from align.checkpoints.names_in_file import without_wrappers
from align.core.atomic_files import existing_file, write_text
from align.core.documents import DocumentFault, parse_toml, read_toml_text
from align.core.name_map import FRAMEWORKS
from align.core.parameters import dtype_name, is_numeric, numpy_dtype
from align.core.piece_transforms import Crop, Pad, Part, Reorder, Share, Slice, Sum
from align.core.transforms import IDENTITY, Add, Cast, Chain, Permute, Reshape, Scale, Transform
from align.errors import DestinationError, MapError
from align.names.map_result import refuse_doubled
from align.names.map_text import SCHEMA, SIDES, Faults, expand_table, map_text, users_text
from align.names.user_rules import NameRules, Rename, apply_rules
from align.words.catalogue import say, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.name_map import FrameworkName, NameMap


_TABLES = {"schema", "source", "target", "names", "rename", "dropped"}


@dataclass(frozen=True, slots=True)
class KeptLines:
    """A map file as it was, and the rules in those of its lines that the user wrote."""

    text: str
    rules: NameRules


def read_map(path: Path, source: Sequence[str], target: Sequence[str] | None) -> NameMap:
    """Read a map file as the complete map between these names.

    What wrappers put into the names of the map or of the sides stands in no map's way. Raises MapError
    listing every fault, among them exact names that the source does not have.
    """
    rules = read_rules(path)
    try:
        return _applied(rules, path, source, target)
    except MapError:
        found = applied_without_wrappers(rules, source, target)
        if found is None:
            raise
        return found


def _applied(rules: NameRules, path: Path, source: Sequence[str], target: Sequence[str] | None) -> NameMap:
    known = set(source)
    absent = [say("map_file_fault.not_in_source", name=name) for name in rules.names if name not in known]
    try:
        name_map = apply_rules(rules, source, target)
    except MapError as error:
        raise MapError(path, [*absent, *error.faults]) from error
    if absent:
        raise MapError(path, absent)
    return name_map


def read_rules(path: Path) -> NameRules:
    """Read a map or rule file; raises MissingFileError or MapError with all faults and their lines."""
    return rules_of_text(map_file_text(path), path)


def read_users_rules(path: Path) -> NameRules:
    """Read what the user said in a map or rule file, not what align found; raises as `read_rules`."""
    return _users_rules(map_file_text(path), path, given=True)


def map_file_text(path: Path) -> str:
    """The text of a map file; raises MissingFileError or MapError."""
    if path.suffix.lower() in (".csv", ".json"):
        raise MapError.of_one(path, "names_error.rows_of_a_map", suffix=path.suffix)
    try:
        return read_toml_text(existing_file(path, "map file"))
    except DocumentFault as fault:
        raise MapError(path, [str(fault)]) from fault


def rules_of_text(text: str, path: Path) -> NameRules:
    """Read the text of a map file; raises MapError with all faults and their lines."""
    faults = Faults(text)
    document = _document(faults, path)
    for key in document:
        if key not in _TABLES:
            faults.at(f"[{key}]" if isinstance(document[key], dict) else key, say("map_file_fault.unknown_table"))
    if document.get("schema", SCHEMA) != SCHEMA:
        faults.at("schema", say("map_file_fault.schema", schema=repr(document["schema"]), expected=SCHEMA))
    names = _names(document.get("names", {}), faults)
    first = {source: targets[0] for source, targets in names.items()}
    further = {source: tuple(targets[1:]) for source, targets in names.items() if len(targets) > 1}
    renames = tuple(_renames(document.get("rename", []), faults))
    drops = _drops(document.get("dropped", {}), faults)
    frameworks = declared_framework(document, "source", faults), declared_framework(document, "target", faults)
    if faults:
        raise MapError(path, faults)
    return NameRules(str(path), first, renames, drops["source"], drops["target"], frameworks, further, faults.lines)


def _document(faults: Faults, path: Path) -> dict[str, Any]:
    """The tables of a file; where TOML refuses it for what stands twice, without that."""
    try:
        return parse_toml(faults.text)
    except DocumentFault:
        text = faults.mended()
    try:
        return parse_toml(text)
    except DocumentFault as fault:
        raise MapError(path, [*faults, str(fault)]) from fault


def declared_framework(document: Any, key: str, faults: list[str]) -> FrameworkName | None:
    """Whose names a side of a map or record has; None where it does not say, or says what is no framework."""
    said = document.get(key)
    known = FRAMEWORKS.get(said) if isinstance(said, str) else None
    if known is None and said is not None:
        faults.append(say("map_file_fault.framework", name=key, said=repr(said), known=[*FRAMEWORKS]))
    return known


def write_map(
    path: Path,
    name_map: NameMap,
    kept: KeptLines | None = None,
    *,
    expand: bool = False,
    tried: str = "",
    choices: Sequence[list[str]] = (),
) -> None:
    """Write a name map as an editable file, whole or not at all; `expand` gives each pair a line of its own.

    `tried` is the line that says what a trial was made of, `choices` are the blocks of lines that say what
    would settle each ambiguous group.
    `kept` are the lines of the user's that it takes over.
    Raises DestinationError if they cannot stand in one file with align's, and MapError for a map that makes a target
    twice.
    """
    refuse_doubled(name_map, path)
    kept = kept or KeptLines("", NameRules())
    text = map_text(name_map, kept.text, kept.rules, expand=expand, tried=tried, choices=choices)
    if kept.text and not _are_kept(kept.rules, text, path):
        raise DestinationError.of("names_error.lines_not_kept", path=path)
    write_text(path, text)


def kept_lines(path: Path) -> KeptLines:
    """What the user wrote into a map file that is about to be made again; nothing if there is no file.

    Raises MapError with all faults.
    """
    if not path.exists():
        return KeptLines("", NameRules())
    text = map_file_text(path)
    return KeptLines(text, _users_rules(text, path))


def _are_kept(rules: NameRules, text: str, path: Path) -> bool:
    """Tell whether a text says all that the user said; a target's own name or a transform may have been added."""
    try:
        there = _users_rules(text, path)
    except MapError:
        return False
    said, says = ((set(one.names), one.renames, one.dropped_source, one.dropped_target) for one in (rules, there))
    return said == says


def _users_rules(text: str, path: Path, *, given: bool = False) -> NameRules:
    rules = rules_of_text(users_text(text, given=given), path)
    return replace(rules, frameworks=(None, None))


def _names(table: Any, faults: Faults) -> dict[str, list[tuple[str, Transform]]]:
    """The targets of each source: one, or a list of those into which it is cut."""
    names: dict[str, list[tuple[str, Transform]]] = {}
    if not isinstance(table, dict):
        faults.at("names", say("map_file_fault.names_no_table"))
        return names
    for source, value in expand_table("names", _quoted("names", table, faults), faults).items():
        targets = value if isinstance(value, list) and value else [value]
        parsed = [_target(f"[names] {source}", target, faults) for target in targets]
        if found := [target for target in parsed if target]:
            names[source] = found
    return names


def _quoted(name: str, table: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """The rules of a table without those whose names stand without quotes: their dots make tables within it."""
    for key, value in table.items():
        for bare in _bare_names(key, value):
            faults.at(f"[{name}] {bare}", say("map_file_fault.needs_quotes", name=bare))
    return {key: value for key, value in table.items() if not any(_bare_names(key, value))}


def _bare_names(key: str, value: Any) -> Iterator[str]:
    """The names that a table of tables spells, none if it is one that says what becomes of a name."""
    if isinstance(value, dict) and not value.keys() & {"to", "op"}:
        for inner, one in value.items():
            path = f"{key}.{inner}"
            yield from (_bare_names(path, one) if isinstance(one, dict) and "to" not in one else [path])


def _target(where: str, value: Any, faults: Faults, known: tuple[str, ...] = ("to",)) -> tuple[str, Transform] | None:
    if isinstance(value, str):
        return value, IDENTITY
    if not isinstance(value, dict):
        faults.at(where, say("map_file_fault.no_target"))
        return None
    fields = {key: item for key, item in value.items() if key not in known}
    if unknown := [] if "op" in fields else list(fields):
        faults.at(where, say("map_file_fault.unknown_keys", keys=unknown, known=[*known]))
    if not isinstance(value.get("to"), str):
        missing = "to" not in value
        to = "" if missing else repr(value["to"])
        faults.at(where, say("map_file_fault.to_missing") if missing else say("map_file_fault.to_no_name", to=to))
    if unknown or not isinstance(value.get("to"), str):
        return None
    try:
        return value["to"], parse_transform(fields) if fields else IDENTITY
    except ValueError as error:
        faults.at(where, text_of(error))
        return None


def _renames(tables: Any, faults: Faults) -> Iterator[Rename]:
    for number, table in enumerate(tables if isinstance(tables, list) else [tables], 1):
        where = f"[[rename]] {number}"
        if not isinstance(table, dict) or not isinstance(table.get("from"), str):
            missing = isinstance(table, dict) and "from" not in table
            faults.at(where, say("map_file_fault.from_missing" if missing else "map_file_fault.no_rename"))
            continue
        faults.stands(f"[[rename]] {table['from']}", where)
        parsed = _target(where, table, faults, ("from", "to", "back"))
        back = table.get("back")
        if back is not None and not _is_renaming(back):
            faults.at(where, say("map_file_fault.no_way_back"))
            continue
        wrong = [
            say("fault_list.one", head=f"{way['from']!r} -> {way.get('to')!r}", fault=fault)
            for way in (table, back or {})
            if way and (fault := _rename_fault(way["from"], way.get("to")))
        ]
        for fault in wrong:
            faults.at(where, fault)
        if parsed and not wrong:
            yield Rename(re.compile(table["from"]), *parsed, (re.compile(back["from"]), back["to"]) if back else None)


def _is_renaming(table: object) -> bool:
    return (
        isinstance(table, dict)
        and table.keys() == {"from", "to"}
        and all(isinstance(value, str) for value in table.values())
    )


def _rename_fault(pattern: str, to: Any) -> str:
    """What is wrong with a pattern, or with the groups that its template asks for; "" if nothing is."""
    try:
        compiled = re.compile(pattern)
        names = {number: name for name, number in compiled.groupindex.items()}
        groups = (f"(?P<{names[n]}>)" if n in names else "()" for n in range(1, compiled.groups + 1))
        if (match := re.match("".join(groups), "")) and isinstance(to, str):
            match.expand(to)
    except (re.error, IndexError) as error:
        return str(error)
    return ""


def _drops(tables: Any, faults: Faults) -> dict[str, dict[str, str]]:
    drops: dict[str, dict[str, str]] = {side: {} for side in SIDES}
    if not isinstance(tables, dict):
        faults.at("dropped", say("map_file_fault.dropped_no_tables"))
        return drops
    for key in tables:
        if key not in SIDES:
            written = next(
                (rule for rule in (f"[dropped.{key}]", f"[dropped] {key}") if faults.place(rule)), "[dropped]"
            )
            faults.at(written, say("map_file_fault.unknown_side", name=key))
    for side in SIDES:
        table = tables.get(side, {})
        if not isinstance(table, dict):
            faults.at(f"[dropped] {side}", say("map_file_fault.dropped_no_table", side=side))
            continue
        table = _quoted(f"dropped.{side}", table, faults)
        for name, reason in expand_table(f"dropped.{side}", table, faults).items():
            if isinstance(reason, str) and reason.strip():
                drops[side][name] = reason
            else:
                faults.at(f"[dropped.{side}] {name}", say("map_file_fault.no_reason"))
    return drops


def applied_without_wrappers(rules: NameRules, source: Sequence[str], target: Sequence[str] | None) -> NameMap | None:
    """The map between the names as they are; None if no wrapper put anything anywhere, or if the rest does not fit."""
    ends = without_wrappers(source, inner=True), without_wrappers(target or (), inner=True)
    bare = _bare_rules(rules)
    if bare == rules and all(was == new for end in ends for was, new in end.items()):
        return None
    left, right = ({new: was for was, new in end.items()} for end in ends)
    if any(name not in left for name in bare.names):
        return None
    try:
        return _as_named(apply_rules(bare, [*left], None if target is None else [*right]), left, right)
    except MapError:
        return None


def _bare_rules(rules: NameRules) -> NameRules:
    """The rules with their exact names bare; patterns stay."""
    source = without_wrappers([*rules.names, *rules.dropped_source], inner=True)
    targets = [to for name in rules.names for to, _, _ in rules.targets_of(name)]
    target = without_wrappers([*targets, *rules.dropped_target], inner=True)
    return replace(
        rules,
        names={source[name]: (target[to], change) for name, (to, change) in rules.names.items()},
        further={
            source[name]: tuple((target[to], change) for to, change in several)
            for name, several in rules.further.items()
        },
        dropped_source={source[name]: reason for name, reason in rules.dropped_source.items()},
        dropped_target={target[name]: reason for name, reason in rules.dropped_target.items()},
    )


def _as_named(name_map: NameMap, source: Mapping[str, str], target: Mapping[str, str]) -> NameMap:
    """The map with the names of both sides as they are; a map that is read holds no ambiguous ones."""
    known = {"source": source, "target": target}

    def name(side: str, bare: str) -> str:
        return known[side].get(bare, bare)

    return replace(
        name_map,
        pairings=tuple(
            replace(item, source=name("source", item.source), target=name("target", item.target))
            for item in name_map.pairings
        ),
        dropped=tuple(replace(item, name=name(item.side, item.name)) for item in name_map.dropped),
        unmatched=tuple(replace(item, name=name(item.side, item.name)) for item in name_map.unmatched),
    )


# Transforms read back from their table form, as map files and records hold it.


def parse_transform(table: Mapping[str, Any]) -> Transform:
    """Read the table form back; raises ValueError naming what is wrong."""
    fields = dict(table)
    op = fields.pop("op", None)
    form = _FORMS.get(op) if isinstance(op, str) else None
    if form is None:
        msg = say("transform_fault.no_such_op", op=repr(op), known=[*_FORMS])
        raise ValueError(msg)
    try:
        return form.make(**_arguments(str(op), form, fields))
    except ValueError as error:
        msg = say("transform_fault.malformed", table=str(dict(table)), fault=text_of(error))
        raise ValueError(msg) from error


class _Form(NamedTuple):
    """What makes the transform of an op, and how each thing is read that its table must and may say."""

    make: Callable[..., Transform]
    needed: dict[str, Callable[[str, Any], Any]]
    optional: dict[str, Callable[[str, Any], Any]]


def _arguments(op: str, form: _Form, fields: Mapping[str, Any]) -> dict[str, Any]:
    known = form.needed | form.optional
    if unknown := sorted(fields.keys() - known):
        msg = say("transform_fault.unknown", op=op, needed=[*form.needed], unknown=unknown)
        if not form.needed:
            msg = say("transform_fault.takes_nothing", op=op, unknown=unknown)
        raise ValueError(msg)
    if missing := [name for name in form.needed if name not in fields]:
        msg = say("transform_fault.lacks", op=op, missing=missing)
        raise ValueError(msg)
    return {_KEYWORDS.get(name, name): known[name](name, value) for name, value in fields.items()}


def _steps(_: str, tables: object) -> tuple[Transform, ...]:
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        msg = say("transform_fault.steps", value=repr(tables))
        raise ValueError(msg)
    if any(table.get("op") == "chain" for table in tables):
        msg = say("transform_fault.chain_in_chain")
        raise ValueError(msg)
    ops = [table.get("op") for table in tables]
    if "part" in ops and set(ops[ops.index("part") :]) != {"part"}:
        msg = say("transform_fault.part_not_last")
        raise ValueError(msg)
    return tuple(parse_transform(table) for table in tables)


def _count(what: str, value: object) -> int:
    if type(value) is not int or value < 0:
        msg = say("transform_fault.count", name=what, value=repr(value))
        raise ValueError(msg)
    return value


def _counts(what: str, values: object) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or not all(type(n) is int and n >= 0 for n in values):
        msg = say("transform_fault.counts", name=what, value=repr(values))
        raise ValueError(msg)
    return tuple(values)


def _spans(what: str, values: object) -> tuple[tuple[int, int], ...]:
    pairs = [_counts(what, one) for one in values] if isinstance(values, (list, tuple)) else []
    if not pairs or not all(len(pair) == 2 and pair[0] < pair[1] for pair in pairs):
        msg = say("transform_fault.spans", name=what, value=repr(values))
        raise ValueError(msg)
    return tuple((start, stop) for start, stop in pairs)


def _permutation(what: str, values: object) -> tuple[int, ...]:
    numbers = _counts(what, values)
    if sorted(numbers) != list(range(len(numbers))):
        count = len(numbers)
        msg = say("transform_fault.permutation", name=what, count=count, top=count - 1, value=str(list(numbers)))
        raise ValueError(msg)
    return numbers


def _blocks(what: str, values: object) -> tuple[int, ...]:
    if numbers := _permutation(what, values):
        return numbers
    msg = say("transform_fault.no_block", name=what)
    raise ValueError(msg)


def _dtype(_: str, name: object) -> str:
    try:
        canonical = dtype_name(numpy_dtype(name)) if isinstance(name, str) else ""
    except (TypeError, ValueError):
        canonical = ""
    if not is_numeric(canonical):
        msg = say("transform_fault.dtype", value=repr(name))
        raise ValueError(msg)
    return canonical


def _number(what: str, value: object) -> float:
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        value = f"{str(value)[:6]}..."
    msg = say("transform_fault.number", name=what, value=repr(value))
    raise ValueError(msg)


def _finite(what: str, value: object) -> float:
    if not isfinite(number := _number(what, value)):
        msg = say("transform_fault.number", name=what, value=repr(value))
        raise ValueError(msg)
    return number


def _factor(what: str, value: object) -> float:
    factor = _finite(what, value)
    if not factor or not isfinite(1.0 / factor):
        msg = say("transform_fault.factor", name=what, value=repr(value))
        raise ValueError(msg)
    return factor


_KEYWORDS = {"from": "origin"}
_SPAN: dict[str, Callable[[str, Any], Any]] = {"axis": _count, "start": _count, "stop": _count}
_SIZE: dict[str, Callable[[str, Any], Any]] = {"axis": _count, "size": _count}
_FORMS = {
    "identity": _Form(lambda: IDENTITY, {}, {}),
    "reshape": _Form(Reshape, {"shape": _counts}, {"from": _counts}),
    "permute": _Form(Permute, {"axes": _permutation}, {}),
    "cast": _Form(Cast, {"dtype": _dtype}, {"from": _dtype}),
    "slice": _Form(Slice, _SPAN, {"from": _counts, "zeros": _spans}),
    "part": _Form(Part, {**_SPAN, "shape": _counts}, {"zeros": _spans}),
    "sum": _Form(Sum, {"term": _count, "of": _count}, {}),
    "share": _Form(Share, {"term": _count, "of": _count}, {}),
    "crop": _Form(Crop, _SIZE, {"value": _number, "from": _count}),
    "pad": _Form(Pad, _SIZE, {"value": _number, "from": _count}),
    "reorder": _Form(Reorder, {"axis": _count, "blocks": _blocks}, {}),
    "add": _Form(Add, {"value": _finite}, {}),
    "scale": _Form(Scale, {"factor": _factor}, {}),
    "chain": _Form(Chain, {"steps": _steps}, {}),
}
