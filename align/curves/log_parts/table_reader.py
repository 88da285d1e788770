"""Logs that are tables already (CSV, JSON lines): which columns are the step, the epoch and the training loss.

The columns go by the names in use; whether steps count through or start again with each epoch is read off the
data, as the same header stands for both. A row without a loss is not a row with loss 0, nor one to drop unseen:
an explicit `null`, or a text that is no number, is NaN; an absent key or an empty cell is no loss in this row.
"""

from __future__ import annotations

import csv
import functools
import re
import sys
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.about import CHECKOUT, user_mappings
from align.core.load_code import beside_package
from align.curves.log_parts.record_lines import named_validation, phase_by_name, starts_again
from align.curves.log_parts.table_builder import (
    NO_STEP,
    InvalidSteps,
    TableBuilder,
    end_notes,
    is_null,
    is_number,
    read_steps,
    with_point,
)
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog, Series, find_window, usual_names
from align.curves.printed_columns import ABSENT, ABSENT_FIELD, layout_column, stripped_field
from align.curves.thresholds import MOST_COLUMNS
from align.errors import AlignError, EmptyLogError, MappingRuleError, RepeatedColumnError, SeveralLossesError
from align.words.catalogue import say, sentence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Base, Booleans, Counting, Integers, LogTable, Window
    from align.curves.printed_columns import Field, PrintedColumn


STEP_NAMES = (
    "global_step", "step", "steps", "train_step", "current_step", "trainer/global_step", "iteration", "iterations",
    "iter", "iters", "it", "batch", "batch_idx",
)  # fmt: skip
EPOCH_NAMES = ("epoch", "epochs", "current_epoch", "trainer/epoch")
LOSS_NAMES = (
    "loss", "train_loss", "train/loss", "training_loss", "loss/train", "train_loss_step", "loss_step", "trainloss",
    "step_loss", "batch_loss", "lm_loss", "total_loss", "train_loss_epoch", "train.loss",
)  # fmt: skip
PHASE_NAMES = ("phase", "mode", "split", "stage", "subset", "partition", "type", "kind", "event", "set")


@dataclass(frozen=True, slots=True)
class LogColumns:
    """The names, as the log spells them, of its step, epoch, loss and phase; None for what it has not.

    The loss is "" in a log with nothing but losses of other phases, `val_loss`. `table` is what is known of the logger.
    """

    step: str | None
    epoch: str | None
    loss: str
    phase: str | None
    table: KnownTable | None = None
    losses: tuple[str, ...] = ()


def find_columns(names: Iterable[str], metric: str = "loss") -> LogColumns | None:
    """Tell the columns of a log by their names; None without any loss, or without both step and epoch.

    The `metric` that is asked for stands in place of a loss that no column is.
    """
    given = tuple(dict.fromkeys(names))
    return _find_columns(given) or (None if metric == "loss" else _find_columns(given, metric))


@functools.lru_cache(maxsize=16)  # several formats ask for those of one log
def _find_columns(names: tuple[str, ...], metric: str = "") -> LogColumns | None:
    if table := known_table(names):
        return _of_known(table, names)
    spelled = dict(zip(reversed(_all_plain(names)), reversed(names), strict=True))
    step, epoch, loss, phase = (
        next((spelled[name] for name in known if name in spelled), None)
        for known in (STEP_NAMES, EPOCH_NAMES, LOSS_NAMES, PHASE_NAMES)
    )
    if loss is None and {phase_by_name(name) for name in spelled if "loss" in name} == {"validation"}:
        loss = ""
    if loss is None and metric and metric in names:
        loss = metric
    return None if loss is None or (step is None and epoch is None) else LogColumns(step, epoch, loss, phase)


def _of_known(table: KnownTable, names: Collection[str]) -> LogColumns | None:
    losses = find_names(table.loss, names)
    step, epoch = (next(iter(find_names(asked, names)), None) for asked in (table.step, table.epoch))
    if not losses or step is epoch is None:
        return None
    first = next(one for one in table.loss if re.fullmatch(one, losses[0]))
    alike = tuple(name for name in losses if re.fullmatch(first, name))
    return LogColumns(step, epoch, losses[0], None, table, alike)


