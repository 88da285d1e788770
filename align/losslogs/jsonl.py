"""JSON lines: one object a line, with a step and a loss.

Numbers are kept as they are printed, since rounding is seen only there, and so are bare words that JSON does not know:
`nan` and `inf` as other languages print them are points, not damage. mmengine's `scalars.json` looks the same,
but its losses are means over the last ten steps: it is not read as raw values.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from align.errors import EmptyLogError
from align.losslogs._table import EXPECTED, LogColumns, cells_by_name, find_columns, read_table, repeated_notes
from align.losslogs._text import end_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.curves import LossLog
    from align.core.log_sources import LogSource

_MMENGINE = {"data_time", "time", "iter", "step"}
_SHOWN = 40
_LONGEST_REPAIRED = 10_000
# A text, or a bare word with what may stand around it.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]"]+')


class JsonlFormat:
    """Lines `{"step": 1, "loss": 2.3}`."""

    name = "jsonl"
    summary = 'JSON lines: {"step": 1, "loss": 2.30}, keys under their usual names'
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b'{"step": 1, "loss": 2.302585, "lr": 0.1}\n{"step": 2, "loss": NaN, "lr": 0.1}\n'
        b'{"step": 3, "loss": 2.250119, "lr": 0.1}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether a line is an object with a step and a loss."""
        return _columns(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a step and a loss, RepeatedColumnError."""
        columns = _columns(source)
        if columns is None:
            raise EmptyLogError(source.label, [f"{self.name}: {EXPECTED}"])
        broken: list[int] = []
        repeated: dict[str, int] = {}
        log = read_table(_rows(source, broken, repeated), columns, source.label, self.name)
        notes = (*end_notes(source), *repeated_notes(source.label, columns, repeated))
        if broken:
            notes = (*notes, f"{len(broken)} lines are no JSON object (first: line {broken[0]})")
        return log.with_notes(notes, ignored_lines=len(broken))


def _columns(source: LogSource) -> LogColumns | None:
    """Find the columns in the first object that has a step and a loss."""
    for _, cells in _rows(source, [], {}):
        if (columns := find_columns(cells)) is not None:
            return None if cells.keys() >= _MMENGINE else columns
    return None


def _rows(source: LogSource, broken: list[int], repeated: dict[str, int]) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in source.lines():
        if (cells := _object(line.strip())) is not None:
            yield number, cells_by_name(number, cells, repeated)
        elif line.strip():
            broken.append(number)


def _object(line: str) -> list[tuple[str, str]] | None:
    """Read a JSON object as (key, text), its numbers as printed, other values than numbers and texts shortened."""
    if not line.startswith("{"):
        return None
    found = _parsed(line)
    if found is None and len(line) <= _LONGEST_REPAIRED:
        found = _parsed(_WORD.sub(_quoted, line))
    return None if found is None else [(name, _text(value)) for name, value in found]


def _parsed(line: str) -> list[tuple[str, Any]] | None:
    """Parse an object into its pairs, so that a key that stands twice is seen; None if it is no JSON."""
    try:
        pairs: list[tuple[str, Any]] = json.loads(
            line, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=list
        )
    except (ValueError, RecursionError):
        return None
    return pairs


def _quoted(word: re.Match[str]) -> str:
    text = word[0]
    return text if text.startswith('"') or text in ("null", "true", "false") else json.dumps(text)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "null" if value is None else json.dumps(value)[:_SHOWN]


PLUGIN = JsonlFormat()
