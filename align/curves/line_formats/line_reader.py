"""Reads the lines of a LineFormat: the user's own pattern, or the one that the reader of last resort infers.

A progress bar prints a step again and again as it moves: of such lines that follow each other the last counts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.thresholds import PATTERN_SECONDS
from align.curves.line_formats.layout_rows import read_layout_rows, sample_block, sample_line
from align.curves.line_formats.line_format import LineFormat
from align.curves.log_parts.cut_line import without_cut_line
from align.curves.log_parts.table_builder import NO_STEP, InvalidSteps, TableBuilder, read_steps, take_rows
from align.curves.log_parts.text import end_notes, only_epochs_note
from align.curves.log_sources import LogBlock
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.curves.thresholds import LARGEST_STEP, TWICE_PRINTED_ROWS
from align.errors import EmptyLogError, UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.curves.line_layouts import LineLayouts
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Integers, LogTable

_COUNTERS = ("step", "epoch", "total")
SKIP_GROUPS = ("overflow", "skipped")
_OTHERS = (*_COUNTERS, "validation", *SKIP_GROUPS)
_BAR = "%|"
BEFORE_EPOCHS = LARGEST_STEP  # format: the mark of a record before the first line that tells an epoch
_YES = {"true", "yes", "y", "overflow", "skipped", "skip"}
_RATIO = re.compile(r"\s*/\s*[0-9]")
_TOTAL = r"let the pattern take the number behind the step too: (?P<step>\d+)\s*/\s*(?P<total>\d+)"


class FoundLine(NamedTuple):
    """A line that matches, its groups by name, "" for one that took no part, and where its other numbers stand."""

    number: int
    groups: dict[str, str]
    bar: bool
    others: dict[str, tuple[int, int]]


def find_in_block(line_format: LineFormat, block: LogBlock) -> list[FoundLine]:
    """Return the lines of a block that match; raises UsageError if that takes for ever."""
    try:
        return [_found(line_format, number, line, match) for number, line, match in _matches(line_format, block)]
    except TimeoutError:
        pattern = line_format.pattern
        raise UsageError.of("log_usage.slow_pattern", pattern=pattern, seconds=PATTERN_SECONDS) from None


def _found(line_format: LineFormat, number: int, line: str, match: re.Match[str]) -> FoundLine:
    groups = {name: (text or "").strip() for name, text in match.groupdict().items()}
    others = line_format.others(line, match)
    return FoundLine(
        number, {**groups, **{name: line[slice(*span)] for name, span in others.items()}}, _BAR in line, others
    )


def _matches(line_format: LineFormat, block: LogBlock) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield the number of the line with the loss, the text that was searched, and what was found."""
    searched = line_format.searched()
    if not line_format.spans_lines:
        found = ((number, line, searched.search(line)) for number, line in block.lines())
        yield from ((number, line, match) for number, line, match in found if match)
        return
    text, line, end = block.text, 0, 0
    for match in searched.finditer(text):
        place = match.start("loss") if match["loss"] else match.start()
        line, end = line + text.count("\n", end, place), place
        yield int(block.numbers[line]), text, match


def blocks_of(line_format: LineFormat, source: LogSource) -> Iterable[LogBlock]:
    """Give the lines in blocks, all of them in one where records stand in several lines."""
    if not line_format.spans_lines:
        return source.blocks()
    blocks = list(source.blocks())
    return [LogBlock("\n".join(one.text for one in blocks), np.concatenate([one.numbers for one in blocks]))]


def read_lines(line_format: LineFormat, source: LogSource) -> LossLog:
    """Read all lines that match; raises EmptyLogError if none has a loss, UsageError if that takes for ever."""
    source, cut = _without_cut_line(line_format, source)
    reading = _Reading(line_format, source, cut)
    for block in blocks_of(line_format, source):
        reading.add(block)
    return reading.log()


def _without_cut_line(line_format: LineFormat, source: LogSource) -> tuple[LogSource, tuple[str, ...]]:
    def is_record(line: str) -> bool:
        found = find_in_block(line_format, LogBlock(line, np.zeros(1, np.int64)))
        return any(one.groups["loss"] for one in found)

    return (source, ()) if line_format.spans_lines else without_cut_line(source, is_record)


