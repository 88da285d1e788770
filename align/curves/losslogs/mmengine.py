"""The console log of mmengine, and that of its forerunner mmcv.

mmengine averages over a window of steps (_mmengine), which the configuration at the head of the log tells. mmcv, whose
lines bear no `(train)`, averages everything but `lr`, `momentum` and `memory` over its print interval. A validation
stands at the end of its epoch; where the log counts iterations only, at the last training line before it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import PrintedColumn, are_word, take_texts
from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.mmengine import (
    USUAL_LENGTH,
    configured_length,
    in_seconds,
    interval_window,
    print_interval,
    smoothed_window,
    usual_length_note,
)
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_printed_steps, read_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import by_phase, carry_forward, named_validation, phase_by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers, LossLog, Window

_LINE = re.compile(r"(Epoch|Iter)(?:\((train|val)\))? *(?:\[ *([0-9]+)\])?\[ *([0-9]+)(?:/([0-9]+))?\][ \t]+([^\n]*)")
# A line of another kind may have run into the last number, its time first.
_AFTER = r"(?=[\s,]|$|[0-9]{4}[-/][0-9]{2}[-/][0-9]{2} )"
# A name may hold single spaces, `coco/AP (M)`; the time that is left, `eta: 1 day, 3:00:00`, is no metric.
_NAME = r"[A-Za-z][^:,\s]{0,80}(?: [^:,\s]{1,80}){0,4}"
_PAIR = re.compile(rf"(?<![\w.(/@-])(?!eta:)({_NAME}): +({NUMBER}){_AFTER}", re.MULTILINE)
_START = r"(?:Epoch|Iter)(?:\((?:train|val)\))? *\["
_TOGETHER = twice(r"Epoch(?:\((?:train|val)\))? *\["), twice(r"Iter(?:\((?:train|val)\))? *\[")


class MmengineFormat:
    """Lines `Epoch(train) [1][10/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  data_time: 0.0008  loss: 0.2922`."""

    name = "mmengine"
    summary = "mmengine or mmcv console log: Epoch(train) [1][10/25]  lr: 1.0e-02 ... loss: 0.2922"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"2026/11/20 08:34:15 - mmengine - INFO - Epoch(train) [1][10/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  "
        b"data_time: 0.0008  loss: 0.2922  loss1: 0.0754  loss2: 0.2168\n"
        b"2026/11/20 08:34:15 - mmengine - INFO - Epoch(train) [1][20/25]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  "
        b"data_time: 0.0002  loss: 0.1711  loss1: 0.0236  loss2: 0.1475\n"
        b"2026/11/20 08:34:15 - mmengine - INFO - Epoch(val) [1][25/25]    toy/acc: 0.7380  data_time: 0.0001  "
        b"time: 0.0005\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is of a training loop."""
        blocks = (block.text for block in source.blocks() if "lr: " in block.text)
        return any(
            _is_training(found.groups("")) and not _is_inside_epoch(text, found)
            for text in blocks
            for found in _LINE.finditer(text)
        )

    def read(self, source: LogSource) -> LossLog:
        """Read training lines and the results of validations; raises EmptyLogError if no line has a training loss."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(
            log,
            counting="step in epoch" if reading.kind == "Epoch" else "global step",
            notes=(*log.notes, *reading.notes()),
        )


class _Reading:
    """The lines of training and validation; `kind` is how the first one counts: by Epoch or by Iter."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=all_fixed), 0
        self.kind = ""
        self._length: int | None = None
        self._of_mmcv = False
        self._step, self._total = NO_STEP, 0
        self._training_steps: list[Integers] = []

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        if self._length is None:
            self._length = configured_length(block.text)
        found = find_columns(block, _LINE)
        used = self._used_rows(found.columns) if found.columns else found.places[:0]
        self.ignored += block.count_filled() - len(used)
        if len(used):
            self._add(block.numbers[found.places[used]], [take_texts(column, used) for column in found.columns])

    def notes(self) -> tuple[str, ...]:
        """Say where the window is not known."""
        return () if self._of_mmcv or self._length else (usual_length_note(),)

    def _used_rows(self, columns: Sequence[Sequence[str]]) -> Integers:
        """Return the rows that tell something, as one of each layout says; none before it is known how a log counts."""
        first = columns[0]
        if isinstance(first, PrintedColumn):
            fields = [column.fields for column in columns if isinstance(column, PrintedColumn)]
            rows = [tuple(field.text for field in row) for row in zip(*fields, strict=True)]
            trained = np.flatnonzero(np.array(list(map(_is_training, rows)))[first.kinds])
            begin = 0 if self.kind else int(trained[0]) if len(trained) else len(first)
            self.kind = self.kind or (rows[first.kinds[begin]][0] if len(trained) else "")
            tells = np.flatnonzero(np.array(list(map(self._tells, rows)))[first.kinds])
            return tells[tells >= begin]
        return np.flatnonzero(np.array([self._tells(row) for row in zip(*columns, strict=True)], np.bool_))

    def _tells(self, row: tuple[str, ...]) -> bool:
        kind, mode, *_, values = row
        if _is_training(row):
            self.kind = self.kind or kind
            return kind == self.kind
        return mode == "val" and kind == self.kind and "eta: " not in values

    def _add(self, lines: Integers, columns_of_line: Sequence[Sequence[str]]) -> None:
        _, modes, epochs, printed, printed_totals, lists = columns_of_line
        training = ~are_word(modes, "val")
        totals = carry_forward(read_printed_steps(printed_totals), training, self._total)
        by_epoch = self.kind == "Epoch"
        inside = read_steps(printed)
        steps = np.where(training, inside, totals) if by_epoch else carry_forward(inside, training, self._step)
        counted = read_printed_steps(epochs)
        for validated, at in by_phase(~training):
            columns = in_seconds(pair_columns(take_texts(lists, at), _PAIR))
            self.builder.add(
                lines[at],
                steps[at],
                named_validation(columns) if validated else columns,
                epochs=counted[at] if by_epoch else None,
                totals=totals[at],
            )
        self._of_mmcv |= "" in modes
        self._training_steps.append(steps[training])
        self._step, self._total = int(steps[-1]), int(totals[-1])

    @cached_property
    def _interval(self) -> int:
        return print_interval(self._training_steps)

    def _window(self, name: str) -> Window:
        if self._of_mmcv:
            return interval_window(name, self._interval)
        return smoothed_window(name, self._length or USUAL_LENGTH)


def _is_inside_epoch(text: str, found: re.Match[str]) -> bool:
    """Tell whether an epoch stands in front of `Iter[10/100]`: then another logger wrote the line."""
    return found[1] == "Iter" and "poch" in text[text.rfind("\n", 0, found.start()) + 1 : found.start()]


def _is_training(row: tuple[str, ...]) -> bool:
    """Tell a line of training, which shows the learning rate, from validation and from other programs' lines."""
    kind, mode, epoch, _, total, values = row
    return mode != "val" and bool(total) and bool(epoch) == (kind == "Epoch") and "lr: " in values


PLUGIN = MmengineFormat()
