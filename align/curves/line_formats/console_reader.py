"""Reads the lines of ConsoleLines, a block at a time.

Validation results stand at the last training line before them unless they tell a step of their own. A last line
without an end, plainly shorter than others of its kind, was cut and is left out.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_filled, take_texts
from align.curves.columns.printed_digits import all_fixed
from align.curves.line_formats.console_lines import COUNTERS, REST, SKIPPED, VALIDATION
from align.curves.log_parts.column_names import with_sum
from align.curves.log_parts.counting import starts_again
from align.curves.log_parts.cut_line import without_cut_line
from align.curves.log_parts.deduplicate_steps import deduplicate_steps
from align.curves.log_parts.delimited import double_notes
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import NO_STEP, InvalidSteps, TableBuilder, read_printed_steps
from align.curves.log_parts.validation_metrics import by_phase, carry_forward, named_validation, phase_by_name
from align.curves.log_sources import LogBlock
from align.curves.loss_log import RAW, LossLog, Window
from align.curves.thresholds import LARGEST_STEP
from align.errors import EmptyLogError, SeveralRunsError, UnorderedLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.curves.line_formats.console_lines import ConsoleLines
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Base, Booleans, Counting, Integers, LogTable

_NOT_SKIPPED = ("", "False", "false", "0", "None")
_LOSS = -1  # format: the mark of a line with a loss


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
        found = find_columns(block, self._lines.line)
        if self._lines.double or block.text.count(self._lines.has) != len(found.places):
            block = self._without_double(block)
            found = find_columns(block, self._lines.line)
        self.ignored += max(0, block.count_filled() - len(found.places))
        if not found.columns:
            return
        numbers = block.numbers[found.places]
        columns = {name: _joined([found.columns[at] for at in places]) for name, places in self._lines.places.items()}
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
        self._counts.append(np.where(losses, _LOSS, counts)[kept])
        self._lines.append(lines[kept])

    @property
    def unnumbered(self) -> Integers:
        """The numbers of the lines with a loss above the first line that counts; none where no line does."""
        counts, lines = self._in_order()
        headers = np.flatnonzero(counts != _LOSS)
        return lines[: headers[0]] if len(headers) else lines[:0]

    @property
    def are_mixed(self) -> bool:
        """True if losses without a line that counts, or several under one, go with such lines without a loss."""
        counts, _ = self._in_order()
        followed = counts[:-1] != _LOSS
        empty = followed & (counts[1:] > counts[:-1])
        crowded = ~followed & (counts[1:] == _LOSS)
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
