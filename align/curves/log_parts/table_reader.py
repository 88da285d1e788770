"""Logs that are tables already (CSV, JSON lines): which columns are the step, the epoch and the training loss.

The columns go by the names in use; whether steps count through or start again with each epoch is read off the
data, as the same header stands for both. A row without a loss is not a row with loss 0, nor one to drop unseen:
an explicit `null`, or a text that is no number, is NaN; an absent key or an empty cell is no loss in this row.
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.about import CHECKOUT, beside_package
from align.curves.log_parts.record_lines import named_validation, phase_by_name, starts_again
from align.curves.log_parts.table_builder import (
    NO_STEP,
    InvalidSteps,
    TableBuilder,
    end_notes,
    is_null,
    is_number,
    only_epochs_note,
    read_steps,
    with_point,
)
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog, Series, find_window, usual_names
from align.curves.printed_columns import ABSENT
from align.curves.thresholds import MOST_COLUMNS
from align.errors import AlignError, EmptyLogError, MappingRuleError, RepeatedColumnError, SeveralLossesError
from align.words.catalogue import say, sentence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Base, Booleans, Counting, Integers, LogTable, Window


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
    step, epoch, loss, phase = (_first(spelled, known) for known in (STEP_NAMES, EPOCH_NAMES, LOSS_NAMES, PHASE_NAMES))
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
            named = {
                phase: phase_by_name(phase.strip()) == "validation" for phase in dict.fromkeys(cells[columns.phase])
            }
            validation[:] = [named[phase] for phase in cells[columns.phase]]
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
        only_epochs = (only_epochs_note(),) if columns.step is None else ()
        return LossLog(
            label=source.label,
            format=format_name,
            table=table,
            loss_name=columns.loss,
            counting=_counting(columns, table),
            base=columns.table.first_step if columns.table else _base(self._names),
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


def _base(names: Iterable[str]) -> Base | None:
    """Lightning, known by its pairs `x_step` and `x_epoch`, counts from 0; other tables do not say."""
    plain = {_plain(name) for name in names}
    return (
        0 if any(f"{name.removesuffix('_step')}_epoch" in plain for name in plain if name.endswith("_step")) else None
    )


def _plain(name: str) -> str:
    return _joined_words(name.strip())


def _joined_words(text: str) -> str:
    return text.lower().replace(" ", "_").replace("-", "_")


def _all_plain(names: Sequence[str]) -> list[str]:
    """Spell many names plainly, at once if that is sure to be the same: a row may have 100,000."""
    joined = "\n".join(map(str.strip, names))
    alone = joined.isascii() and joined.count("\n") == len(names) - 1
    return _joined_words(joined).split("\n") if alone else list(map(_plain, names))


def _first(spelled: Mapping[str, str], known: Sequence[str]) -> str | None:
    return next((spelled[name] for name in known if name in spelled), None)


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
    given = dict(table)
    for key in _TUPLES:
        if key in given:
            given[key] = (given[key],) if isinstance(given[key], str) else tuple(given[key])
    try:
        if "window" in given:
            given["window"] = find_window(given["window"])
        given["windows"] = {metric: find_window(text) for metric, text in given.get("windows", {}).items()}
        given["points"] = tuple((step, float(loss)) for step, loss in given["points"])
        made = KnownTable(**given)
        _ = made.asked, [re.compile(one) for one in (*made.lacks, *made.step, *made.epoch, *made.loss)]
    except (TypeError, ValueError, KeyError, re.error, AlignError) as error:
        raise MappingRuleError(path, f"{table.get('name', '?')}: {error}") from error
    return made


# The tables of `mappings/log_formats/`: formats of logs as data, a file for each family.
#
# `[[console]]` tells of lines (align/curves/line_formats/console_reader.py), `[[table]]` of columns (known_tables.py).

_FOLDER = "log_formats"
_KINDS = ("console", "table")


@cache
def format_tables(kind: Literal["console", "table"]) -> tuple[tuple[Path, dict[str, Any]], ...]:
    """Return all tables of a kind, each with its file; raises MappingRuleError if the installation lacks them."""
    folder = beside_package("mappings", _FOLDER)
    if folder is None:
        raise MappingRuleError(CHECKOUT / "mappings" / _FOLDER, say("rule_file.missing"))
    files = sorted((folder / _FOLDER).glob("*.toml"))
    return tuple((path, table) for path in files for table in read_format_tables(path).get(kind, []))


@cache
def read_format_tables(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read one file; raises MappingRuleError if it holds anything but lists of tables of a known kind."""
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MappingRuleError(path, say("document_fault.no_toml", error=error)) from error
    if not all(kind in _KINDS and isinstance(tables, list) for kind, tables in document.items()):
        raise MappingRuleError(path, say("log_table.kinds", kinds=_KINDS))
    return document


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
    plain = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(list(names))}
    return [plain[stem + way] for stem in _STEMS for way in _WAYS if stem + way in plain]


def loss_notes(losses: list[str]) -> tuple[str, ...]:
    """Say which of several names is read as the loss."""
    if len(losses) < 2:
        return ()
    return (sentence("logs_note.also_in_log", loss=losses[0], others=losses[1:]),)


def is_lightning(names: Collection[str]) -> bool:
    """Tell Lightning's metrics by one logged both ways, `x_step` and `x_epoch`, or by learning rates."""
    if not {"epoch", "step"} <= set(names):
        return False
    means = {name.removesuffix("_epoch") for name in names if name.endswith("_epoch")}
    both = any(name.endswith("_step") and name.removesuffix("_step") in means for name in names)
    return both or any(RATE.match(name) for name in names)


def with_sum(table: LogTable, parts: Sequence[str], window: Window) -> LogTable:
    """Add the sum of several parts as `loss`, in the rows that have all of them; its rounding is that of all."""
    found = [table.metrics[name] for name in parts if name in table.metrics]
    if len(parts) < 2 or len(found) < len(parts):
        return table
    rows = reduce(np.intersect1d, [series.rows for series in found])
    values = np.sum([series.values[np.isin(series.rows, rows)] for series in found], axis=0)
    units = np.sum([series.resolution[np.isin(series.rows, rows)] for series in found], axis=0)
    loss = {"loss": Series(rows, values, units, window)} if len(rows) else {}
    return replace(table, metrics={**table.metrics, **loss})
