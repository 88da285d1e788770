"""The lines of a map file: which of them align wrote and which the user, where each rule stands, and its faults.

A line that align wrote ends in `#= evidence confidence (sum)`, where the sum is that of the text before it, or is a
comment that begins with `#=`. So every edit, even of one letter, makes a line the user's, whose words are kept. Where
both speak of one name, the user's counts: to change one layer of a run `{0..11}`, one writes a line for it. tomllib
tells no lines: they are found by reading the text for headers and keys, which stand at the start of a line.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from align.core.documents import DocumentFault, parse_toml
from align.names.fold_names import RANGE, expand_ranges
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
    found = [Section([], "", [])]
    for line in text.split("\n"):
        if not _HEADER.fullmatch(line):
            found[-1].lines.append(line)
            continue
        above: list[str] = []
        while found[-1].lines and found[-1].lines[-1].lstrip().startswith("#"):
            above.insert(0, found[-1].lines.pop())
        found.append(Section(above, line, []))
    return found


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
        self.append(f"{place}: {rule}: {fault}" if place else f"{rule}: {fault}")

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
    found: dict[str, tuple[Any, str]] = {}
    for key, value in table.items():
        rule = f"[{name}] {key}"
        for one, expanded in _expanded(rule, key, value, faults):
            before = found.get(one, (None, ""))[1]
            if before and faults.is_ours(before) == faults.is_ours(rule):
                faults.at(rule, say("map_file_fault.has_a_rule", name=one, place=faults.place(before)))
            elif not before or faults.is_ours(before):
                found[one] = expanded, rule
                faults.stands(f"[{name}] {one}", rule)
    return {one: value for one, (value, _) in found.items()}


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