class TableReader:
    """Takes the rows of a log in columns, block by block; metrics may have a `decimal_comma` where it parts no cells.

    Texts have no spaces around them, and ABSENT stands where a row has none.
    """

    def __init__(self, columns: LogColumns, metric: str = "loss", *, decimal_comma: bool = False) -> None:
        self._columns, self._metric, self._decimal_comma = columns, metric, decimal_comma
        self._builder = TableBuilder(functools.partial(_window, columns), phase_by_name, columns.loss)
        self._names: dict[str, None] = {}
        self._left_out = 0
        self._without_loss: list[int] = []
        self._odd_steps = InvalidSteps()
        self._filled, self._commas = 0, False

    def add(self, block: LogBlock, lines: Integers, cells: Mapping[str, Sequence[str]]) -> None:
        """Take the rows of a block, by the names of their columns; those without a step are no records."""
        self._filled += block.count_filled()
        columns, count = self._columns, len(lines)
        epochs = _steps(cells.get(columns.epoch or ""), count)
        steps = epochs if columns.step is None else _steps(cells.get(columns.step), count)
        metrics = self._metrics(cells)
        self._names.update(dict.fromkeys(metrics))
        if self._decimal_comma and "," in block.text:
            metrics = self._with_points(metrics)
        self._odd_steps.look(
            lines, steps, cells.get(columns.step or columns.epoch or "", ()), metrics.get(columns.loss, ())
        )
        validation = np.zeros(count, np.bool_)
        if columns.phase is not None and columns.phase in cells:
            phases = cells[columns.phase]
            named = {phase: phase_by_name(phase.strip()) == "validation" for phase in set(phases)}
            validation[:] = [named[phase] for phase in phases]
        if columns.table and columns.table.null and columns.loss in metrics:
            metrics[columns.loss] = [ABSENT if is_null(text) else text for text in metrics[columns.loss]]
        if "" in metrics.get(columns.loss, ()):
            metrics[columns.loss] = self._empty_losses(lines, metrics, (steps == NO_STEP) | validation)
        if validation.any():
            metrics = {**_where(~validation, metrics), **named_validation(_where(validation, metrics))}
        self._builder.add(lines, steps, metrics, epochs=np.maximum(epochs, -1))

    def read(self, source: LogSource, format_name: str) -> LossLog:
        """Put all rows together; raises EmptyLogError, NoStepError or NoNumberError if none has a step and a loss.

        Raises SeveralLossesError for a table that holds the losses of several runs.
        """
        if len(self._columns.losses) > 1:
            raise SeveralLossesError(source.label, 1, self._columns.losses)
        self._builder.refuse_words(source.label)
        columns, table = self._columns, self._builder.build()
        if not table.metrics or columns.loss not in (*table.metrics, ""):
            self._odd_steps.refuse(source.label)
            raise EmptyLogError(source.label, [say("log_error.columns", format=format_name)])
        only_epochs = (sentence("logs_note.only_epochs"),) if columns.step is None else ()
        return LossLog(
            label=source.label,
            format=format_name,
            table=table,
            loss_name=columns.loss,
            counting=_counting(columns, table),
            # Lightning, known by its pairs `x_step` and `x_epoch`, counts from 0; other tables do not say.
            base=columns.table.first_step if columns.table else 0 if _logged_twice(map(_plain, self._names)) else None,
            ignored_lines=self._filled - len(table.lines),
            notes=(*self._notes(), *only_epochs, *end_notes(source)),
        )

    def _metrics(self, cells: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """Return the columns that do not count: the first `MOST_COLUMNS`, the loss, the phase and what is asked for."""
        columns = self._columns
        names = [name for name in cells if name not in (columns.step, columns.epoch)]
        asked = usual_names(names[MOST_COLUMNS:], self._metric)
        wanted = (columns.loss, columns.phase, *names[:MOST_COLUMNS], *asked)
        kept = dict.fromkeys(name for name in wanted if name in cells)
        self._left_out = max(self._left_out, len(names) - len(kept))
        return {name: cells[name] for name in kept if name is not None}

    def _with_points(self, metrics: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        pointed: dict[str, Sequence[str]] = {name: list(map(with_point, texts)) for name, texts in metrics.items()}
        self._commas |= any(list(texts) != pointed[name] for name, texts in metrics.items())
        return pointed

    def _empty_losses(self, lines: Integers, metrics: Mapping[str, Sequence[str]], strange: Booleans) -> list[str]:
        """Turn empty cells into NaN in rows with a step and nothing else: a loss that its writer could not print."""
        losses = list(metrics[self._columns.loss])
        others = [texts for name, texts in metrics.items() if name != self._columns.loss]
        for row in [row for row, loss in enumerate(losses) if not loss and not strange[row]]:
            if any(is_number(texts[row]) or is_null(texts[row]) for texts in others):
                self._without_loss.append(int(lines[row]))
            else:
                losses[row] = "nan"
        return losses

    def _notes(self) -> tuple[str, ...]:
        """Say which column is the loss if several might be, which losses are no number, which rows have none."""
        table, loss = self._columns.table, self._columns.loss
        notes: list[str] = []
        if table:
            notes += [sentence("logs_note.columns_of", logger=table.summary), *filter(None, (table.note,))]
        if others := sorted(name for name in self._names if name != loss and _plain(name) in LOSS_NAMES):
            notes.append(sentence("logs_note.also_in_log", loss=loss, others=others))
        notes += [*self._builder.notes(), *self._odd_steps.notes()]
        if self._left_out:
            notes.append(sentence("logs_note.columns_left_out", count=self._left_out))
        if self._commas:
            notes.append(sentence("logs_note.decimal_comma"))
        if self._without_loss:
            count, line = len(self._without_loss), self._without_loss[0]
            notes.append(sentence("logs_note.rows_without_loss", count=count, line=line))
        return tuple(notes)


def repeated_notes(label: str, columns: LogColumns, repeated: Mapping[str, int]) -> tuple[str, ...]:
    """Say which names stand for two values; raises RepeatedColumnError if the step, epoch or loss is among them."""
    needed = {columns.step, columns.epoch, columns.loss, columns.phase} & repeated.keys()
    if needed:
        raise RepeatedColumnError(label, {str(name): repeated[str(name)] for name in sorted(map(str, needed))})
    return tuple(sentence("logs_note.repeated_column", column=name, line=line) for name, line in repeated.items())


def _where(wanted: Booleans, metrics: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Leave the texts of these rows only; the other rows stay, so that all are in the order of the file."""
    kept = wanted.tolist()
    return {
        name: [text if one else ABSENT for text, one in zip(texts, kept, strict=True)]
        for name, texts in metrics.items()
    }


def _steps(texts: Sequence[str] | None, count: int) -> Integers:
    """Read steps, also with their total behind: `8270/11043`."""
    if texts is not None and any("/" in text for text in texts[:1]):
        texts = [text.partition("/")[0] for text in texts]
    return np.full(count, NO_STEP) if texts is None else read_steps(texts)


def _counting(columns: LogColumns, table: LogTable) -> Counting:
    """Steps start again with each epoch if the ranges of steps of two epochs overlap."""
    if columns.step is None:
        return "epoch"
    if table.epochs is None or _plain(columns.step).startswith("global"):
        return "global step"
    rows = table.metrics[columns.loss].rows if columns.loss else np.arange(len(table.steps))
    return "step in epoch" if starts_again(table.steps[rows], table.epochs[rows]) else "global step"


def _window(columns: LogColumns, name: str) -> Window:
    """Means of an epoch are known by the name, or by a log that counts nothing else."""
    if columns.table:
        return RAW if phase_by_name(name) == "validation" else columns.table.window_of(name)
    return EPOCH_MEAN if columns.step is None or _plain(name).endswith("_epoch") else RAW


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _all_plain(names: Sequence[str]) -> list[str]:
    """Spell many names plainly, at once if that is sure to be the same: a row may have 100,000."""
    joined = "\n".join(map(str.strip, names))
    alone = joined.isascii() and joined.count("\n") == len(names) - 1
    return joined.lower().replace(" ", "_").replace("-", "_").split("\n") if alone else list(map(_plain, names))


# What loggers write as tables, known by their columns: `[[table]]` in `mappings/log_formats/`.
#
# CSV files, JSON lines and event files of these loggers are read like any others, but what a loss is the mean of and
# what the first step is called are known.

_TUPLES = ("has", "lacks", "step", "epoch", "loss")


@dataclass(frozen=True)
class KnownTable:
    """How one logger names its columns, by regular expressions that a whole name has to match.

    All of `has` are there and none of `lacks`. Of `step`, `epoch` and `loss` the first that is there counts. `window`
    is what a loss is the mean of, `windows` other metrics by their name. `first_step` is what the log calls it.
    `null`: an explicit null stands for no loss in the row, not for NaN. `sample` shows rows, `points` their steps and
    losses.
    """

    name: str
    summary: str
    has: tuple[str, ...]
    loss: tuple[str, ...]
    sample: str
    points: tuple[tuple[int, float], ...]
    step: tuple[str, ...] = ()
    epoch: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    window: Window = RAW
    windows: Mapping[str, Window] = field(default_factory=dict)
    first_step: Base | None = None
    null: bool = False
    note: str = ""

    @cached_property
    def asked(self) -> tuple[re.Pattern[str], ...]:
        """What is asked for, ready for use; raises re.error."""
        return tuple(map(re.compile, self.has))

    def fits(self, names: Collection[str]) -> bool:
        """Tell whether the columns are those of this logger."""
        if not all(_any_matches(one, names) for one in self.asked):
            return False
        return not any(_any_matches(re.compile(one), names) for one in self.lacks)

    def window_of(self, name: str) -> Window:
        """Return what a metric of training is the mean of."""
        return self.windows.get(name, self.window if self.is_loss(name) or "loss" in name.lower() else RAW)

    def is_loss(self, name: str) -> bool:
        """Tell whether a column may be the training loss."""
        return any(re.fullmatch(one, name) for one in self.loss)


def known_table(names: Collection[str]) -> KnownTable | None:
    """Return the logger that writes these columns; None if no known one does."""
    given = frozenset(names)
    return next((table for table in known_tables() if table.fits(given)), None)


def _any_matches(asked: re.Pattern[str], names: Collection[str]) -> bool:
    """Tell whether a name matches, at once where the expression is a name itself: a row may have 100,000."""
    literal = re.escape(asked.pattern) == asked.pattern
    return asked.pattern in names if literal else any(map(asked.fullmatch, names))


def find_names(asked: Collection[str], names: Collection[str]) -> list[str]:
    """Return the names that match one of these expressions, the first expression first."""
    return list(dict.fromkeys(name for one in asked for name in names if re.fullmatch(one, name)))


@cache
def known_tables() -> tuple[KnownTable, ...]:
    """Return all known tables; raises MappingRuleError if one is none."""
    return tuple(read_known_table(path, table) for path, table in format_tables("table"))


def read_known_table(path: Path, table: dict[str, Any]) -> KnownTable:
    """Make one table; raises MappingRuleError with what is wrong."""
    check_keys(path, table, {one.name for one in fields(KnownTable)})
    try:
        loaded = KnownTable(**table_values(table, _TUPLES))
        _ = loaded.asked, [re.compile(one) for one in (*loaded.lacks, *loaded.step, *loaded.epoch, *loaded.loss)]
    except (TypeError, ValueError, KeyError, re.error, AlignError) as error:
        raise MappingRuleError(path, f"{table.get('name', '?')}: {error}") from error
    return loaded


def table_values(table: dict[str, Any], tuples: Iterable[str]) -> dict[str, Any]:
    """Return the values of a table, those of `tuples` also where one stands alone; windows and points as they are."""
    given = dict(table)
    for key in tuples:
        if key in given:
            given[key] = (given[key],) if isinstance(given[key], str) else tuple(given[key])
    if "window" in given:
        given["window"] = find_window(given["window"])
    given["windows"] = {metric: find_window(text) for metric, text in given.get("windows", {}).items()}
    given["points"] = tuple((step, float(loss)) for step, loss in given["points"])
    return given


# The tables of `mappings/log_formats/`: formats of logs as data, a file for each family.
#
# `[[console]]` tells of lines (align/curves/losslogs/console.py), `[[table]]` of columns (above).

_FOLDER = "log_formats"
_KINDS = ("console", "table")


@cache
def format_tables(kind: Literal["console", "table"]) -> tuple[tuple[Path, dict[str, Any]], ...]:
    """Return all tables of a kind, each with its file; raises MappingRuleError if the installation lacks them."""
    files = [*sorted(mapping_place(_FOLDER).glob("*.toml")), *user_mappings(_FOLDER)]
    return tuple((path, table) for path in files for table in read_format_tables(path).get(kind, []))


@cache
def read_format_tables(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read one file; raises MappingRuleError if it holds anything but lists of tables of a known kind."""
    document = read_toml(path)
    if not all(kind in _KINDS and isinstance(tables, list) for kind, tables in document.items()):
        raise MappingRuleError(path, say("log_table.kinds", kinds=_KINDS))
    return document


def mapping_place(name: str) -> Path:
    """Return where a file or folder of `mappings/` is; raises MappingRuleError if the installation lacks it."""
    folder = beside_package("mappings", name)
    if folder is None:
        raise MappingRuleError(CHECKOUT / "mappings" / name, say("rule_file.missing"))
    return folder / name


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of `mappings/`; raises MappingRuleError for what is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingRuleError(path, say("document_fault.no_toml", error=error)) from error


def check_keys(path: Path, table: dict[str, Any], known: set[str]) -> None:
    """Raise MappingRuleError if a table has a key that is not known."""
    if unknown := sorted(set(table) - known):
        name = table.get("name", "?")
        raise MappingRuleError(path, say("log_table.keys", name=name, unknown=unknown, known=sorted(known)))


# Which columns hold the training loss, by their names or as a sum of parts; and whether Lightning logged them.

# What Lightning's LearningRateMonitor calls its metrics: the class of the optimizer.
RATE = re.compile(r"lr-[A-Z]")
# Of one step, logged one way only, mean of an epoch.
_WAYS = ("_step", "", "_epoch")
_STEMS = dict.fromkeys(name.removesuffix("_step").removesuffix("_epoch") for name in (*LOSS_NAMES, "loss/auto"))


def loss_names(names: Collection[str]) -> list[str]:
    """Return the names that usually stand for the training loss, the surest first, of one step before means."""
    plain = {_plain(name): name for name in reversed(list(names))}
    return [plain[stem + way] for stem in _STEMS for way in _WAYS if stem + way in plain]


def loss_notes(losses: list[str]) -> tuple[str, ...]:
    """Say which of several names is read as the loss."""
    return (sentence("logs_note.also_in_log", loss=losses[0], others=losses[1:]),) if len(losses) > 1 else ()


def is_lightning(names: Collection[str]) -> bool:
    """Tell Lightning's metrics by one logged both ways, `x_step` and `x_epoch`, or by learning rates."""
    known = set(names)
    if not {"epoch", "step"} <= known:
        return False
    return _logged_twice(known) or any(RATE.match(name) for name in known)


def _logged_twice(names: Iterable[str]) -> bool:
    known = set(names)
    return any(f"{name.removesuffix('_step')}_epoch" in known for name in known if name.endswith("_step"))


def with_sum(table: LogTable, parts: Sequence[str], window: Window) -> LogTable:
    """Add the sum of several parts as `loss`, in the rows that have all of them; its rounding is that of all."""
    addends = [table.metrics[name] for name in parts if name in table.metrics]
    if len(parts) < 2 or len(addends) < len(parts):
        return table
    rows = reduce(np.intersect1d, [series.rows for series in addends])
    values = np.sum([series.values[np.isin(series.rows, rows)] for series in addends], axis=0)
    units = np.sum([series.resolution[np.isin(series.rows, rows)] for series in addends], axis=0)
    loss = {"loss": Series(rows, values, units, window)} if len(rows) else {}
    return replace(table, metrics={**table.metrics, **loss})


# The cells of delimited text in columns: comma, semicolon or tab.


_DELIMITERS = ",;\t"
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True, slots=True)
class Header:
    """The line that names the columns: its number, the names, and what stands between them."""

    line: int
    names: tuple[str, ...]
    delimiter: str


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows in columns: `columns[i]` holds the cells, without spaces around them, under `names[i]`.

    A row that is shorter than the header has ABSENT there.
    """

    lines: Integers
    columns: Sequence[Sequence[str]]


def find_header(source: LogSource) -> Header | None:
    """Find the first line that is neither blank nor a comment; None if it has no delimiter, or is a JSON object."""
    for number, line in source.lines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("{"):
            return None
        delimiter = max(_DELIMITERS, key=line.count)
        return Header(number, tuple(_parted(line, delimiter)), delimiter) if delimiter in line else None
    return None


def read_cells(source: LogSource, header: Header, double: list[int]) -> Iterator[tuple[LogBlock, Cells]]:
    """Yield each block with its rows after the header; a header again (runs appended to one file) is no row.

    Lines in which two rows ran together, so that a cell is of both, are left out and go to `double`.
    """
    for block in source.blocks():
        cells = _by_layout(block, header)
        if cells is None:
            cells = _without_headers(_regular(block, header) or _one_by_one(block, header, double), header)
        yield block, cells


def double_notes(double: list[int]) -> tuple[str, ...]:
    """Say which lines are left out as they hold two rows."""
    return (sentence("logs_note.double_rows", count=len(double), line=double[0]),) if double else ()


def by_name(header: Header, cells: Cells, repeated: dict[str, int]) -> Mapping[str, Sequence[str]]:
    """Put columns under their names; names with two unlike texts go to `repeated` with their first line."""
    named = dict(zip(header.names, cells.columns, strict=True))
    if len(named) < len(header.names):
        for name, column in zip(header.names, cells.columns, strict=True):
            unlike = next((row for row, (a, b) in enumerate(zip(column, named[name], strict=True)) if a != b), None)
            if unlike is not None:
                repeated.setdefault(name, int(cells.lines[unlike]))
    return named


def _by_layout(block: LogBlock, header: Header) -> Cells | None:
    """Part one line of each layout; None if there are too many, or a line has quotes or more cells than the header."""
    layouts, width = block.layouts, len(header.names)
    if layouts is None or '"' in block.text:
        return None
    parted = [_fields(sample, header.delimiter) for sample in layouts.samples]
    if max(map(len, parted)) > width:
        return None
    rows = np.flatnonzero(np.array([bool(fields) for fields in parted])[layouts.kinds])
    rows = rows[block.numbers[rows] >= header.line]
    filled = [fields + [ABSENT_FIELD] * (width - len(fields)) for fields in parted]
    columns = [layout_column(layouts, rows, fields) for fields in zip(*filled, strict=True)]
    if len(again := _header_rows(columns, header)):
        rows = np.delete(rows, again)
        columns = [layout_column(layouts, rows, column.fields) for column in columns]
    return Cells(block.numbers[rows], columns)


def _fields(line: str, delimiter: str) -> list[Field]:
    """Tell where the cells of a line without quotes stand, without the spaces around them; none in a blank one."""
    ends = [*(found.start() for found in re.finditer(delimiter, line)), len(line)] if line.strip() else []
    return [stripped_field(line, start, end) for start, end in zip((0, *(end + 1 for end in ends)), ends, strict=False)]


def _header_rows(columns: Sequence[PrintedColumn], header: Header) -> Integers:
    """Return the rows that are the header again; a layout like its own may have other digits."""
    names = [_DIGIT.sub("0", name) for name in header.names]
    layouts = zip(*(column.fields for column in columns), strict=True)
    alike = [[_DIGIT.sub("0", field.text) for field in fields] == names for fields in layouts]
    rows = np.flatnonzero(np.array(alike)[columns[0].kinds])
    return rows[[tuple(column[row] for column in columns) == header.names for row in rows.tolist()]]


def _regular(block: LogBlock, header: Header) -> Cells | None:
    """Part a block at once; None unless each line has as many cells as the header, and no quotes."""
    text, width, count = block.text, len(header.names), len(block.numbers)
    letters = np.frombuffer(text.encode(), np.uint8)
    ends = letters == ord("\n")
    ends = ends[ends | (letters == ord(header.delimiter))]
    if '"' in text or len(ends) != width * count - 1 or ends.sum() != ends[width - 1 :: width].sum():
        return None
    cells = text.replace("\n", header.delimiter).split(header.delimiter)
    if " " in text or "\t" in text:
        cells = list(map(str.strip, cells))
    return Cells(block.numbers, [cells[place::width] for place in range(width)])


def _one_by_one(block: LogBlock, header: Header, double: list[int]) -> Cells:
    rows, lines, width = [], [], len(header.names)
    for number, line in block.lines():
        cells = _parted(line, header.delimiter) if line.strip() else []
        if len(cells) >= 2 * width - 1 and any(cells[width:]):
            double.append(number)
        elif cells:
            rows.append(cells[:width] + [ABSENT] * (width - len(cells)))
            lines.append(number)
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    return Cells(np.array(lines, np.int64), columns)


def _without_headers(cells: Cells, header: Header) -> Cells:
    """Take out what stands before the header, and each header."""
    kept = cells.lines >= header.line
    if header.names[0] in cells.columns[0]:
        rows = zip(*cells.columns, strict=True)
        kept &= np.fromiter((row != header.names for row in rows), np.bool_, len(kept))
    if kept.all():
        return cells
    rows = np.flatnonzero(kept).tolist()
    return Cells(cells.lines[kept], [[column[row] for row in rows] for column in cells.columns])


def _parted(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
    except csv.Error:
        return [cell.strip() for cell in line.split(delimiter)]
