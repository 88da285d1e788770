"""A name map as the text of an editable file: runs of pairs on one line each, and the user's lines as they are.

The user's lines of a table stand before align's, in their order; what they settle is not written again. They are never
overruled, so a file can be corrected by hand and made again in place.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.documents import DocumentFault, parse_toml
from align.core.transforms import Identity
from align.names.user_rules import RANGE, NameRules, as_literal, expand_ranges, fold_ranges, quote_ranges
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap, Pairing, SideName, Unmatched
    from align.core.transforms import Transform


SCHEMA = "mindalign.names/1"
SIDES: tuple[SideName, SideName] = ("source", "target")
_OWN_KEYS = ("schema", *SIDES)
_OWN_TABLES = ("names", "dropped.source", "dropped.target")
# A line that gives a name and a target, and nothing else.
_TEXT = r"""\"(?:[^\"\\]|\\.)*\"|'[^']*'"""
_PAIR = re.compile(rf"(?P<head>\s*(?:{_TEXT}|[\w-]+)\s*=\s*)(?:{_TEXT})(?P<tail>\s*(?:#.*)?)")


def map_text(
    name_map: NameMap,
    kept: str = "",
    rules: NameRules | None = None,
    *,
    expand: bool = False,
    tried: str = "",
    choices: Sequence[list[str]] = (),
) -> str:
    """Return the text of the file; `kept` is a file as it was, and `rules` what its user's lines say.

    `tried` is the line that says what a trial was made of, `choices` are the blocks of lines that say what
    would settle each ambiguous group.
    """
    rules = rules or NameRules()
    written = sections(users_text(kept))
    users = {table_of(section.header): section for section in written}
    frameworks = [f'{side} = "{name}"' for side, name in zip(SIDES, name_map.frameworks, strict=True) if name]
    top = [line for line in users[""].lines if line.partition("=")[0].strip() not in _OWN_KEYS]
    blocks = [
        [
            *say("map_file.head", mark=OURS).splitlines(),
            *([tried] if tried else []),
            f'schema = "{SCHEMA}"',
            *frameworks,
        ],
        _stripped(top),
        _table("names", users, _pair_lines(name_map, rules, expand), name_map) or ["[names]"],
        *([*one.above, one.header, *_stripped(one.lines)] for one in written if _is_foreign(one)),
        *(_table(f"dropped.{side}", users, _drop_lines(name_map, side, rules, expand), name_map) for side in SIDES),
        *([*map(_printable, block)] for block in _open_blocks(name_map, choices)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _is_foreign(section: Section) -> bool:
    return table_of(section.header) not in ("", *_OWN_TABLES)


def _table(name: str, users: Mapping[str, Section], lines: Iterator[str], name_map: NameMap) -> list[str]:
    """A table that holds lines of both, nothing if there are none."""
    section = users.get(name, Section([], f"[{name}]", []))
    own = _stripped(section.lines)
    both = [*(_completed(own, name_map) if name == "names" else own), *lines]
    return [*section.above, section.header, *both] if both else []


def _stripped(lines: Sequence[str]) -> list[str]:
    """The lines without empty ones at both ends, and without those in between that align's lines left."""
    kept = "\n".join(lines).strip("\n")
    while "\n\n\n" in kept:
        kept = kept.replace("\n\n\n", "\n\n")
    return kept.split("\n") if kept.strip() else []


def _completed(lines: Sequence[str], name_map: NameMap) -> Iterator[str]:
    """Yield the user's lines, with the target's own name and the transform where they state neither.

    A checkpoint is converted without the models that tell them.
    """
    for line in lines:
        found = _PAIR.fullmatch(line)
        changed = _changed_value(*parse_toml(line).popitem(), name_map) if found else ""
        yield f"{found['head']}{changed}{found['tail']}" if found and changed else line


def _changed_value(key: str, stated: str, name_map: NameMap) -> str:
    """What a line should say instead of the `stated` target, "" if that is all."""
    run = [name_map.by_source[name] for (name,) in expand_ranges([key]) if name in name_map.by_source]
    runs = fold_ranges([((p.source, p.target), _change(p)) for p in run])
    if len(runs) != 1 or runs[0][0][0] != key or any(p.evidence != "user" for p in run):
        return ""
    target = runs[0][0][1]
    return _value(target, run[0].transform) if _change(run[0]) or target != stated else ""


def _pair_lines(name_map: NameMap, rules: NameRules, expand: bool) -> Iterator[str]:
    groups: dict[str, list[Pairing]] = {}
    for pairing in name_map.pairings:
        if pairing.source not in rules.names:
            groups.setdefault(pairing.source, []).append(pairing)
    rows_of_pairs = list(groups.values())
    rows = [
        ((own[0].source, *(p.target for p in own)), tuple((p.evidence, _change(p)) for p in own))
        for own in rows_of_pairs
    ]
    for (source, *targets), places in _fold(rows, expand):
        said = rule_text(source, [(to, p.transform) for to, p in zip(targets, rows_of_pairs[places[0]], strict=True)])
        yield marked(said, _why([pairing for place in places for pairing in rows_of_pairs[place]]))


def rule_text(source: str, targets: Sequence[tuple[str, Transform]]) -> str:
    """The line that pairs a source, or a run of them, with its targets."""
    values = [_value(target, change) for target, change in targets]
    return f"{_quote(source)} = {values[0] if len(values) == 1 else '[' + ', '.join(values) + ']'}"


def _fold(rows: Sequence[tuple[tuple[str, ...], Hashable]], expand: bool) -> list[tuple[tuple[str, ...], list[int]]]:
    if expand:
        return [(tuple(map(quote_ranges, names)), [place]) for place, (names, _) in enumerate(rows)]
    return fold_ranges(rows)


def _why(run: Sequence[Pairing]) -> str:
    """Evidence, and the lowest confidence of a run."""
    return f"{run[0].evidence} {min(pairing.confidence for pairing in run):.2f}"


def _change(pairing: Pairing) -> str:
    return "" if isinstance(pairing.transform, Identity) else _inline(pairing.transform.as_table())


def _value(target: str, change: Transform) -> str:
    if isinstance(change, Identity):
        return _quote(target)
    return _inline({"to": target, **change.as_table()})


def _drop_lines(name_map: NameMap, side: SideName, rules: NameRules, expand: bool) -> Iterator[str]:
    drops = [drop for drop in name_map.dropped if drop.side == side and rules.drop_of(side, drop.name) is None]
    for (text,), places in _fold([((as_literal(drop.name),), drop.reason) for drop in drops], expand):
        yield marked(f"{_quote(text)} = {_quote(drops[places[0]].reason)}", "dropped")


def _open_blocks(name_map: NameMap, choices: Sequence[list[str]]) -> Iterator[list[str]]:
    """Yield what the user has to settle, as comments."""
    yield from choices
    for group in name_map.ambiguous if not choices else ():
        yield [
            say("map_file.ambiguous", mark=OURS, reason=group.reason),
            *(f"{OURS}   source {text}" for (text,), _ in fold_ranges([((name,), None) for name in group.sources])),
            *(f"{OURS}   target {text}" for (text,), _ in fold_ranges([((name,), None) for name in group.targets])),
        ]
    if name_map.unmatched:
        rows = [((one.name,), (one.side, one.reason, one.suggestions)) for one in name_map.unmatched]
        yield [
            say("map_file.unmatched", mark=OURS),
            *(_open_line(text, name_map.unmatched[places[0]]) for (text,), places in fold_ranges(rows)),
        ]


def _open_line(name: str, one: Unmatched) -> str:
    close = f"; close: {', '.join(one.suggestions)}" if one.suggestions else ""
    return f"{OURS}   {one.side} {name} ({one.reason}{close})"


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


# The lines of a map file: which of them align wrote and which the user, where each rule stands, and its faults.
#
# A line that align wrote ends in `#= evidence confidence (sum)`, where the sum is that of the text before it, or is a
# comment that begins with `#=`. So every edit, even of one letter, makes a line the user's, whose words are kept.
# Where both speak of one name, the user's counts: to change one layer of a run `{0..11}`, one writes a line for it.
# tomllib tells no lines: they are found by reading the text for headers and keys, which stand at the start of a line.

OURS = "#="
_MARKED = re.compile(rf"(?P<said>.*)  {OURS} (?P<why>\S.*) \((?P<sum>[0-9a-f]{{4}})\)")
_HEADER = re.compile(r"\s*(?P<open>\[\[?)\s*(?P<name>[\w\"'. -]+?)\s*\]\]?\s*(#.*)?")
_WORD = r"""\"(?:[^\"\\]|\\.)*\"|'[^']*'|[\w-]+"""
_KEY = re.compile(rf"\s*(?P<key>(?:{_WORD})(?:\s*\.\s*(?:{_WORD}))*)\s*=")


def marked(said: str, why: str) -> str:
    """A line of align's own: what it says, with the reason."""
    return f"{said}  {OURS} {why} ({_sum(said)})"


def is_ours(line: str) -> bool:
    """Tell whether align wrote a line and nobody changed it since."""
    found = _MARKED.fullmatch(line)
    return line.lstrip().startswith(OURS) or (found is not None and found["sum"] == _sum(found["said"]))


def users_text(text: str, *, given: bool = False) -> str:
    """The text with an empty line for each that align wrote; with `given` not for those that say what it was given.

    These are pairs that a rule of the user's made, in whatever file it stood, and drops.
    """
    return "\n".join("" if is_ours(line) and not (given and _is_given(line)) else line for line in text.split("\n"))


def _is_given(line: str) -> bool:
    found = _MARKED.fullmatch(line)
    return found is not None and found["why"].split()[0] in ("user", "dropped")


def trial_text(text: str, *kinds: str) -> str:
    """The text with an empty line for each that does not say what a run found, by this evidence; headers stay."""
    return "\n".join(line if _HEADER.fullmatch(line) or _is_of(line, kinds) else "" for line in text.split("\n"))


def _is_of(line: str, kinds: tuple[str, ...]) -> bool:
    found = _MARKED.fullmatch(line) if is_ours(line) else None
    return found is not None and found["why"].split()[0] in kinds


class Section(NamedTuple):
    """A table as written: comments right above its header, the header ("" before the first), the lines under it."""

    above: list[str]
    header: str
    lines: list[str]


def sections(text: str) -> list[Section]:
    """Return the tables of a text in order."""
    parts = [Section([], "", [])]
    for line in text.split("\n"):
        if not _HEADER.fullmatch(line):
            parts[-1].lines.append(line)
            continue
        above: list[str] = []
        while parts[-1].lines and parts[-1].lines[-1].lstrip().startswith("#"):
            above.insert(0, parts[-1].lines.pop())
        parts.append(Section(above, line, []))
    return parts


def table_of(header: str) -> str:
    """Name of the table that a header opens, "" for no header.

    >>> table_of("[dropped.source]  # why"), table_of("[[rename]]")
    ('dropped.source', 'rename')
    """
    found = _HEADER.fullmatch(header)
    return found["name"] if found else ""


def rule_lines(text: str) -> dict[str, list[int]]:
    r"""The lines, from 1, of each rule by its name: `[names] fc.weight`, `[[rename]] 2` for the second, `schema`.

    >>> rule_lines('[names]\n"a.b" = "c"')
    {'[names]': [1], '[names] a.b': [2]}
    """
    lines: dict[str, list[int]] = {}
    for rule, line in _rules(text):
        lines.setdefault(rule, []).append(line)
    return lines


def _rules(text: str) -> Iterator[tuple[str, int]]:
    table, counts = "", Counter[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.fullmatch(line):
            name, several = header["name"], header["open"] == "[["
            counts[name] += several
            table = f"[[{name}]] {counts[name]}" if several else f"[{name}]"
            yield table, number
        elif (found := _KEY.match(line)) and (key := _plain(found["key"])) is not None:
            yield f"{table} {key}".lstrip(), number


def _plain(key: str) -> str | None:
    if key[0] in "\"'" and key.count(key[0]) == 2 and key[-1] == key[0] and "\\" not in key:
        return key[1:-1]
    try:
        return ".".join(_path_of(parse_toml(f"{key} = 0")))
    except DocumentFault:
        return None


def _path_of(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield key
        if isinstance(value, dict):
            yield from _path_of(value)


def _sum(said: str) -> str:
    return f"{zlib.crc32(said.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"


class Faults(list[str]):
    """All faults found so far; rules are called as `map_lines.rule_lines` calls them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._lines = text.split("\n")
        self._written = rule_lines(text)
        for lines in self._written.values():
            self._overrule(lines)
        self._stands: dict[str, str] = {}

    @property
    def text(self) -> str:
        """The text without the lines of align's that one of the user's overrules, which TOML would refuse."""
        return "\n".join(self._lines)

    def at(self, rule: str, fault: str) -> None:
        """Add a fault of a rule."""
        place = self.place(rule)
        told = say("fault_list.one", head=rule, fault=fault)
        self.append(say("fault_list.one", head=place, fault=told) if place else told)

    def place(self, rule: str) -> str:
        """Where a rule stands, `line 3`, or `lines 3 and 7`; "" where that was not found."""
        lines = self._written.get(rule) or self._written.get(self._stands.get(rule, ""), [])
        return f"line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))}" if lines else ""

    def stands(self, rule: str, written: str) -> None:
        """Say that a rule is written as (or in the range of) another."""
        if rule != written:
            self._stands[rule] = written

    def is_ours(self, rule: str) -> bool:
        """Tell whether align wrote the line of a rule, and nobody changed it since."""
        return any(is_ours(self._lines[line - 1]) for line in self._written.get(rule, ()))

    @property
    def lines(self) -> Mapping[str, int]:
        """The first line of each rule."""
        known = {rule: lines[0] for rule, lines in self._written.items()}
        return known | {rule: known[written] for rule, written in self._stands.items() if written in known}

    def _overrule(self, lines: list[int]) -> None:
        ours = [line for line in lines if is_ours(self._lines[line - 1])] if len(lines) > 1 else []
        if len(ours) < len(lines):
            for line in ours:
                self._lines[line - 1] = ""
                lines.remove(line)

    def mended(self) -> str:
        """The text without the second of what TOML refuses if it stands twice; each is a fault. Tables are joined."""
        is_table_twice = False
        for rule, lines in self._written.items():
            if len(lines) > 1:
                is_table = rule == f"[{table_of(rule)}]"
                is_table_twice |= is_table
                key = "map_file_fault.stands_twice" if is_table else "map_file_fault.two_rules"
                self.append(say(key, place=self.place(rule), rule=rule))
                for line in lines[1:] if not is_table else ():
                    self._lines[line - 1] = ""
        return _joined_tables(self.text) if is_table_twice else self.text


def _joined_tables(text: str) -> str:
    tables: dict[str, list[str]] = {}
    for number, (_, header, lines) in enumerate(sections(text)):
        name = f"{number}" if header.lstrip().startswith("[[") else table_of(header)
        tables.setdefault(name, [header]).extend(lines)
    return "\n".join(line for lines in tables.values() for line in lines)


def expand_table(name: str, table: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """Return the table `[name]` with one key for each name that its keys stand for."""
    rules_by_name: dict[str, tuple[Any, str]] = {}
    for key, value in table.items():
        rule = f"[{name}] {key}"
        for name_of_key, expanded in _expanded(rule, key, value, faults):
            before = rules_by_name.get(name_of_key, (None, ""))[1]
            if before and faults.is_ours(before) == faults.is_ours(rule):
                faults.at(rule, say("map_file_fault.has_a_rule", name=name_of_key, place=faults.place(before)))
            elif not before or faults.is_ours(before):
                rules_by_name[name_of_key] = expanded, rule
                faults.stands(f"[{name}] {name_of_key}", rule)
    return {name_of_key: value for name_of_key, (value, _) in rules_by_name.items()}


def _expanded(rule: str, key: str, value: Any, faults: Faults) -> Iterator[tuple[str, Any]]:
    targets = [] if rule.startswith("[dropped") else [one for one in _targets(value) if isinstance(one, str)]
    if not any(RANGE.search(text) for text in (key, *targets)):
        yield key, value
        return
    try:
        for source, *names in expand_ranges([key, *targets]):
            yield source, _with_targets(value, iter(names)) if targets else value
    except ValueError as error:
        faults.at(rule, str(error))


def _targets(value: Any) -> list[Any]:
    """The target names in a value: a name, a table with `to`, or a list of these."""
    if isinstance(value, list):
        return [target for one in value for target in _targets(one)]
    return [value.get("to")] if isinstance(value, dict) else [value]


def _with_targets(value: Any, names: Iterator[str]) -> Any:
    if isinstance(value, list):
        return [_with_targets(one, names) for one in value]
    if isinstance(value, dict):
        return {**value, "to": next(names)} if isinstance(value.get("to"), str) else value
    return next(names) if isinstance(value, str) else value
