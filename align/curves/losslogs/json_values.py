"""JSON lines: one object a line, with a step and a loss.

Numbers are kept as they are printed, since rounding is seen only there, and so are bare words that JSON does not know:
`nan` and `inf` as other languages print them are points, not damage. mmengine's `scalars.json` looks the same,
but its losses are means over the last ten steps: it is not read as raw values.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.curves.log_parts.record_lines import is_training_object
from align.curves.log_parts.table_builder import known
from align.curves.log_parts.table_reader import LogColumns, TableReader, find_columns, repeated_notes
from align.curves.log_sources import LogBlock
from align.curves.printed_columns import ABSENT, ABSENT_FIELD, field_at, layout_column
from align.curves.thresholds import ARRAY_ROWS, FAST_JSON_KEYS, LONGEST_REPAIRED, SHOWN_CHARACTERS
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.curves.log_sources import LineLayouts, LogSource
    from align.curves.loss_log import Integers, LossLog
    from align.curves.printed_columns import Field


# A text, or a bare word with what may stand around it.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]"]+')
_PAIR = re.compile(r'[{,] *"([^"\\\0-\x1f]+)" *: *(?:"([^"\\\0-\x1f]*)"|([A-Za-z0-9+.-]+)) *')
_LAST = re.compile(r"\}\s*")


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
        """Tell whether a line is an object with a step and a loss, and the lines are no parts of an array."""
        return _jsonl_columns(source) is not None and not source.text.lstrip().startswith("[")

    def read(self, source: LogSource) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a step and a loss, RepeatedColumnError."""
        columns = known(_jsonl_columns(source), source, say("log_error.columns", format=self.name))
        reader, reading = TableReader(columns, source.metric), _Reading()
        for block in source.blocks():
            reader.add(block, *reading.read(block))
        log = reader.read(source, self.name)
        return log.with_notes((*repeated_notes(source.label, columns, reading.repeated), *reading.notes()))


def _jsonl_columns(source: LogSource) -> LogColumns | None:
    """Find the columns in the first object that has a step and a training loss, else in the first with another loss."""
    other = None
    for line in (line.strip() for block in source.blocks() if "{" in block.text for line in block.shown_lines()):
        names = dict.fromkeys(name for name, _ in _object(line) or ())
        columns = find_columns(names, source.metric)
        if columns is not None and columns.loss:
            return None if is_training_object(names) else columns
        other = other or columns
    return other


class _Reading:
    """Objects in columns; a key that stands twice in one goes to `repeated`, a line that is none to `broken`."""

    def __init__(self) -> None:
        self.broken: list[int] = []
        self.repeated: dict[str, int] = {}

    def read(self, block: LogBlock) -> tuple[Integers, dict[str, Sequence[str]]]:
        """Return the line of each object, and texts by key."""
        alike = split_uniform_objects(block)
        if alike is not None:
            return alike.lines, dict(alike.columns)
        lines, rows = block.numbers, _all_at_once(block)
        if rows is None:
            numbered = list(self._one_by_one(block))
            lines, rows = np.array([line for line, _ in numbered], np.int64), [row for _, row in numbered]
        return lines, {key: _texts(column) for key, column in _columns_of(rows).items()}

    def notes(self) -> tuple[str, ...]:
        """Say so if lines are no objects."""
        return (sentence("logs_note.no_objects", count=len(self.broken), line=self.broken[0]),) if self.broken else ()

    def _one_by_one(self, block: LogBlock) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in block.lines():
            if (pairs := _object(line.strip())) is not None:
                row = dict(pairs)
                for name, value in pairs if len(row) < len(pairs) else ():
                    if value != row[name]:
                        self.repeated.setdefault(name, number)
                yield number, row
            elif line.strip():
                self.broken.append(number)


def _all_at_once(block: LogBlock) -> list[dict[str, Any]] | None:
    """Parse several lines as one array, seven times as fast; None unless each is one object of unlike keys."""
    text, count = block.text, len(block.numbers)
    if count == 1 or not text.startswith("{") or not text.endswith("}") or text.count("}\n{") != count - 1:
        return None
    rows = _jsonl_parsed(f"[{text}]".replace("\n", ","))
    if rows is None or len(rows) != count or set(map(type, rows)) != {dict}:
        return None
    # A key that stands twice, or stands in a nested object, has its `":` in the text but is none of the keys.
    pairs = text.replace(" ", "").replace("\t", "").count('":')
    return rows if pairs == sum(map(len, rows)) else None


