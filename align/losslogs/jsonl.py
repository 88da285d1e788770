"""JSON lines: one object a line, with a step and a loss.

Numbers are kept as they are printed, since rounding is seen only there. mmengine's `scalars.json` looks the same,
but its losses are means over the last ten steps: it is not read as raw values.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from align.errors import EmptyLogError
from align.losslogs._table import EXPECTED, LogColumns, find_columns, read_table
from align.losslogs._text import clean_lines, end_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.curves import LossLog

_MMENGINE = {"data_time", "time", "iter", "step"}


class JsonlFormat:
    """Lines `{"step": 1, "loss": 2.3}`."""

    name = "jsonl"
    summary = 'JSON lines: {"step": 1, "loss": 2.30}, keys under their usual names'
    requires: tuple[str, ...] = ()
    sample = (
        '{"step": 1, "loss": 2.302585, "lr": 0.1}\n{"step": 2, "loss": NaN, "lr": 0.1}\n'
        '{"step": 3, "loss": 2.250119, "lr": 0.1}\n'
    )

    def recognizes(self, text: str) -> bool:
        """Tell whether a line is an object with a step and a loss."""
        return _columns(text) is not None

    def read(self, text: str, label: str) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a step and a loss."""
        columns = _columns(text)
        if columns is None:
            raise EmptyLogError(label, [f"{self.name}: {EXPECTED}"])
        broken: list[int] = []
        log = read_table(_rows(text, broken), columns, label, self.name)
        notes = end_notes(text)
        if broken:
            notes = (*notes, f"{len(broken)} lines are no JSON object (first: line {broken[0]})")
        return log.with_notes(notes, ignored_lines=len(broken))


def _columns(text: str) -> LogColumns | None:
    """Find the columns in the first object that has a step and a loss."""
    for _, cells in _rows(text, []):
        if (columns := find_columns(cells)) is not None:
            return None if cells.keys() >= _MMENGINE else columns
    return None


def _rows(text: str, broken: list[int]) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in clean_lines(text.removeprefix("\ufeff")):
        if (cells := _object(line.strip())) is not None:
            yield number, cells
        elif line.strip():
            broken.append(number)


def _object(line: str) -> dict[str, str] | None:
    """Read a JSON object, its numbers as printed; keys with other values than numbers, texts and null are dropped."""
    if not line.startswith("{"):
        return None
    try:
        found: dict[str, Any] = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return {name: value or "" for name, value in found.items() if value is None or isinstance(value, str)}


PLUGIN = JsonlFormat()
