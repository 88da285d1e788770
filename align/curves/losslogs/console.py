"""Consoles of many trainers, each a table of `mappings/log_formats/`, read a block of lines at a time.

A format is chosen only if a line of training is there as it says, and all else that it asks for. Validation results
stand at the last training line before them unless they tell a step of their own. A last line without an end, plainly
shorter than others of its kind, was cut and is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.curves.log_parts.record_lines import (
    RecordLines,
    by_phase,
    carry_forward,
    named_validation,
    pair_columns,
    phase_by_name,
    starts_again,
    twice,
    without_cut_line,
)
from align.curves.log_parts.table_builder import (
    NO_STEP,
    NUMBER,
    InvalidSteps,
    TableBuilder,
    deduplicate_steps,
    read_printed_steps,
)
from align.curves.log_parts.table_reader import check_keys, double_notes, format_tables, table_values, with_sum
from align.curves.log_sources import LogBlock, LogPlugin
from align.curves.loss_log import RAW, LossLog, Window
from align.curves.printed_columns import all_fixed, are_filled, find_columns, take_texts
from align.curves.thresholds import LARGEST_STEP, LONGEST_LINE
from align.errors import AlignError, EmptyLogError, MappingRuleError, SeveralRunsError, UnorderedLogError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Base, Booleans, Counting, Integers, LogTable


class ConsoleFormat(LogPlugin):
    """Lines as one table says."""

    def __init__(self, lines: ConsoleLines) -> None:
        self._lines = lines
        self.name, self.summary, self.quoted = lines.name, lines.summary, lines.quoted
        self.sample, self.points, self.path = lines.sample.encode(), lines.points, lines.path

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is of training, and nothing shows another format."""
        lines = self._lines
        if not any(lines.record.search(block.text) for block in source.blocks() if lines.has in block.text):
            return False

        def finds(expression: str) -> bool:
            return any(re.search(expression, block.text, re.MULTILINE) for block in source.blocks())

        return (not lines.needs or finds(lines.needs)) and not (lines.lacks and finds(lines.lacks))

    def read(self, source: LogSource) -> LossLog:
        """Read all lines of training and validation; raises EmptyLogError if no line of training has a loss."""
        return read_console(self._lines, source)


_NOT_SKIPPED = ("", "False", "false", "0", "None")
_LOSS_COLUMN = -1  # format: the mark of a line with a loss


def read_console(lines: ConsoleLines, source: LogSource) -> LossLog:
    """Read all lines of the format; raises EmptyLogError if no line of training has a loss.

    Raises UnorderedLogError, SeveralRunsError where lines that count stand above the losses, out of order or not at
    all.
    """
    source, cut = without_cut_line(source, lines.record.search)
    reading = _Reading(lines, source)
    records = RecordLines(source, lines.record_start, *([] if lines.double else [twice(lines.once)]))
    for block in records.blocks():
        reading.add(block)
    reading.builder.refuse_words(source.label)
    table = with_sum(reading.builder.build(), lines.loss, reading.window("loss"))
    if "loss" not in table.metrics:
        reading.odd_steps.refuse(source.label)
        raise EmptyLogError(source.label, [lines.summary])
    if reading.are_mixed:
        raise UnorderedLogError(source.label, "loss", "counters above")
    log = LossLog(
        label=source.label,
        format=lines.name,
        table=table,
        loss_name="loss",
        counting=lines.counts or _counting(table, lines),
        base=_base(table, lines),
        steps_per_epoch=reading.steps_per_epoch,
        ignored_lines=reading.ignored + reading.builder.ignored + len(reading.double) + len(cut),
        notes=(*cut, *records.notes(), *reading.notes()),
        headed=reading.headed,
    )
    if lines.header and not reading.headed:
        refuse_unnumbered_epochs(log)
    return log


