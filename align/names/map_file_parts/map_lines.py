"""The lines of a map file: which of them align wrote and which the user, and on which line each rule stands.

A line that align wrote ends in `#= evidence confidence (sum)`, where the sum is that of the text before it, or is a
comment that begins with `#=`. So every edit, even of one letter, makes a line the user's, whose words are kept.
tomllib tells no lines: they are found by reading the text for headers and keys, which stand at the start of a line.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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


def users_text(text: str, *, told: bool = False) -> str:
    """The text with an empty line for each that align wrote; with `told` not for those that say what it was told.

    These are pairs that a rule of the user's made, in whatever file it stood, and drops.
    """
    return "\n".join("" if is_ours(line) and not (told and _is_told(line)) else line for line in text.split("\n"))


def _is_told(line: str) -> bool:
    found = _MARKED.fullmatch(line)
    return found is not None and found["why"].split()[0] in ("user", "dropped")


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
        return ".".join(_path_of(tomllib.loads(f"{key} = 0")))
    except tomllib.TOMLDecodeError:
        return None


def _path_of(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        yield key
        if isinstance(value, dict):
            yield from _path_of(value)


def _sum(said: str) -> str:
    return f"{zlib.crc32(said.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"
