"""MindSpore's `LossMonitor`, with the lines of `TimeMonitor` around it.

LossMonitor counts steps inside the epoch but its interval over all epochs, and nothing at step 0. The steps of an
epoch follow from TimeMonitor (epoch time / time per step) or from how the interval crosses an epoch's end. The line
with which it stops training at a NaN tells of a step like any other and is kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_digits import FIXED, Printed
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_steps
from align.curves.log_parts.text import NUMBER, is_null, is_number
from align.curves.thresholds import WHOLE_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers, LogTable, LossLog

# Whatever stands in place of the loss is taken, without a full stop after it, and held against a number afterwards.
# The instructions of MindSpore's model zoo show lines with `epcoh`.
_LOSS = re.compile(
    r"ep(?:oc|co)h:[ \t]*([0-9]+),?[ \t]+step:?[ \t]*([0-9]+),[ \t]*loss is:?[ \t]*(?:loss:[ \t]*)?(?:\[[ \t]*)?"
    r"([^\s\],;|)]*[^\s\],;|).])",
    re.IGNORECASE,
)
_TIME = re.compile(
    rf"epoch time:(?<!Eval epoch time:)[ \t]*({NUMBER}) ms, per step time:[ \t]*({NUMBER}) ms"
    rf"(?: \(data time:[ \t]*({NUMBER}) ms\))?"
)
_TIME_NAMES = ("epoch_time_ms", "step_time_ms", "data_time_ms")
_HALF_UNIT_MS = 0.0005  # format: TimeMonitor prints milliseconds with three decimals
_START = r"(?:(?:Train|Eval) )?[Ee]p(?:oc|co)h(?::[ \t]*[0-9]+,?[ \t]+step| time:)"
_TOGETHER = (twice("p(?:oc|co)h(?::[ \t]*[0-9]| time:)"),)


class LossMonitorFormat:
    """Lines `epoch: 1 step: 10, loss is 2.3`."""

    name = "lossmonitor"
    summary = "MindSpore LossMonitor and TimeMonitor: epoch: 1 step: 1, loss is 2.30"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"epoch: 1 step: 1, loss is 1.2554317712783813\n"
        b"epoch: 1 step: 2, loss is 1.6582417488098145\n"
        b"Train epoch time: 68.097 ms, per step time: 34.048 ms (data time: 0.000 ms)\n"
        b"epoch: 2 step: 1, loss is 0.9129121899604797\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is LossMonitor's."""
        blocks = (block for block in source.blocks() if "loss is" in block.text)
        return any(_is_loss(found[3]) for block in blocks for found in _LOSS.finditer(block.text))

    def read(self, source: LogSource) -> LossLog:
        """Read all loss lines and training times; raises EmptyLogError if there is no loss line."""
        reading = _Reading(source)
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(
            log,
            counting="step in epoch",
            steps_per_epoch=_steps_by_time(log.table) or _steps_by_interval(log.table),
            notes=(*log.notes, *reading.builder.notes()),
        )


class _Reading:
    """Losses, and times as records of the last step before them."""

    def __init__(self, source: LogSource) -> None:
        self.builder, self.ignored = TableBuilder(loss="loss", printed_of=_printed), 0
        self._cut_line = source.data.count(b"\n") + 1 if source.was_cut else 0
        self._last = NO_STEP, NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        times = find_columns(block, _TIME)
        found = find_columns(block, _LOSS, others=times.places)
        lines = block.numbers[found.places]
        self.ignored += block.count_filled() - len(lines)
        steps = epochs = lines[:0]
        if found.columns:
            printed_epochs, printed_steps, losses = found.columns
            if lines[-1] == self._cut_line and not is_number(losses[-1]):  # it may be the beginning of a number
                losses = (*losses[:-1], "")
            steps, epochs = read_steps(printed_steps), read_steps(printed_epochs)
            self.builder.add(lines, steps, {"loss": losses}, epochs=epochs)
        if times.columns:
            at = np.searchsorted(found.places, times.places)
            before = np.append(self._last[0], steps)[at], np.append(self._last[1], epochs)[at]
            self._add_times(block.numbers[times.places], times.columns, *before)
        if len(steps):
            self._last = int(steps[-1]), int(epochs[-1])

    def _add_times(self, lines: Integers, texts: Sequence[Sequence[str]], steps: Integers, epochs: Integers) -> None:
        """Put each time at the last loss before it; one before all losses is no record of ours."""
        self.ignored -= int(np.count_nonzero(steps != NO_STEP))
        ignored = self.builder.ignored
        self.builder.add(lines, steps, dict(zip(_TIME_NAMES, texts, strict=True)), epochs=epochs)
        self.builder.ignored = ignored


def _is_loss(text: str) -> bool:
    """Tell a loss, which may be none, from a word of prose: `loss is greater than 500`."""
    return is_number(text) or is_null(text) or not text.isalpha()


def _printed(name: str) -> Printed | None:
    """Losses have all their digits."""
    return FIXED if name in _TIME_NAMES else None


def _steps_by_time(table: LogTable) -> int | None:
    """Divide each epoch's time by its time per step; None unless the printed digits give one whole number for all."""
    if not {"epoch_time_ms", "step_time_ms"} <= table.metrics.keys():  # numbers beyond float64 are none
        return None
    epoch, step = table.metrics["epoch_time_ms"].values, table.metrics["step_time_ms"].values
    if len(epoch) != len(step) or not np.all(step > 2 * _HALF_UNIT_MS):
        return None
    steps = epoch / step
    uncertain = (_HALF_UNIT_MS + steps * _HALF_UNIT_MS) / (step - _HALF_UNIT_MS)
    whole = np.rint(steps)
    sure = np.all(uncertain < WHOLE_STEPS) and np.all(np.abs(steps - whole) <= uncertain) and len(np.unique(whole)) == 1
    return int(whole[0]) or None if sure else None


def _steps_by_interval(table: LogTable) -> int | None:
    """Find the steps of an epoch from the interval, which is counted over all epochs; None unless all crossings agree.

    From step a of an epoch to step b of the next, `interval` steps later, the epoch has a - b + interval steps. One
    point an epoch, always at the same step, is the epoch's end: so data sinking prints.
    """
    rows = table.metrics["loss"].rows
    if table.epochs is None:
        return None
    steps, epochs = table.steps[rows], table.epochs[rows]
    inside, crossing = np.diff(steps)[np.diff(epochs) == 0], np.flatnonzero(np.diff(epochs) == 1)
    intervals, largest = np.unique(inside), int(steps.max())
    if len(crossing) and not len(inside) and len(np.unique(steps)) == 1:
        return largest
    if len(intervals) != 1 or intervals[0] < 1:
        return None
    found = np.unique(steps[crossing] - steps[crossing + 1] + intervals[0])
    return int(found[0]) if len(found) == 1 and found[0] >= largest else None


PLUGIN = LossMonitorFormat()