class _Reading:
    """The columns so far; what lines with a counter alone tell is carried on to those that follow."""

    def __init__(self, lines: ConsoleLines, source: LogSource) -> None:
        self.headed = bool(lines.header) and any(lines.head.search(block.text) for block in source.blocks())
        self._records = HeadedRecords()
        printed = all_fixed if lines.fixed else None
        self.builder = TableBuilder(self.window, phase_by_name, loss="loss", printed_of=printed)
        self.ignored, self.odd_steps = 0, InvalidSteps()
        self._lines, self._before_steps = lines, 0
        self._lengths = {"window": 0, "epoch": 0}
        self._carried = dict.fromkeys(COUNTERS, NO_STEP)
        self._twice = re.compile(twice(lines.once))
        self.double: list[int] = []

    def notes(self) -> tuple[str, ...]:
        """Say what was left out, and what the format takes for granted."""
        before = sentence("lines_note.bar_at_zero") if self._before_steps else ""
        notes = self.builder.notes(), self.odd_steps.notes(), filter(None, (self._lines.note, before))
        return (*double_notes(self.double), *self._records.notes(), *chain.from_iterable(notes))

    @property
    def are_mixed(self) -> bool:
        """True if lines that count, one above each loss, are out of order."""
        return self.headed and not self._lines.bar and self._records.are_mixed

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        self._look_for_lengths(block)
        matches = find_columns(block, self._lines.line)
        if self._lines.double or block.text.count(self._lines.has) != len(matches.places):
            block = self._without_double(block)
            matches = find_columns(block, self._lines.line)
        self.ignored += max(0, block.count_filled() - len(matches.places))
        if not matches.columns:
            return
        numbers = block.numbers[matches.places]
        columns = {name: _joined([matches.columns[at] for at in places]) for name, places in self._lines.places.items()}
        counts = {name: self._counted(name, columns.pop(name)) for name in COUNTERS if name in columns}
        if self.headed:
            self._records.add(numbers, *self._given_by_headers(columns, counts))
        kept = self._kept(columns, counts)
        self.ignored += len(numbers) - len(kept)
        validation = np.zeros(len(kept), np.bool_)
        if VALIDATION in columns:
            validation = are_filled(columns.pop(VALIDATION))[kept]
        for validated, at in by_phase(validation):
            self._add(numbers[kept[at]], kept[at], columns, counts, validated=validated)

    @property
    def steps_per_epoch(self) -> int | None:
        """The steps of an epoch, if the log tells them."""
        return self._lengths["epoch"] or None

    def window(self, name: str) -> Window:
        """Return what a metric is the mean of: losses as the format says, others only if they are named."""
        if phase_by_name(name) == "validation":
            return RAW
        length = self._lengths["window"]
        usual = Window("mean of last", length) if length > 1 else self._lines.window
        return self._lines.windows.get(name, usual if "loss" in name.lower() or name in self._lines.loss else RAW)

    def _look_for_lengths(self, block: LogBlock) -> None:
        """Read what the log tells once: how long its windows and its epochs are."""
        for name, expression in (("window", self._lines.window_length), ("epoch", self._lines.epoch_length)):
            if expression and not self._lengths[name] and (found := re.search(expression, block.text)):
                self._lengths[name] = int(found[1])

    def _without_double(self, block: LogBlock) -> LogBlock:
        """Leave out lines in which two records ran together so that a number may be of both."""
        if not self._twice.search(block.text):
            return block
        kept = [(number, line) for number, line in block.lines() if not self._twice.search(line)]
        self.double += sorted({*block.numbers.tolist()} - {number for number, _ in kept})
        return LogBlock("\n".join(line for _, line in kept), np.array([number for number, _ in kept], np.int64))

    def _counted(self, name: str, texts: Sequence[str]) -> Integers:
        counts, filled = read_printed_steps(texts), are_filled(texts)
        if not filled.all():
            counts = carry_forward(counts, filled, self._carried[name])
        self._carried[name] = int(counts[-1])
        return counts

    def _given_by_headers(
        self, columns: Mapping[str, Sequence[str]], counts: Mapping[str, Integers]
    ) -> tuple[Integers, Booleans]:
        """Return what each line counts that holds no metric, -1 for all others, and which hold one of training."""
        filled = _hold_metric(columns)
        validation = are_filled(columns[VALIDATION]) if VALIDATION in columns else np.zeros(len(filled), np.bool_)
        counted = counts["epoch"] if "epoch" in counts else counts["step"]
        return np.where(filled, -1, counted), filled & ~validation

    def _kept(self, columns: Mapping[str, Sequence[str]], counts: Mapping[str, Integers]) -> Integers:
        """Return the rows that hold a metric; of a bar's rows at the same counters only the last, of none at step 0."""
        kept = _hold_metric(columns)
        if self._lines.bar and "step" in counts:
            before = kept & (counts["step"] == 0)
            self._before_steps += int(np.count_nonzero(before))
            kept &= ~before
        if self._lines.bar:
            same = np.all([np.diff(values) == 0 for values in counts.values()], axis=0)
            kept[:-1] &= ~(same & kept[1:])
        return np.flatnonzero(kept)

    def _add(
        self,
        numbers: Integers,
        at: Integers,
        columns: Mapping[str, Sequence[str]],
        counts: Mapping[str, Integers],
        *,
        validated: bool,
    ) -> None:
        lines, taken = self._lines, {name: take_texts(texts, at) for name, texts in columns.items()}
        skipped = _skipped([taken.pop(name) for name in SKIPPED if name in taken])
        named = pair_columns(taken.pop(REST), lines.pair) if REST in taken else {}
        metrics = {**named, **{name: texts for name, texts in taken.items() if are_filled(texts).any()}}
        metrics = {lines.renamed.get(name, name): texts for name, texts in metrics.items() if name not in COUNTERS}
        if len(lines.loss) == 1 and lines.loss[0] in metrics:
            metrics["loss"] = metrics.pop(lines.loss[0])
        counted = {name: values[at] for name, values in counts.items()}
        epochs, total = counted.get("epoch"), counted.get("total")
        steps = counted.get("step", epochs)
        if steps is None:
            return
        if not validated and not self.headed and "loss" in metrics and NO_STEP in steps:
            self.odd_steps.look(numbers, steps, list(map(str, steps.tolist())), metrics["loss"])
        self.builder.add(
            numbers,
            _moved(steps, lines.first_step if "step" in counts else lines.first_epoch, lines),
            named_validation(metrics) if validated else metrics,
            epochs=None if epochs is None else _known(_moved(epochs, lines.first_epoch, lines), headed=self.headed),
            totals=None if total is None else np.maximum(total, 0),
            skipped=skipped,
        )