class _Reading:
    """The columns so far; what lines with a counter alone tell is carried on to those that follow."""

    def __init__(self, line_format: LineFormat, source: LogSource, cut: tuple[str, ...]) -> None:
        groups = line_format.compiled.groupindex
        self._format, self._source = line_format, source
        self._counters = [name for name in _COUNTERS if name in groups]
        self._counter = "step" if "step" in groups else "epoch"
        self._metrics = [name for name in groups if name not in _OTHERS]
        window = line_format.window or (RAW if self._counter == "step" else EPOCH_MEAN)
        self._builder, self._odd = TableBuilder(lambda _: window, loss="loss"), InvalidSteps()
        self._carried: dict[str, str] = {}
        self._ignored = self._validation = self._rows = 0
        self._before_epochs, self._begun_inside = True, ""
        self._cut = cut

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        samples = sample_block(self._format, block)
        if samples is not None and block.layouts is not None:
            self._add_layouts(block, block.layouts, find_in_block(self._format, samples))
            return
        found = find_in_block(self._format, block)
        self._ignored += block.count_filled() - len(found)
        rows = list(self._carried_on(found))
        moved = [self._is_moved(row, after) for row, after in pairwise(rows)]
        rows = [row for row, again in zip(rows, [*moved, False], strict=False) if not again]
        if rows:
            self._take(rows)

    def _add_layouts(self, block: LogBlock, layouts: LineLayouts, found: Sequence[FoundLine]) -> None:
        """Take the lines of a block by what was found in one line of each layout, numbered by it."""
        others = dict.fromkeys(name for row in found for name in row.others)
        samples = {
            row.number: sample_line(
                self._format,
                layouts.samples[row.number],
                {**dict.fromkeys(others, ""), **row.groups},
                bar=row.bar,
                others=row.others,
            )
            for row in found
        }
        rows = read_layout_rows(layouts, samples, self._counters, (self._metrics, list(others)), self._carried)
        self._ignored += block.count_filled() - len(rows.places) - rows.moved - rows.validation
        self._validation += rows.validation
        self._carried = rows.carried
        if len(rows.places):
            self._take_columns(block.numbers[rows.places], rows.columns)

    def _take(self, rows: Sequence[FoundLine]) -> None:
        lines = np.array([row.number for row in rows], np.int64)
        others = dict.fromkeys(name for row in rows for name in row.others)
        names = (*self._counters, *self._metrics, *others)
        columns = {name: [row.groups.get(name, "") for row in rows] for name in names}
        self._take_columns(lines, columns, skipped_steps([row.groups for row in rows]))

    def _take_columns(
        self, lines: Integers, columns: Mapping[str, Sequence[str]], skipped: Integers | None = None
    ) -> None:
        counts = {name: read_steps(columns[name]) for name in self._counters}
        steps = counts[self._counter]
        if "epoch" in counts and self._counter == "step" and self._before_epochs:
            known = np.flatnonzero(counts["epoch"] != NO_STEP)
            self._before_epochs = not len(known)
            counts["epoch"][: known[0] if len(known) else None] = BEFORE_EPOCHS
        self._odd.look(lines, steps, columns[self._counter], columns["loss"])
        metrics = {name: texts for name, texts in columns.items() if name not in self._counters}
        self._builder.add(
            lines, steps, metrics, epochs=counts.get("epoch"), totals=counts.get("total"), skipped=skipped
        )

    def _carried_on(self, found: Sequence[FoundLine]) -> Iterator[FoundLine]:
        """Yield the records of training, each with the counters that it lacks from the line that had them last."""
        for row in found:
            groups, carried = row.groups, self._carried
            given = {name: groups[name] for name in self._counters if groups[name]}
            if not any(groups[name] for name in self._metrics):
                self._carried = {**carried, **given, "validation": groups.get("validation", "")}
                self._ignored += 1
                self._rows = 0
            elif groups.get("validation") or (carried.get("validation") and not given):
                self._validation += 1
            else:
                self._rows += 1
                order = {self._counter: str(self._rows)} if self._format.numbers_rows else carried
                missing = {name: order.get(name, "") for name in self._counters if not groups[name]}
                yield row._replace(groups={**groups, **missing})

    def _is_moved(self, row: FoundLine, after: FoundLine) -> bool:
        """Tell whether a line is a bar's, and the next one the same bar at the same step."""
        return row.bar and after.bar and all(row.groups[name] == after.groups[name] for name in self._counters)

    def log(self) -> LossLog:
        """Put all together; raises EmptyLogError if there is no loss."""
        label, line_format = self._source.label, self._format
        self._builder.refuse_words(label)
        table, self._begun_inside = _with_epoch_before(self._builder.build())
        if "loss" not in table.metrics:
            self._odd.refuse(label)
            raise EmptyLogError(label, [line_format.summary], EmptyLogError.OWN_PATTERN)
        table = _numbered_once(table) if line_format.numbers_rows else table
        inside = "step" in self._counters and "epoch" in self._counters
        return LossLog(
            label=label,
            format=line_format.name,
            table=table,
            loss_name="loss",
            counting="step in epoch" if inside else "global step" if self._counter == "step" else "epoch",
            base=line_format.base,
            steps_per_epoch=line_format.steps_per_epoch,
            ignored_lines=self._ignored + self._builder.ignored + self._validation + len(self._cut),
            notes=tuple(self._notes()),
            headed=any(self._carried.get(name) for name in self._counters),
        )

    def _notes(self) -> Iterator[str]:
        yield from self._cut
        yield from end_notes(self._source)
        yield from self._builder.notes()
        yield from self._odd.notes()
        if self._begun_inside:
            yield self._begun_inside
        if self._validation:
            yield sentence("lines_note.another_phase", count=self._validation)
        if self._counter == "epoch" and self._format.window is None:
            yield only_epochs_note()