def _columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Put rows in columns, with ABSENT where a row lacks a key that another has."""
    keys = list(rows[0]) if rows else []
    if sum(map(len, rows)) == len(rows) * len(keys):
        with contextlib.suppress(KeyError):
            return {key: [row[key] for row in rows] for key in keys}
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {key: [row.get(key, ABSENT) for row in rows] for key in keys}


@lru_cache(maxsize=1)  # a line of very many keys is asked for by whoever recognises the log, and then to be read
def _object(line: str) -> list[tuple[str, Any]] | None:
    """Read a JSON object as (key, value), its numbers as printed; None if it is none."""
    if not line.startswith("{"):
        return None
    found: list[tuple[str, Any]] | None = _jsonl_parsed(line, list)
    if found is None and len(line) <= LONGEST_REPAIRED:
        found = _jsonl_parsed(_WORD.sub(_quoted, line), list)
    return found


def _jsonl_parsed(text: str, pairs: type[list[Any]] | None = None) -> Any:
    """Parse JSON, numbers as texts; objects as `pairs` if given, which shows a key that stands twice. None if none."""
    try:
        return json.loads(text, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None


def _quoted(word: re.Match[str]) -> str:
    text = word[0]
    return text if text.startswith('"') or text in ("null", "true", "false") else json.dumps(text)


def _texts(values: list[Any]) -> list[str]:
    return values if set(map(type, values)) == {str} else list(map(_jsonl_text, values))


def _jsonl_text(value: object) -> str:
    """Return numbers and texts as they stand, all else shortened."""
    if isinstance(value, str):
        return value
    return "null" if value is None else json.dumps(value)[:SHOWN_CHARACTERS]


JSONL = JsonlFormat()


class UniformObjects(NamedTuple):
    """The lines of objects, and their values as printed by key: ABSENT where an object lacks one."""

    lines: Integers
    columns: Mapping[str, Sequence[str]]


class _UniformObject(NamedTuple):
    keys: tuple[Field, ...]
    values: dict[str, Field]


def split_uniform_objects(block: LogBlock) -> UniformObjects | None:
    """Return the values of all objects of a block; None if a line is neither blank nor such an object.

    Most logs write the same few keys in the same order, so lines are parted by layout without a parser: numbers, words
    and texts without a backslash. Anything else is for the parser.
    """
    layouts = block.layouts if block.text.startswith("{") else None
    if layouts is None:
        return None
    found = [_read_uniform(sample) for sample in layouts.samples]
    if not all(one or not sample.strip() for one, sample in zip(found, layouts.samples, strict=True)):
        return None
    if not all(_has_keys(layouts, kind, one) for kind, one in enumerate(found) if one):
        return None
    rows = np.flatnonzero(np.array([one is not None for one in found])[layouts.kinds])
    first_seen = dict.fromkeys(layouts.kinds[rows].tolist())
    names = dict.fromkeys(name for kind in first_seen for one in (found[kind],) if one for name in one.values)
    fields = {name: [one.values.get(name, ABSENT_FIELD) if one else ABSENT_FIELD for one in found] for name in names}
    return UniformObjects(block.numbers[rows], {name: layout_column(layouts, rows, fields[name]) for name in names})


def _read_uniform(line: str) -> _UniformObject | None:
    """Tell where keys and values of an object stand; None if it is no plain one, or a key stands twice."""
    keys: list[Field] = []
    values: dict[str, Field] = {}
    place = 0
    while (found := _PAIR.match(line, place)) and (line[place] == "{") == (place == 0) and len(keys) < FAST_JSON_KEYS:
        keys.append(field_at(line, *found.span(1)))
        values[found[1]] = field_at(line, *found.span(2 if found[3] is None else 3))
        place = found.end()
    whole = len(keys) == len(values) > 0 and _LAST.fullmatch(line, place)
    return _UniformObject(tuple(keys), values) if whole else None


def _has_keys(layouts: LineLayouts, kind: int, one: _UniformObject) -> bool:
    """Tell whether all lines of a layout have the keys of its sample, as digits in them may be others."""
    numbered = [key for key in one.keys if not key.text.isalpha() and any(map(str.isdigit, key.text))]
    rows = np.flatnonzero(layouts.kinds == kind) if numbered else layouts.kinds[:0]
    for key in numbered:
        letters = layouts.letters[layouts.starts[rows, None] + np.arange(key.start, key.end)]
        if (letters != letters[0]).any():
            return False
    return True


# One JSON document: an array of objects with a step and a loss, or an object of arrays such as a Keras history.
#
# The array or object may stand under a key. Arrays without a step or an epoch hold one value an epoch, as a history
# does.

_EPOCH = "epoch"
# What another format reads: the state of a Hugging Face trainer.
_OTHERS = "log_history"


class JsonArraysFormat:
    """A document `[{"step": 1, "loss": 2.3}, ...]` or `{"loss": [2.3, 2.2], "val_loss": [2.4, 2.3]}`."""

    name = "json_arrays"
    summary = 'JSON document: [{"step": 1, "loss": 2.3}, ...], or a Keras history {"loss": [2.3, 2.2], ...}'
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b'[\n {"step": 1, "loss": 2.302585, "lr": 0.1},\n {"step": 2, "loss": 2.287413, "lr": 0.1}\n]\n'

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the document holds a step (or epochs) and a loss."""
        return _read_cells(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all objects, or all places of the arrays; raises EmptyLogError if none has a loss."""
        columns, cells = known(_read_cells(source), source, say("log_error.columns", format=self.name))
        reader, count = TableReader(columns, source.metric), len(next(iter(cells.values())))
        lines = np.ones(count, np.int64)
        reader.add(LogBlock("\n".join(["."] * count), lines), lines, cells)
        return replace(reader.read(source, self.name), ignored_lines=0)


def _read_cells(source: LogSource) -> tuple[LogColumns, dict[str, Sequence[str]]] | None:
    """Return the columns of the log and their texts; None if the document has none."""
    document = source.document
    within = document.values() if isinstance(document, dict) and _OTHERS not in document else ()
    parts = (part for part in (document, *within) if isinstance(part, (list, dict)))
    return next(filter(None, (_json_arrays_cells(part, source.metric) for part in parts)), None)


def _json_arrays_cells(
    part: list[Any] | dict[str, Any], metric: str
) -> tuple[LogColumns, dict[str, Sequence[str]]] | None:
    cells = _of_objects(part) if isinstance(part, list) else _of_arrays(part)
    columns = find_columns(cells, metric) if cells else None
    return (columns, cells) if columns is not None and columns.loss else None


def _of_objects(rows: list[Any]) -> dict[str, Sequence[str]]:
    if len(rows) < ARRAY_ROWS or not all(isinstance(row, dict) for row in rows):
        return {}
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_json_arrays_text(row.get(name, ABSENT)) for row in rows] for name in names}


def _of_arrays(table: dict[str, Any]) -> dict[str, Sequence[str]]:
    """Take the arrays, if all are of one length; without a counter each place is an epoch."""
    arrays = {name: one for name, one in table.items() if isinstance(one, list)}
    length = max(map(len, arrays.values()), default=0)
    cells: dict[str, Sequence[str]] = {
        name: list(map(_json_arrays_text, one)) for name, one in arrays.items() if len(one) == length
    }
    if length < ARRAY_ROWS or len(cells) < len(arrays):
        return {}
    if find_columns(cells) is None:
        cells[_EPOCH] = list(map(str, range(1, length + 1)))
    return cells


def _json_arrays_text(value: object) -> str:
    """Return a number as it stands; what is none of a row's is absent."""
    return value if isinstance(value, str) else "null" if value is None else ABSENT


JSON_ARRAYS = JsonArraysFormat()


# JSON lines with one number each, `{"name": "train_loss", "step": 10, "data": 2.3}`, and DLLogger's nested objects.
#
# DLLogger writes `DLLL {"step": [0, 100], "data": {"train.loss": 2.3}}`: the epoch and the iteration, and all numbers
# of these. Both are put in columns, and read as any other table.

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
        return _json_series_columns(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all such lines; raises EmptyLogError if none has a step and a loss."""
        columns = known(_json_series_columns(source), source, say("log_error.columns", format=self.name))
        reader = TableReader(columns, source.metric)
        broken: list[int] = []
        for block in source.blocks():
            if rows := list(_rows(block, broken)):
                reader.add(block, np.array([row.line for row in rows], np.int64), _json_series_cells(rows))
        log = reader.read(source, self.name)
        notes = (sentence("logs_note.no_objects", count=len(broken), line=broken[0]),) if broken else ()
        return log.with_notes(notes)


def _json_series_columns(source: LogSource) -> LogColumns | None:
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
        found = _json_series_parsed(text.removeprefix(_PREFIX)) if begins else None
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


def _json_series_parsed(text: str) -> dict[str, Any] | None:
    """Parse an object, its numbers as printed; None if it is none."""
    try:
        found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _json_series_cells(rows: Sequence[_Row]) -> dict[str, list[str]]:
    """Put rows in columns, with ABSENT where a row lacks a name."""
    texts = [{**row.counts, **row.numbers} for row in rows]
    names = dict.fromkeys(name for one in texts for name in one)
    return {name: [one.get(name, ABSENT) for one in texts] for name in names}


JSON_SERIES = JsonSeriesFormat()

PLUGINS = (
    JSONL,
    JSON_ARRAYS,
    JSON_SERIES,
)