def _hold_metric(columns: Mapping[str, Sequence[str]]) -> Booleans:
    metrics = [texts for name, texts in columns.items() if name not in (VALIDATION, *SKIPPED)]
    filled: Booleans = np.any([are_filled(texts) for texts in metrics], axis=0)
    return filled


def _joined(groups: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the text that took part, of groups of which at most one does."""
    return groups[0] if len(groups) == 1 else list(map("".join, zip(*groups, strict=True)))


def _skipped(columns: Sequence[Sequence[str]]) -> Integers | None:
    """Count the steps without an update: a number says how many, another word than a no that it was one."""
    if not columns:
        return None
    counts = [min(int(text), LARGEST_STEP) if text.isdecimal() else text not in _NOT_SKIPPED for text in columns[0]]
    return np.array(counts, np.int64)


def _known(epochs: Integers, *, headed: bool) -> Integers:
    """Leave records without an epoch out where lines above others tell it; elsewhere it is not known of any."""
    return epochs if headed else np.maximum(epochs, -1)


def _unlike(lines: ConsoleLines) -> bool:
    return None not in (lines.first_step, lines.first_epoch) and lines.first_step != lines.first_epoch


def _moved(counts: Integers, first: Base | None, lines: ConsoleLines) -> Integers:
    """Count from 1 where the first step and the first epoch have unlike numbers."""
    return np.where(counts != NO_STEP, counts + (1 - (first or 0)), NO_STEP) if _unlike(lines) else counts


def _base(table: LogTable, lines: ConsoleLines) -> Base | None:
    """Return what the first step is called: not 0 where a step is as large as its total."""
    if _unlike(lines):
        return 1
    base = lines.first_epoch if lines.first_step is None else lines.first_step
    if base == 0 and table.totals is not None and (table.totals > 0).any():
        return 1 if (table.steps == table.totals).any() else 0
    return base


def _counting(table: LogTable, lines: ConsoleLines) -> Counting:
    """Tell by the groups how a log counts: steps through or inside epochs, by what starts again."""
    if "step" not in lines.places:
        return "epoch"
    if table.epochs is None:
        return "global step"
    if table.totals is not None:
        return "step in epoch"
    rows = table.metrics["loss"].rows
    return "step in epoch" if starts_again(table.steps[rows], table.epochs[rows]) else "global step"


class HeadedRecords:
    """Takes the lines that count and those with a loss, block by block, in file order.

    Out of order, such lines cannot be sorted: what counts them is lost. Where the first lines of a log are missing, so
    is what counts the losses up to the next such line; where all are, several epochs look like a run begun anew.

    >>> records = HeadedRecords()
    >>> records.add(np.array([1, 2, 3, 4]), np.array([-2, 0, 1, -2]), np.array([True, False, False, True]))
    >>> records.unnumbered.tolist(), records.are_mixed
    ([1], True)
    """

    def __init__(self) -> None:
        self._counts: list[Integers] = []
        self._lines: list[Integers] = []

    def add(self, lines: Integers, counts: Integers, losses: Booleans) -> None:
        """Take lines by their numbers: `counts` is what one tells that has no loss, negative if it does not count."""
        kept = losses | (counts >= 0)
        self._counts.append(np.where(losses, _LOSS_COLUMN, counts)[kept])
        self._lines.append(lines[kept])

    @property
    def unnumbered(self) -> Integers:
        """The numbers of the lines with a loss above the first line that counts; none where no line does."""
        counts, lines = self._in_order()
        headers = np.flatnonzero(counts != _LOSS_COLUMN)
        return lines[: headers[0]] if len(headers) else lines[:0]

    @property
    def are_mixed(self) -> bool:
        """True if losses without a line that counts, or several under one, go with such lines without a loss."""
        counts, _ = self._in_order()
        followed = counts[:-1] != _LOSS_COLUMN
        empty = followed & (counts[1:] > counts[:-1])
        crowded = ~followed & (counts[1:] == _LOSS_COLUMN)
        lone = len(self.unnumbered)
        return lone > 1 or bool(empty.any() and (lone or crowded.any()))

    def notes(self) -> tuple[str, ...]:
        """Say which losses are left out."""
        lines = self.unnumbered
        return (sentence("headed_note.unnumbered", count=len(lines), line=int(lines[0])),) if len(lines) else ()

    def _in_order(self) -> tuple[Integers, Integers]:
        empty = np.zeros(0, np.int64)
        return np.concatenate([empty, *self._counts]), np.concatenate([empty, *self._lines])


def refuse_unnumbered_epochs(log: LossLog) -> None:
    """Raise SeveralRunsError where no line tells the epoch, and steps start again with other losses."""
    series = log.table.metrics["loss"]
    kept = deduplicate_steps(log.table.steps[series.rows], series.values)
    if kept.resumed is not None and kept.each == 1:
        first = int(log.table.lines[series.rows][kept.index].min())
        raise SeveralRunsError(log.label, len(kept.index), len(series.values) - len(kept.index), first)


# The lines that a logger prints to the console, as data: what `mappings/log_formats/` holds.
#
# An expression is a regular one in which `<step>`, `<epoch>`, `<total>` (the steps of an epoch) and `<loss>` stand
# for numbers, any other name in angle brackets for a metric, `<#>` for a number that is passed over and `<...>` for a
# stretch of anything. `<overflow>` and `<skipped>` are what tells that a step changed no weight: a word, or how many
# such steps.

# What counts, and what is neither a count nor a metric.
COUNTERS = ("epoch", "step", "total")
SKIPPED = ("overflow", "skipped")
VALIDATION, REST = "validation", "rest"
_MARK = re.compile(r"(?<!\?P)<(#|\.\.\.|\w+)>")
# What stands for a loss that is no number is kept, as NaN.
_LOSS_TEXT = rf"{NUMBER}(?:\(s?nan\)|\(ind\))?|None|null|[-+]?[0-9]\.#[A-Z]{{2,5}}"
_INTEGER, _WORD, _ANYTHING = "[0-9]{1,12}", r"[\w.]{1,20}", "[^\\n]{0,300}?"
# Where one name stands in several lines, its groups are distinguished by what follows this.
_AGAIN = "__"
_TUPLES = ("lines", "validation", "header", "loss", "left_out")
_COUNTS = ("global step", "step in epoch", "epoch")


@dataclass(frozen=True)
class ConsoleLines:
    r"""How one logger writes.

    `has` is a text that stands once in every line of training, or in the head of the log where `start` is given. Each
    of `lines` finds one of training, of `validation` one of another phase, of `header` one that holds only counters,
    for the lines below it. With `pairs`, which stands between a name and its number (`: `), all that follows in the
    line are metrics too, but for those `left_out`, under their `renamed` names. `loss` names the training loss, or the
    parts whose sum it is.

    `window` is what a loss is the mean of, `windows` that of single metrics; `window_length` and `epoch_length` are
    expressions whose group tells, once in a log, the steps of one. `first_step` and `first_epoch` are what the log
    calls them; None leaves it to the log. `fixed`: numbers are printed with a fixed number of decimals. Of lines of a
    `bar` at the same counters the last counts.

    `needs` must be found in the log, `lacks` must not. `start` is where a record begins, if another one ran into its
    line; where they cannot be parted, `double` stands once in each. `sample` shows real lines, `points` their steps and
    losses. `quoted`: nobody here has run the logger. `path` is the file that says all this.
    """

    name: str
    summary: str
    has: str
    lines: tuple[str, ...]
    sample: str
    points: tuple[tuple[int, float], ...]
    validation: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    pairs: str = ""
    loss: tuple[str, ...] = ("loss",)
    renamed: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    window: Window = RAW
    windows: Mapping[str, Window] = field(default_factory=dict)
    window_length: str = ""
    epoch_length: str = ""
    counts: Counting | None = None
    first_step: Base | None = None
    first_epoch: Base | None = None
    needs: str = ""
    lacks: str = ""
    bar: bool = False
    fixed: bool = False
    start: str = ""
    double: str = ""
    note: str = ""
    quoted: bool = True
    path: Path = field(default_factory=Path)

    @cached_property
    def record(self) -> re.Pattern[str]:
        """Find a line of training in a block of lines; raises MappingRuleError, as all that is made at first use."""
        return self._compiled(self._training())

    @cached_property
    def line(self) -> re.Pattern[str]:
        """Find any line of the format in a block of lines."""
        behind = self._behind()
        validation = [f"(?P<{VALIDATION}>{one}){behind}" for one in self.validation]
        return self._compiled([*self._training(), *validation, *self.header])

    @cached_property
    def head(self) -> re.Pattern[str]:
        """Find a line that holds only counters in a block of lines."""
        return self._compiled(self.header)

    @cached_property
    def pair(self) -> re.Pattern[str]:
        """Find a metric and its number in what follows in a line."""
        never = "".join(rf"(?!{name}\b)" for name in ("eta", "ETA", *self.left_out))
        name = rf"(?<![\w@./(-]){never}([A-Za-z][\w@./-]{{0,80}})"
        return self._compiled([rf"{name}{self.pairs}({NUMBER})(?![\w.:/-]|%\|)"])

    @cached_property
    def places(self) -> Mapping[str, tuple[int, ...]]:
        """Tell which groups of `line` hold what stands under a name, counted from 0."""
        places: dict[str, tuple[int, ...]] = {}
        for name, group in self.line.groupindex.items():
            plain = name.split(_AGAIN)[0]
            places[plain] = (*places.get(plain, ()), group - 1)
        return places

    @property
    def record_start(self) -> str:
        """Return what finds the beginning of a record anywhere in a line."""
        return self.start or "|".join(unnamed(spelled_out(one)) for one in (*self.lines, *self.validation))

    @property
    def once(self) -> str:
        """Return what stands once in each record."""
        return f"(?:{self.double or self.start or re.escape(self.has)})"

    def _compiled(self, expressions: Iterable[str]) -> re.Pattern[str]:
        """Join expressions; each format is asked for only where its words stand, and hundreds take a while."""
        try:
            return _compiled(expressions)
        except re.error as error:
            raise MappingRuleError(self.path, f"{self.name}: {error}") from error

    def _training(self) -> list[str]:
        return [one + self._behind(self.loss if "<loss>" not in one else ()) for one in self.lines]

    def _behind(self, names: Iterable[str] = ()) -> str:
        """Return what takes in the rest of a line, in which these names have to stand."""
        if not self.pairs:
            return ""
        asked = "".join(rf"(?=[^\n]{{0,{LONGEST_LINE}}}?(?<![\w./-]){re.escape(name)}{self.pairs})" for name in names)
        return rf"{asked}(?P<{REST}>[^\n]*)"


def spelled_out(expression: str) -> str:
    """Write named groups for the marks of an expression."""
    return _MARK.sub(_group, expression)


def unnamed(expression: str) -> str:
    """Leave the names of groups out."""
    return re.sub(r"\(\?P<\w+>", "(?:", expression)


def _group(mark: re.Match[str]) -> str:
    name = mark[1]
    if name == "...":
        return _ANYTHING
    if name == "#":
        return f"(?:{NUMBER})"
    kind = _LOSS_TEXT if name == "loss" else _WORD if name in SKIPPED else NUMBER
    kind = _INTEGER if name in COUNTERS else kind
    return f"(?P<{name}>{kind})"


def _compiled(expressions: Iterable[str]) -> re.Pattern[str]:
    """Join expressions, and number the groups of one name; raises re.error."""
    seen: dict[str, int] = {}

    def distinguished(group: re.Match[str]) -> str:
        seen[group[1]] = seen.get(group[1], 0) + 1
        return f"(?P<{group[1]}{_AGAIN}{seen[group[1]]}>"

    joined = "|".join(map(spelled_out, expressions))
    return re.compile(re.sub(r"\(\?P<(\w+)>", distinguished, joined), re.MULTILINE)


_KNOWN = {field.name for field in fields(ConsoleLines)} - {"path"}


@cache
def console_formats() -> tuple[ConsoleLines, ...]:
    """Return all formats of console lines; raises MappingRuleError if a table is none."""
    return tuple(read_console_table(path, table) for path, table in format_tables("console"))


def read_console_table(path: Path, table: dict[str, Any]) -> ConsoleLines:
    """Make one format; raises MappingRuleError with what is wrong, of expressions when they are used."""
    check_keys(path, table, _KNOWN)
    name = table.get("name", "?")
    if table.get("counts", "epoch") not in _COUNTS:
        raise MappingRuleError(path, say("log_table.counts", name=name, known=_COUNTS, given=table["counts"]))
    try:
        return ConsoleLines(**table_values(table, _TUPLES), path=path)
    except (TypeError, ValueError, KeyError, AttributeError, AlignError) as error:
        raise MappingRuleError(path, f"{name}: {error}") from error


PLUGINS = tuple(map(ConsoleFormat, console_formats()))