def _with_epoch_before(table: LogTable) -> tuple[LogTable, str]:
    """Give records before the first line that tells an epoch the epoch before it, where their steps start again there.

    All others without one are left out; the second value is what is to be said.
    """
    epochs = table.epochs
    if epochs is None or not (lone := epochs == BEFORE_EPOCHS).any():
        return table, ""
    count = int(np.count_nonzero(lone))
    if lone.all() or not epochs[count] or not lone[:count].all() or table.steps[count] >= table.steps[count - 1]:
        return take_rows(table, np.flatnonzero(~lone)), sentence("logs_note.before_first_epoch", count=count)
    before = int(epochs[count]) - 1
    note = sentence("headed_note.epoch_before", count=count, epoch=before, line=int(table.lines[0]))
    return replace(table, epochs=np.where(lone, before, epochs)), note


def _numbered_once(table: LogTable) -> LogTable:
    """Count rows that are numbered by their order, and all printed twice, one below the other, once."""
    losses = table.metrics["loss"]
    twice = len(losses.rows) == len(table.lines) >= TWICE_PRINTED_ROWS and not len(table.lines) % 2
    if not twice or not np.array_equal(losses.values[::2], losses.values[1::2], equal_nan=True):
        return table
    epochs = None if table.epochs is None else (table.epochs + 1) // 2
    return replace(table, steps=(table.steps + 1) // 2, epochs=epochs)


def skipped_steps(groups: Sequence[Mapping[str, str]]) -> Integers | None:
    """Return the skipped steps of each line, shape (lines,); None where the expression has no such group."""
    name = next((one for one in SKIP_GROUPS if groups and one in groups[0]), None)
    if name is None:
        return None
    texts = [one[name] for one in groups]
    counts = read_steps(texts)
    words = np.array([text.lower() in _YES for text in texts], np.int64)
    return np.where(counts == NO_STEP, words, counts)


class PatternFormat:
    """Lines in which the expression finds its groups; raises UsageError where it cannot tell a step and a loss."""

    name = "pattern"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b""

    def __init__(self, pattern: str) -> None:
        self.summary = f"lines in which the pattern '{pattern}' is found"
        self._format = LineFormat(self.name, self.summary, _checked(pattern), of_user=True)

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the expression is found in a line."""
        return any(find_in_block(self._format, block) for block in blocks_of(self._format, source))

    def read(self, source: LogSource) -> LossLog:
        """Read all lines that match; raises EmptyLogError if none has a loss, UsageError if that takes for ever."""
        log = read_lines(self._format, source)
        return replace(log, length_advice=_TOTAL) if self._leaves_total(source) else log

    def _leaves_total(self, source: LogSource) -> bool:
        """Tell whether a number of steps stands behind the step, and no group takes it."""
        groups = self._format.compiled.groupindex
        if "total" in groups or not {"step", "epoch"} <= set(groups) or self._format.spans_lines:
            return False
        searched = self._format.searched()
        found = (searched.search(line) for _, line in source.head().lines())
        ends = ((match.string, match.end("step")) for match in found if match and match["step"])
        return any(_RATIO.match(line, end) for line, end in islice(ends, 1))


def _checked(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError.of("log_usage.no_expression", pattern=pattern, error=error) from error
    missing = [] if "loss" in groups else ["loss"]
    if "step" not in groups and "epoch" not in groups:
        missing.append("step (or epoch)")
    if missing:
        raise UsageError.of("log_usage.lacks_group", pattern=pattern, missing=missing)
    return pattern
