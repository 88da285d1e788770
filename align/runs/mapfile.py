"""The editable map file: TOML with exact names, rename patterns and drops; what is open stands in comments.

One file format serves as result of `align map`, as input of `align convert --map` and as rules of
`align map --rules`, so that a map can be corrected by hand and fed back.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from align.core.files import existing_file, write_text
from align.core.names import FRAMEWORKS
from align.core.rename import NameRules, Rename, as_literal
from align.core.transform_parse import parse_transform
from align.core.transforms import IDENTITY, Identity
from align.errors import MapError
from align.steps.apply_rules import apply_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.names import FrameworkName, NameMap, Pairing
    from align.core.transforms import Transform

SCHEMA = "mindalign.names/1"
_TABLES = {"schema", "source", "target", "names", "rename", "dropped"}
_SIDES = ("source", "target")
_HEADER = f"""\
# Name map of mindalign: source name = target name. Edit freely; lines that you write are never overruled.
# Patterns: [[rename]] with from = 'regular expression' and to = 'target with \\1'. docs/map.md tells more.
schema = "{SCHEMA}"
"""


def read_map(path: Path, source: Sequence[str], target: Sequence[str] | None) -> NameMap:
    """Read a map file as the complete map between these names.

    Raises MapError listing every fault, among them exact names that the source does not have.
    """
    rules = read_rules(path)
    known = set(source)
    absent = [f"{name}: the source has no such parameter" for name in rules.names if name not in known]
    try:
        name_map = apply_rules(rules, source, target)
    except MapError as error:
        raise MapError(path, [*absent, *error.faults]) from error
    if absent:
        raise MapError(path, absent)
    return name_map


def read_rules(path: Path) -> NameRules:
    """Read a map or rule file; raises MissingFileError or MapError with all faults."""
    try:
        document = tomllib.loads(existing_file(path, "map file").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MapError(path, [f"not TOML: {error}"]) from error
    faults = [f"unknown table or key {key!r}" for key in document if key not in _TABLES]
    if document.get("schema", SCHEMA) != SCHEMA:
        faults.append(f"schema {document['schema']!r}, expected {SCHEMA!r}")
    names = _names(document.get("names", {}), faults)
    renames = tuple(_renames(document.get("rename", []), faults))
    drops = _drops(document.get("dropped", {}), faults)
    frameworks = told_side(document, "source", faults), told_side(document, "target", faults)
    if faults:
        raise MapError(path, faults)
    return NameRules(str(path), names, renames, drops["source"], drops["target"], frameworks)


def told_side(document: Any, key: str, faults: list[str]) -> FrameworkName | None:
    """Whose names a side of a map or record has; None where it does not say, or says what is no framework."""
    said = document.get(key)
    known = FRAMEWORKS.get(said) if isinstance(said, str) else None
    if known is None and said is not None:
        faults.append(f"{key} is {said!r}, expected one of: {', '.join(FRAMEWORKS)}")
    return known


def write_map(path: Path, name_map: NameMap) -> None:
    """Write a name map as an editable file, whole or not at all."""
    write_text(path, "\n".join(_lines(name_map)) + "\n")


def _lines(name_map: NameMap) -> Iterator[str]:
    told = [f'{side} = "{name}"' for side, name in zip(_SIDES, name_map.frameworks, strict=True) if name]
    yield "\n".join([_HEADER.strip(), *told, "", "[names]"])
    yield from (f"{_pair(pairing)}  # {pairing.evidence}, {pairing.confidence:.2f}" for pairing in name_map.pairings)
    for side in _SIDES:
        if drops := [drop for drop in name_map.dropped if drop.side == side]:
            yield f"\n[dropped.{side}]"
            yield from (f"{_quote(as_literal(drop.name))} = {_quote(drop.reason)}" for drop in drops)
    yield from map(_printable, _open_lines(name_map))


def _open_lines(name_map: NameMap) -> Iterator[str]:
    """Yield what the user has to settle, as comments."""
    for group in name_map.ambiguous:
        yield ""
        yield f"# AMBIGUOUS: {group.reason}. Pair each of these under [names]:"
        yield from (f"#   source {name}" for name in group.sources)
        yield from (f"#   target {name}" for name in group.targets)
    if name_map.unmatched:
        yield ""
        yield "# UNMATCHED: pair under [names], or give a reason under [dropped.source] or [dropped.target]."
    for one in name_map.unmatched:
        close = f"; close: {', '.join(one.suggestions)}" if one.suggestions else ""
        yield f"#   {one.side} {one.name} ({one.reason}{close})"


def _pair(pairing: Pairing) -> str:
    if isinstance(pairing.transform, Identity):
        return f"{_quote(pairing.source)} = {_quote(pairing.target)}"
    return f"{_quote(pairing.source)} = {_inline({'to': pairing.target, **pairing.transform.as_table()})}"


def _inline(value: object) -> str:
    """A transform's table as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _quote(value) if isinstance(value, str) else str(value)


def _quote(text: str) -> str:
    return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in text)


def _names(table: Any, faults: list[str]) -> dict[str, tuple[str, Transform]]:
    names: dict[str, tuple[str, Transform]] = {}
    if not isinstance(table, dict):
        faults.append("[names] must be a table of source = target")
        return names
    for source, value in table.items():
        if parsed := _target(f"names: {source}", value, faults):
            names[source] = parsed
    return names


def _target(where: str, value: Any, faults: list[str]) -> tuple[str, Transform] | None:
    if isinstance(value, str):
        return value, IDENTITY
    if not isinstance(value, dict) or not isinstance(value.get("to"), str):
        faults.append(f"{where}: expected a target name or a table with `to` and a transform")
        return None
    fields = {key: item for key, item in value.items() if key != "to"}
    try:
        return value["to"], parse_transform(fields) if fields else IDENTITY
    except ValueError as error:
        faults.append(f"{where}: {error}")
        return None


def _renames(tables: Any, faults: list[str]) -> Iterator[Rename]:
    for number, table in enumerate(tables if isinstance(tables, list) else [tables], 1):
        where = f"[[rename]] {number}"
        if not isinstance(table, dict) or not isinstance(table.get("from"), str):
            faults.append(f"{where}: expected from = 'pattern' and to = 'target'")
            continue
        parsed = _target(where, {key: value for key, value in table.items() if key not in ("from", "back")}, faults)
        back = table.get("back")
        if back is not None and not _is_renaming(back):
            faults.append(f"{where}: expected back = {{ from = 'pattern', to = 'source' }}")
            continue
        wrong = [
            f"{where}: {way['from']!r} -> {way.get('to')!r}: {fault}"
            for way in (table, back or {})
            if way and (fault := _rename_fault(way["from"], way.get("to")))
        ]
        faults += wrong
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


def _drops(tables: Any, faults: list[str]) -> dict[str, dict[str, str]]:
    drops: dict[str, dict[str, str]] = {side: {} for side in _SIDES}
    if not isinstance(tables, dict):
        faults.append("[dropped] must hold the tables [dropped.source] and [dropped.target]")
        return drops
    faults += [f"[dropped] unknown key {key!r}; known: source, target" for key in tables if key not in _SIDES]
    for side in _SIDES:
        table = tables.get(side, {})
        if not isinstance(table, dict):
            faults.append(f'[dropped.{side}] must be a table of name = "reason"')
            continue
        wrong = [name for name, reason in table.items() if not isinstance(reason, str) or not reason.strip()]
        faults += [f'[dropped.{side}] {name}: expected name = "reason"' for name in wrong]
        drops[side] = {name: reason for name, reason in table.items() if name not in wrong}
    return drops
