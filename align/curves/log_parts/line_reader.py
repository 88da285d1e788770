"""Reads the lines of a LineFormat: the user's own pattern, or the one that the reader of last resort infers.

A progress bar prints a step again and again as it moves: of such lines that follow each other the last counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.thresholds import PATTERN_SECONDS
from align.curves.log_parts.line_format import LineFormat
from align.curves.log_parts.record_lines import without_cut_line
from align.curves.log_parts.table_builder import (
    NO_STEP,
    InvalidSteps,
    TableBuilder,
    end_notes,
    read_steps,
    take_rows,
)
from align.curves.log_sources import LogBlock, LogPlugin, is_digit_blind
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.curves.printed_columns import NO_FIELD, Field, PrintedColumn, stripped_field
from align.curves.thresholds import LARGEST_STEP, TWICE_PRINTED_ROWS
from align.errors import EmptyLogError, UsageError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.curves.log_sources import LineLayouts, LogSource
    from align.curves.loss_log import Booleans, Integers, LogTable


_COUNTERS = ("step", "epoch", "total")
SKIP_GROUPS = ("overflow", "skipped")
_OTHERS = (*_COUNTERS, "validation", *SKIP_GROUPS)
_BAR = "%|"
BEFORE_EPOCHS = LARGEST_STEP  # format: the mark of a record before the first line that tells an epoch
_YES = {"true", "yes", "y", "overflow", "skipped", "skip"}
_RATIO = re.compile(r"\s*/\s*[0-9]")


class FoundLine(NamedTuple):
    """A line that matches, its groups by name, "" for one that took no part, and where its other numbers stand."""

    number: int
    groups: dict[str, str]
    bar: bool
    others: dict[str, tuple[int, int]]


def find_in_block(line_format: LineFormat, block: LogBlock) -> list[FoundLine]:
    """Return the lines of a block that match; raises UsageError if that takes for ever."""
    try:
        return [_found(line_format, *matched) for matched in _matches(line_format, block)]
    except TimeoutError:
        pattern = line_format.pattern
        raise UsageError.of("log_usage.slow_pattern", pattern=pattern, seconds=PATTERN_SECONDS) from None


def _found(line_format: LineFormat, number: int, line: str, match: re.Match[str]) -> FoundLine:
    groups = {name: (text or "").strip() for name, text in match.groupdict().items()}
    others = line_format.others(line, match)
    groups |= {name: line[slice(*span)] for name, span in others.items()}
    return FoundLine(number, groups, _BAR in line, others)


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
        others = dict.fromkeys((name for row in found for name in row.others), "")
        samples = {row.number: _sample_line(self._format, layouts.samples[row.number], row, others) for row in found}
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
            raise EmptyLogError(label, [line_format.summary], say("log_error.own_pattern"))
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
            yield sentence("logs_note.only_epochs")


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


class PatternFormat(LogPlugin):
    """Lines in which the expression finds its groups; raises UsageError where it cannot tell a step and a loss."""

    name = "pattern"
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
        return replace(log, length_advice=say("log_error.pattern_of_total")) if self._leaves_total(source) else log

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


# The records of a LineFormat read by the column: one line of each layout is searched, and speaks for all of it.
#
# What lines with a counter alone tell is carried on to those that follow, as the reader of single lines does it.

# Groups that are read line by line, and what makes a record of more or less than one line.
_SINGLE = frozenset({"overflow", "skipped"})
_OWN_LINES = ("\n", r"\n", "(?P<step>)", "(?P<epoch>)")


@dataclass(frozen=True, slots=True)
class SampleLine:
    """What is found in the line that stands for a layout: the texts of its groups, "" for one that took no part."""

    groups: Mapping[str, str]
    fields: Mapping[str, Field]
    bar: bool


@dataclass(frozen=True, slots=True, eq=False)
class LayoutRows:
    """The records of training of a block, by their places in it, and the texts of their groups in columns.

    `moved` counts the lines of progress bars that are printed again, `validation` those of
    another phase; `carried` is what holds for the lines that follow.
    """

    places: Integers
    columns: dict[str, PrintedColumn]
    moved: int
    validation: int
    carried: dict[str, str]


def sample_block(line_format: LineFormat, block: LogBlock) -> LogBlock | None:
    """Return the lines to search, numbered by layout; None if each line of the block is to be read by itself."""
    if not is_digit_blind(line_format.compiled) or not _SINGLE.isdisjoint(line_format.compiled.groupindex):
        return None
    if block.layouts is None or any(own in line_format.pattern for own in _OWN_LINES):
        return None
    samples = block.layouts.samples
    return LogBlock("\n".join(samples), np.arange(len(samples)))


def _sample_line(line_format: LineFormat, line: str, row: FoundLine, others: Mapping[str, str]) -> SampleLine:
    """Tell where the groups of a line that matches stand; `others` are numbers beside them in any line."""
    match, groups = line_format.searched().search(line), {**others, **row.groups}
    known = () if match is None else match.re.groupindex
    spans = {name: match.span(name) if match and name in known else row.others.get(name, (0, 0)) for name in groups}
    fields = {name: stripped_field(line, *span) if groups[name] else NO_FIELD for name, span in spans.items()}
    return SampleLine(groups, fields, row.bar)


def read_layout_rows(
    layouts: LineLayouts,
    samples: Mapping[int, SampleLine],
    counters: Sequence[str],
    metrics: tuple[Sequence[str], Sequence[str]],
    carried: Mapping[str, str],
) -> LayoutRows:
    """Read all lines whose layout has a sample; `carried` is what holds for the first of them.

    The first of the `metrics` make a line a record, the others come beside.
    """
    rows = _Rows(layouts, samples, counters, metrics[0], carried)
    training = rows.training()
    columns = {name: rows.carried_on(name, training) for name in counters}
    columns |= {name: rows.column(name, training) for name in (*metrics[0], *metrics[1])}
    kept = training[~_moved(rows, training, [columns[name] for name in counters])]
    if len(kept) < len(training):
        columns = {name: column.take(np.isin(training, kept)) for name, column in columns.items()}
    validation = len(rows.places) - int(np.count_nonzero(rows.header)) - len(training)
    moved = len(training) - len(kept)
    return LayoutRows(rows.places[kept], columns, moved, validation, rows.carried_after())


class _Rows:
    """All lines that match, in their order."""

    def __init__(
        self,
        layouts: LineLayouts,
        samples: Mapping[int, SampleLine],
        counters: Sequence[str],
        metrics: Sequence[str],
        carried: Mapping[str, str],
    ) -> None:
        self._layouts, self._samples, self._counters, self._carried = layouts, samples, counters, carried
        self.places = np.flatnonzero(self._flags(samples)[layouts.kinds])
        self.kinds = layouts.kinds[self.places]
        filled = (kind for kind, one in samples.items() if any(one.groups[name] for name in metrics))
        self.header = ~self._of_rows(self._flags(filled))

    def training(self) -> Integers:
        """Return the rows of training: not those that name another phase, or follow such a name without a counter."""
        validation = self.having("validation")
        last = _last_before(self.header)
        carried = np.where(last < 0, bool(self._carried.get("validation")), validation[last])
        counted = np.zeros(len(self.kinds), np.bool_)
        for name in self._counters:
            counted |= self.having(name)
        return np.flatnonzero(~self.header & ~validation & (counted | ~carried))

    def having(self, name: str) -> Booleans:
        """Tell which rows have a text under a name."""
        return self._of_rows(self._flags(kind for kind, one in self._samples.items() if one.groups.get(name)))

    def bars(self) -> Booleans:
        """Tell which rows are of progress bars."""
        return self._of_rows(self._flags(kind for kind, one in self._samples.items() if one.bar))

    def column(self, name: str, rows: Integers) -> PrintedColumn:
        """Return the texts of some rows under a name."""
        return PrintedColumn(
            self._layouts.letters, self._layouts.starts[self.places[rows]], self.kinds[rows], self._fields(name)
        )

    def carried_on(self, name: str, rows: Integers) -> PrintedColumn:
        """Return the texts of a counter, of rows that lack it from the line without a metric that had it last."""
        own = self.having(name)
        if own[rows].all():
            return self.column(name, rows)
        latest = np.where(own, np.arange(len(own)), _last_before(self.header & own))[rows]
        text = self._carried.get(name, "")
        added = np.frombuffer(text.encode() + b" ", np.uint8)
        starts, kinds = self._layouts.starts[self.places[latest]], self.kinds[latest]
        starts = np.where(latest < 0, len(self._layouts.letters), starts)
        kinds = np.where(latest < 0, len(self._layouts.samples), kinds)
        fields = [*self._fields(name), Field(0, len(added) - 1, text)]
        return PrintedColumn(np.append(self._layouts.letters, added), starts, kinds, fields)

    def carried_after(self) -> dict[str, str]:
        """Return what the lines without a metric have by the end."""
        after = dict(self._carried)
        headers = np.flatnonzero(self.header)
        for name in self._counters:
            if len(latest := headers[self.having(name)[headers]]):
                after[name] = self.column(name, latest[-1:])[0]
        if len(headers):
            after["validation"] = self._samples[int(self.kinds[headers[-1]])].groups.get("validation", "")
        return after

    def _fields(self, name: str) -> list[Field]:
        known = self._samples
        return [known[kind].fields[name] if kind in known else NO_FIELD for kind in range(len(self._layouts.samples))]

    def _of_rows(self, flags: Booleans) -> Booleans:
        of_rows: Booleans = flags[self.kinds]
        return of_rows

    def _flags(self, kinds: Iterable[int]) -> Booleans:
        flags = np.zeros(len(self._layouts.samples), np.bool_)
        flags[list(kinds)] = True
        return flags


def _last_before(marked: Booleans) -> Integers:
    """Return for each row the last one up to it that is marked; -1 where there is none."""
    last: Integers = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
    return last


def _moved(rows: _Rows, training: Integers, counters: Sequence[PrintedColumn]) -> Booleans:
    """Tell which rows of a progress bar are printed again by the next, at the same counters."""
    bars = rows.bars()[training]
    moved = np.append(bars[:-1] & bars[1:], np.zeros(min(len(bars), 1), np.bool_))
    for column in counters if moved.any() else ():
        texts = list(column)
        for row in np.flatnonzero(moved).tolist():
            moved[row] = texts[row] == texts[row + 1]
    return moved
