"""MindSpore's `LossMonitor`, with the lines of `TimeMonitor` around it.

LossMonitor counts steps inside the epoch but its interval over all epochs, and nothing at step 0. The steps of an
epoch follow from TimeMonitor (epoch time / time per step) or from how the interval crosses an epoch's end. The line
with which it stops training at a NaN tells of a step like any other and is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import LogRecord, LossLog
from align.errors import EmptyLogError
from align.losslogs._text import NUMBER, as_table, clean_lines, end_notes, read_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.curves import LogTable

_LOSS = re.compile(
    rf"\bepoch:\s*(\d+),?\s+step:?\s*(\d+),\s*loss is:?\s*\[?\s*(?:({NUMBER})(?=\.?(?:[\s\],;|)]|$))|(\S+))",
    re.IGNORECASE,
)
_TIME = re.compile(
    rf"(?<!Eval )\bepoch time:\s*({NUMBER}) ms, per step time:\s*({NUMBER}) ms(?: \(data time:\s*({NUMBER}) ms\))?"
)
_TIME_NAMES = ("epoch_time_ms", "step_time_ms", "data_time_ms")
# TimeMonitor prints milliseconds with three decimals.
_HALF_UNIT_MS = 0.0005
_SURE = 0.4


class LossMonitorFormat:
    """Lines `epoch: 1 step: 10, loss is 2.3`."""

    name = "lossmonitor"
    summary = "MindSpore LossMonitor and TimeMonitor: epoch: 1 step: 1, loss is 2.30"
    requires: tuple[str, ...] = ()
    sample = (
        "epoch: 1 step: 1, loss is 1.2554317712783813\n"
        "epoch: 1 step: 2, loss is 1.6582417488098145\n"
        "Train epoch time: 68.097 ms, per step time: 34.048 ms (data time: 0.000 ms)\n"
        "epoch: 2 step: 1, loss is 0.9129121899604797\n"
    )

    def recognizes(self, text: str) -> bool:
        """Tell whether one line or more is LossMonitor's."""
        return any(_LOSS.search(line) for _, line in clean_lines(text) if "loss is" in line)

    def read(self, text: str, label: str) -> LossLog:
        """Read all loss lines and training times; raises EmptyLogError if there is no loss line."""
        ignored: list[int] = []
        unreadable: list[tuple[int, str]] = []
        table = as_table(_records(text, ignored, unreadable))
        if "loss" not in table.metrics:
            raise EmptyLogError(label, [self.summary])
        return LossLog(
            label=label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="step in epoch",
            base=1,
            steps_per_epoch=_steps_by_time(table) or _steps_by_interval(table),
            ignored_lines=len(ignored),
            notes=(*end_notes(text), *_unreadable_notes(unreadable)),
        )


def _records(text: str, ignored: list[int], unreadable: list[tuple[int, str]]) -> Iterator[LogRecord]:
    """Yield losses, and times as records of the last step before them; other lines' numbers go to `ignored`.

    A loss that is no number, such as `None`, is NaN and goes to `unreadable` with its line, unless the line was cut.
    """
    last: LogRecord | None = None
    cut = 0 if text.endswith(("\n", "\r")) else text.count("\n") + 1
    for number, line in clean_lines(text):
        loss = _LOSS.search(line)
        epoch, step = (read_step(loss[1]), read_step(loss[2])) if loss else (None, None)
        if loss and epoch is not None and step is not None and (loss[3] or number != cut):
            if not loss[3]:
                unreadable.append((number, loss[4]))
            last = LogRecord(number, step, epoch, {"loss": loss[3] or "nan"})
            yield last
        elif last is not None and (times := _TIME.search(line)):
            texts = {name: value for name, value in zip(_TIME_NAMES, times.groups(), strict=True) if value}
            yield LogRecord(number, last.step, last.epoch, texts)
        elif line.strip():
            ignored.append(number)


def _unreadable_notes(unreadable: list[tuple[int, str]]) -> tuple[str, ...]:
    if not unreadable:
        return ()
    line, text = unreadable[0]
    return (f"{len(unreadable)} losses are no number (first: {text!r} in line {line}), kept as NaN",)


def _steps_by_time(table: LogTable) -> int | None:
    """Divide each epoch's time by its time per step; None unless the printed digits give one whole number for all."""
    if "step_time_ms" not in table.metrics:
        return None
    epoch, step = table.metrics["epoch_time_ms"].values, table.metrics["step_time_ms"].values
    if len(epoch) != len(step) or not np.all(step > 2 * _HALF_UNIT_MS):
        return None
    steps = epoch / step
    uncertain = (_HALF_UNIT_MS + steps * _HALF_UNIT_MS) / (step - _HALF_UNIT_MS)
    whole = np.rint(steps)
    sure = np.all(uncertain < _SURE) and np.all(np.abs(steps - whole) <= uncertain) and len(np.unique(whole)) == 1
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
