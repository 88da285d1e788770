"""The records of a LineFormat read by the column: one line of each layout is searched, and speaks for all of it.

What lines with a counter alone tell is carried on to those that follow, as the reader of single lines does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import stripped_field
from align.curves.columns.printed_column import NO_FIELD, Field, PrintedColumn
from align.curves.line_layouts import is_digit_blind
from align.curves.log_sources import LogBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.curves.line_formats.line_format import LineFormat
    from align.curves.line_layouts import LineLayouts
    from align.curves.loss_log import Booleans, Integers

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


def sample_line(
    line_format: LineFormat,
    line: str,
    groups: Mapping[str, str],
    *,
    bar: bool,
    others: Mapping[str, tuple[int, int]],
) -> SampleLine:
    """Tell where the groups of a line that matches, and its `others`, stand."""
    match = line_format.searched().search(line)
    known = () if match is None else match.re.groupindex
    spans = {name: match.span(name) if match and name in known else others.get(name, (0, 0)) for name in groups}
    fields = {name: stripped_field(line, *span) if groups[name] else NO_FIELD for name, span in spans.items()}
    return SampleLine(groups, fields, bar)


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
