"""JSON lines with one number each, `{"name": "train_loss", "step": 10, "data": 2.3}`, and DLLogger's nested objects.

DLLogger writes `DLLL {"step": [0, 100], "data": {"train.loss": 2.3}}`: the epoch and the iteration, and all numbers of
these. Both are put in columns, and read as any other table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.curves.columns.printed_column import ABSENT
from align.curves.log_parts.table_reader import TableReader, find_columns
from align.curves.log_parts.text import known
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.log_parts.table_reader import LogColumns
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import LossLog

_NAMES, _VALUES = ("name", "metric", "tag", "key"), ("data", "value", "scalar")
_STEPS = ("step", "global_step", "iteration", "iter", "epoch")
_PREFIX = "DLLL "


class _Row(NamedTuple):
    """The line of an object, what it counts, and its numbers by name, all as printed."""

    line: int
    counts: dict[str, str]
    numbers: dict[str, str]


class JsonSeriesFormat:
    """Lines `{"name": "train_loss", "step": 10, "data": 2.3}`."""

    name = "json_series"
    summary = 'JSON lines of one number each, {"name": "train_loss", "step": 10, "data": 2.30}, and DLLogger\'s'
    requires: tuple[str, ...] = ()
    quoted = True
    sample = (
        b'{"name": "train_loss", "step": 1, "data": 2.302585}\n{"name": "lr", "step": 1, "data": 0.1}\n'
        b'{"name": "train_loss", "step": 2, "data": 2.250119}\n{"name": "lr", "step": 2, "data": 0.1}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether such lines tell a step and a loss, or the metric that is asked for."""
        return _columns(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all such lines; raises EmptyLogError if none has a step and a loss."""
        columns = known(_columns(source), source, f"{self.name}: {EmptyLogError.COLUMNS}")
        reader = TableReader(columns, source.metric)
        broken: list[int] = []
        for block in source.blocks():
            if rows := list(_rows(block, broken)):
                reader.add(block, np.array([row.line for row in rows], np.int64), _cells(rows))
        log = reader.read(source, self.name)
        notes = (sentence("logs_note.no_objects", count=len(broken), line=broken[0]),) if broken else ()
        return log.with_notes(notes)


def _columns(source: LogSource) -> LogColumns | None:
    if source.is_binary or source.document is not None:
        return None
    names: dict[str, None] = {}
    for block in source.blocks() if any(f'"{value}"' in source.head().text for value in _VALUES) else ():
        for row in _rows(block, []):
            names |= dict.fromkeys((*row.counts, *row.numbers))
    columns = find_columns(names, source.metric) if names else None
    return columns if columns is not None and columns.loss else None


def _rows(block: LogBlock, broken: list[int]) -> Iterator[_Row]:
    """Yield the objects; numbers of lines that begin as one and are none go to `broken`."""
    for number, line in block.lines():
        text = line.strip()
        begins = text.startswith(("{", _PREFIX))
        found = _parsed(text.removeprefix(_PREFIX)) if begins else None
        broken += [number] if begins and found is None else []
        row = _of_logger(number, found) if text.startswith(_PREFIX) else _of_one_number(number, found)
        if row is not None:
            yield row


def _of_one_number(line: int, found: dict[str, Any] | None) -> _Row | None:
    """Take an object with a name, a number and what counts; all in texts and numbers."""
    if found is None:
        return None
    name = next((found[key] for key in _NAMES if isinstance(found.get(key), str)), "")
    value = next((found[key] for key in _VALUES if isinstance(found.get(key), str)), None)
    counts = {key: found[key] for key in _STEPS if isinstance(found.get(key), str)}
    return _Row(line, counts, {name: value}) if name and value is not None and counts else None


def _of_logger(line: int, found: dict[str, Any] | None) -> _Row | None:
    """Take an object of DLLogger's: of its steps the first is an epoch, the second an iteration; one alone an epoch."""
    step, data = (found or {}).get("step"), (found or {}).get("data")
    if not isinstance(step, list) or not isinstance(data, dict) or not step:
        return None
    counts = dict(zip(("epoch", "iteration"), map(str, step), strict=False))
    return _Row(line, counts, {name: one for name, one in data.items() if isinstance(one, str)})


def _parsed(text: str) -> dict[str, Any] | None:
    """Parse an object, its numbers as printed; None if it is none."""
    try:
        found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _cells(rows: Sequence[_Row]) -> dict[str, list[str]]:
    """Put rows in columns, with ABSENT where a row lacks a name."""
    texts = [{**row.counts, **row.numbers} for row in rows]
    names = dict.fromkeys(name for one in texts for name in one)
    return {name: [one.get(name, ABSENT) for one in texts] for name in names}


PLUGIN = JsonSeriesFormat()
