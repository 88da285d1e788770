"""Logs that are tables already: CSV files with a header (comma, semicolon or tab), and JSON, an object a row."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.curves.log_parts.record_lines import carry_forward, is_training_object, phase_by_name
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, end_notes, known, read_steps
from align.curves.log_parts.table_reader import (
    RATE,
    LogColumns,
    TableReader,
    by_name,
    double_notes,
    find_columns,
    find_header,
    is_lightning,
    loss_names,
    loss_notes,
    read_cells,
    repeated_notes,
    with_sum,
)
from align.curves.log_sources import LogBlock, LogPlugin
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.curves.printed_columns import ABSENT, ABSENT_FIELD, field_at, layout_column
from align.curves.thresholds import ARRAY_ROWS, FAST_JSON_KEYS, LONGEST_REPAIRED, SHOWN_CHARACTERS
from align.errors import EmptyLogError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.curves.log_parts.table_reader import Header
    from align.curves.log_sources import LineLayouts, LogSource
    from align.curves.loss_log import Integers, LogTable, Series
    from align.curves.printed_columns import Field


class CsvFormat(LogPlugin):
    """A table with a step (or epoch) column and a loss column."""

    name = "csv"
    summary = "CSV with a header: a step (or epoch) and a loss column under their usual names"
    sample = b"step,loss,lr\n1,2.302585,0.1\n2,2.287413,0.1\n3,2.250119,0.1\n"

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first line that is no comment names a step and a loss column, and is not Lightning's."""
        found = _csv_table_header(source)
        return found is not None and not is_lightning(found[0].names)

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError or another if none has a step and a loss, RepeatedColumnError."""
        header, columns = known(_csv_table_header(source), source, say("log_error.columns", format=self.name))
        reader = TableReader(columns, source.metric, decimal_comma=header.delimiter != ",")
        repeated: dict[str, int] = {}
        double: list[int] = []
        for block, cells in read_cells(source, header, double):
            reader.add(block, cells.lines, by_name(header, cells, repeated))
        notes = (*repeated_notes(source.label, columns, repeated), *double_notes(double))
        return reader.read(source, self.name).with_notes(notes)


def _csv_table_header(source: LogSource) -> tuple[Header, LogColumns] | None:
    header = find_header(source)
    columns = find_columns(header.names, source.metric) if header is not None else None
    return None if header is None or columns is None else (header, columns)


# `metrics.csv` of Lightning's CSVLogger, which has a row for each time something was logged.
#
# `step` counts optimizer steps from 0, through all epochs. A metric that is logged both ways is there as `x_step`,
# the value of one step, and as `x_epoch`, the mean of the epoch in a row of its last step; one that is logged one way
# does not tell which, but the mean of an epoch comes in a row after the validation of its last step.


class LightningFormat(LogPlugin):
    """A sparse table with `epoch`, `step`, and `x_step` and `x_epoch` or `lr-SGD`."""

    name = "lightning"
    summary = "metrics.csv of Lightning: epoch,step,train_loss_step,train_loss_epoch,val_loss"
    sample = (
        b"epoch,lr-SGD,step,train_loss_epoch,train_loss_step,val_loss\n"
        b",0.05,1,,,\n"
        b"0,,1,,4.265110492706299,\n"
        b",0.025,3,,,\n"
        b"0,,3,,0.6732417941093445,\n"
        b"0,,3,,,1.5052216053009033\n"
        b"0,,3,2.4691762924194336,,\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the header is one of Lightning's."""
        return _lightning_header(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all rows; raises EmptyLogError if none has a step and a number.

        Without a loss of a usual name `loss_name` is empty, and other metrics can still be had.
        """
        header = known(_lightning_header(source), source, self.summary)
        table, ignored, notes = _read_table(source, header)
        if not table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        losses = [name for name in loss_names(header.names) if name in table.metrics]
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name=losses[0] if losses else "",
            counting="global step",
            base=0,
            ignored_lines=ignored,
            notes=(*notes, *loss_notes(losses), *_doubt(losses, table), *end_notes(source)),
        )


def _lightning_header(source: LogSource) -> Header | None:
    header = find_header(source)
    return header if header is not None and is_lightning(header.names) else None


def _read_table(source: LogSource, header: Header) -> tuple[LogTable, int, tuple[str, ...]]:
    """Return the table, the number of lines that are no records, and what was not read as it stands."""
    loss = next(iter(loss_names(header.names)), None)
    builder = TableBuilder(lambda name: EPOCH_MEAN if name.endswith("_epoch") else RAW, phase_by_name, loss)
    double: list[int] = []
    filled = 0
    for block, cells in read_cells(source, header, double):
        filled += block.count_filled()
        columns = dict(zip(header.names, cells.columns, strict=True))
        steps, epochs = read_steps(columns.pop("step")), read_steps(columns.pop("epoch"))
        # Rows of learning rates name no epoch: they come before their step, and have that of the row after them.
        epochs = carry_forward(epochs[::-1], epochs[::-1] >= 0, -1)[::-1]
        builder.add(cells.lines, steps, columns, epochs=epochs)
    table = builder.build()
    return _with_means(table), filled - len(table.lines), (*builder.notes(), *double_notes(double))


def _with_means(table: LogTable) -> LogTable:
    """Tell the means of epochs among the metrics that are logged one way."""
    others = [series.rows for series in table.metrics.values() if series.phase == "validation"]
    if not others:
        return table
    validations = np.unique(np.concatenate(others))
    metrics = {
        name: replace(series, window=EPOCH_MEAN) if _is_mean(name, series, table.steps, validations) else series
        for name, series in table.metrics.items()
    }
    return replace(table, metrics=metrics)


def _is_mean(name: str, series: Series, steps: Integers, validations: Integers) -> bool:
    """Tell whether each value stands behind a row of validation of its own step."""
    if series.phase == "validation" or name.endswith("_step") or RATE.match(name):
        return False
    before = np.searchsorted(validations, series.rows) - 1
    return bool(np.all((before >= 0) & (steps[validations[before]] == steps[series.rows])))


def _doubt(losses: list[str], table: LogTable) -> tuple[str, ...]:
    """Say so if nothing tells a loss of one step from the mean of an epoch."""
    phases = {series.phase for series in table.metrics.values()}
    if not losses or losses[0].endswith(("_step", "_epoch")) or "validation" in phases:
        return ()
    return (sentence("logs_note.step_or_epoch", loss=losses[0]),)


# `results.csv` of YOLO trainers (Ultralytics, YOLOv5): one row an epoch, means over its steps.
#
# The table has the parts of the training loss and not the loss: here it is their sum. YOLOv5 pads its columns and
# counts epochs from 0, as the first versions of Ultralytics do; later ones count from 1.

_YOLOV5_RATE = "x/lr0"


class YoloFormat(LogPlugin):
    """A table of epochs with columns `train/box_loss`, `train/cls_loss`, ..."""

    name = "yolo"
    summary = "results.csv of YOLO: epoch,train/box_loss,train/cls_loss,...,val/box_loss,..."
    sample = (
        b"epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/mAP50(B),val/box_loss,lr/pg0\n"
        b"1,0.272853,3.1157,1.8018,1.93578,0,1.61368,0.000333333\n"
        b"2,1.22506,4.75336,2.67567,2.98049,0,1.61368,0.000835\n"
        b"3,1.52392,2.73261,1.54768,1.63964,0,1.61368,0.00111667\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the header names epochs and parts of a training loss, but no loss."""
        return _yolo_header(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all epochs; raises EmptyLogError if none has all parts of the loss."""
        header = known(_yolo_header(source), source, self.summary)
        parts = _parts(header.names)
        builder = TableBuilder(lambda name: EPOCH_MEAN if name.startswith("train/") else RAW, phase_by_name)
        double: list[int] = []
        filled = 0
        for block, cells in read_cells(source, header, double):
            filled += block.count_filled()
            columns = dict(zip(header.names, cells.columns, strict=True))
            whole = np.array([text != ABSENT for text in cells.columns[-1]], np.bool_)
            builder.add(cells.lines, np.where(whole, read_steps(columns.pop("epoch")), NO_STEP), columns)
        table = with_sum(builder.build(), parts, EPOCH_MEAN)
        if "loss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="epoch",
            base=0 if _YOLOV5_RATE in header.names else None,
            ignored_lines=filled - len(table.lines),
            notes=(sentence("logs_note.sum_of_parts", parts=parts), *double_notes(double), *end_notes(source)),
        )


def _yolo_header(source: LogSource) -> Header | None:
    header = find_header(source)
    is_known = header is not None and "epoch" in header.names and bool(_parts(header.names))
    return header if header is not None and is_known and find_columns(header.names) is None else None


def _parts(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("train/") and name.endswith("_loss")]


# JSON lines: one object a line, with a step and a loss.
#
# Numbers are kept as they are printed, since rounding is seen only there, and so are bare words that JSON does not
# know: `nan` and `inf` as other languages print them are points, not damage. mmengine's `scalars.json` looks the same,
# but its losses are means over the last ten steps: it is not read as raw values.


# A text, or a bare word with what may stand around it.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]"]+')
_PAIR = re.compile(r'[{,] *"([^"\\\0-\x1f]+)" *: *(?:"([^"\\\0-\x1f]*)"|([A-Za-z0-9+.-]+)) *')
_LAST = re.compile(r"\}\s*")


class JsonlFormat(LogPlugin):
    """Lines `{"step": 1, "loss": 2.3}`."""

    name = "jsonl"
    summary = 'JSON lines: {"step": 1, "loss": 2.30}, keys under their usual names'
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
    """Parse JSON, numbers as printed, and objects as `pairs`, which show a key that stands twice; None if none."""
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
    objects = [_read_uniform(sample) for sample in layouts.samples]
    if not all(uniform or not sample.strip() for uniform, sample in zip(objects, layouts.samples, strict=True)):
        return None
    if not all(_has_keys(layouts, kind, uniform) for kind, uniform in enumerate(objects) if uniform):
        return None
    rows = np.flatnonzero(np.array([uniform is not None for uniform in objects])[layouts.kinds])
    first_seen = dict.fromkeys(layouts.kinds[rows].tolist())
    names = dict.fromkeys(
        name for kind in first_seen for uniform in (objects[kind],) if uniform for name in uniform.values
    )
    fields = {
        name: [uniform.values.get(name, ABSENT_FIELD) if uniform else ABSENT_FIELD for uniform in objects]
        for name in names
    }
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


class JsonArraysFormat(LogPlugin):
    """A document `[{"step": 1, "loss": 2.3}, ...]` or `{"loss": [2.3, 2.2], "val_loss": [2.4, 2.3]}`."""

    name = "json_arrays"
    summary = 'JSON document: [{"step": 1, "loss": 2.3}, ...], or a Keras history {"loss": [2.3, 2.2], ...}'
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


class JsonSeriesFormat(LogPlugin):
    """Lines `{"name": "train_loss", "step": 10, "data": 2.3}`."""

    name = "json_series"
    summary = 'JSON lines of one number each, {"name": "train_loss", "step": 10, "data": 2.30}, and DLLogger\'s'
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
                texts = [{**row.counts, **row.numbers} for row in rows]
                reader.add(block, np.array([row.line for row in rows], np.int64), _columns_of(texts))
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
        found = _jsonl_parsed(text.removeprefix(_PREFIX)) if begins else None
        broken += [number] if begins and not isinstance(found, dict) else []
        row = _of_logger(number, found) if text.startswith(_PREFIX) else _of_one_number(number, found)
        if row is not None:
            yield row


def _of_one_number(line: int, document: Any) -> _Row | None:
    """Take an object with a name, a number and what counts; all in texts and numbers."""
    if not isinstance(document, dict):
        return None
    name = next((document[key] for key in _NAMES if isinstance(document.get(key), str)), "")
    value = next((document[key] for key in _VALUES if isinstance(document.get(key), str)), None)
    counts = {key: document[key] for key in _STEPS if isinstance(document.get(key), str)}
    return _Row(line, counts, {name: value}) if name and value is not None and counts else None


def _of_logger(line: int, found: Any) -> _Row | None:
    """Take an object of DLLogger's: of its steps the first is an epoch, the second an iteration; one alone an epoch."""
    step, data = (found.get("step"), found.get("data")) if isinstance(found, dict) else (None, None)
    if not isinstance(step, list) or not isinstance(data, dict) or not step:
        return None
    counts = dict(zip(("epoch", "iteration"), map(str, step), strict=False))
    return _Row(line, counts, {name: one for name, one in data.items() if isinstance(one, str)})


PLUGINS = (CsvFormat(), LightningFormat(), YoloFormat(), JsonlFormat(), JsonArraysFormat(), JsonSeriesFormat())
