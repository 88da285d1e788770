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

from align.curves.log_parts.event_files import EventKind, is_event_file, read_events
from align.curves.log_parts.record_lines import RecordLines, pair_columns, twice
from align.curves.log_parts.table_builder import NO_STEP, NUMBER, TableBuilder, is_null, is_number, read_steps
from align.curves.log_sources import LogPlugin
from align.curves.loss_log import EPOCH_SO_FAR, RAW, LossLog
from align.curves.printed_columns import FIXED, Printed, are_word, bare_texts, find_columns, shown_texts
from align.curves.thresholds import WHOLE_STEPS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers, LogTable, Window


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
_LOSSMONITOR_START = r"(?:(?:Train|Eval) )?[Ee]p(?:oc|co)h(?::[ \t]*[0-9]+,?[ \t]+step| time:)"
_LOSSMONITOR_TOGETHER = (twice("p(?:oc|co)h(?::[ \t]*[0-9]| time:)"),)


class LossMonitorFormat(LogPlugin):
    """Lines `epoch: 1 step: 10, loss is 2.3`."""

    name = "lossmonitor"
    summary = "MindSpore LossMonitor and TimeMonitor: epoch: 1 step: 1, loss is 2.30"
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
        reading = _LossmonitorReading(source)
        log = RecordLines(source, _LOSSMONITOR_START, *_LOSSMONITOR_TOGETHER).read(self, reading)
        return replace(
            log,
            counting="step in epoch",
            steps_per_epoch=_steps_by_time(log.table) or _steps_by_interval(log.table),
            notes=(*log.notes, *reading.builder.notes()),
        )


class _LossmonitorReading:
    """Losses, and times as records of the last step before them."""

    def __init__(self, source: LogSource) -> None:
        # Losses have all their digits.
        self.builder = TableBuilder(loss="loss", printed_of=lambda name: FIXED if name in _TIME_NAMES else None)
        self.ignored = 0
        self._cut_line = source.data.count(b"\n") + 1 if source.was_cut else 0
        self._last = NO_STEP, NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        times = find_columns(block, _TIME)
        matches = find_columns(block, _LOSS, others=times.places)
        lines = block.numbers[matches.places]
        self.ignored += block.count_filled() - len(lines)
        steps = epochs = lines[:0]
        if matches.columns:
            printed_epochs, printed_steps, losses = matches.columns
            if lines[-1] == self._cut_line and not is_number(losses[-1]):  # it may be the beginning of a number
                losses = (*losses[:-1], "")
            steps, epochs = read_steps(printed_steps), read_steps(printed_epochs)
            self.builder.add(lines, steps, {"loss": losses}, epochs=epochs)
        if times.columns:
            at = np.searchsorted(matches.places, times.places)
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


# The console log of MindFormers' (MindSpore Transformers') `MFLossMonitor`.
#
# A loss is that of the step itself; of `loss:[2.220/2.185]` the second is the mean since the epoch began, or since
# the data sink began, where it equals the first. Both are already divided by micro batches and gradient accumulation.
# A step with `overflow cond: True` changed no weight. `loss_scale: unavailable` and `global_norm: None` are no
# values.

# What may stand in place of a number: one in brackets, or a word.
_VALUE = r"\[[^]\n]*\]|[^,\s]+"
_STEP = re.compile(
    r"Epoch:\[ *([0-9]+)/ *[0-9]+\], step:\[ *([0-9]+)/ *([0-9]+)\], "
    rf"loss: ?\[? *({NUMBER})(?:/ *({NUMBER}))?\]?"
    rf"((?:, \w+_loss: +{NUMBER})*)"
    rf"(?:, per_step_time: ?({NUMBER}) ?ms)?(?:, time: ?({NUMBER}) ?ms)?"
    rf"(?:, lr: ?({_VALUE}))?(?:, overflow cond: ?(\w+))?(?:, loss_scale: ?({_VALUE}))?(?:, global_norm: ?({_VALUE}))?"
    rf"(?:, train_throughput_per_npu: ?({NUMBER})T)?"
)
_SEPARATE = re.compile(rf"(\w+_loss): +({NUMBER})")
_SO_FAR = "loss_so_far"
_NAMES = ("loss", _SO_FAR, "per_step_time_ms", "time_ms", "lr", "loss_scale", "global_norm", "train_throughput_per_npu")
_IN_BRACKETS = ("lr", "loss_scale", "global_norm")
_NO_VALUE = ("None", "unavailable")
_MINDFORMERS_START = r"(?:\{ )?Epoch:\[ *[0-9]+/"
_MINDFORMERS_TOGETHER = (twice(r"Epoch:\[ *[0-9]+/"),)


class MindformersFormat(LogPlugin):
    """Lines `{ Epoch:[  1/  2], step:[    1/   19], loss: 10.649, per_step_time: 103328ms, lr: 0.0, ...`."""

    name = "mindformers"
    summary = "MindFormers console log: { Epoch:[  1/  2], step:[    1/   19], loss: 10.649"
    sample = (
        b"2026-11-20 23:15:44,838 - mindformers[mindformers/core/callback/callback.py:377] - INFO - { Epoch:[  1/  2], "
        b"step:[    1/    2], loss:[0.919/0.919], per_step_time: 972ms, lr: [2.4499998e-06], overflow cond: False, "
        b"loss_scale: 1024.0, global_norm: [2.9718595]\n"
        b"2026-11-20 23:15:44,846 - mindformers[mindformers/core/callback/callback.py:377] - INFO - { Epoch:[  1/  2], "
        b"step:[    2/    2], loss:[1.333/1.126], per_step_time: 6ms, lr: [2.4499998e-06], overflow cond: False, "
        b"loss_scale: 1024.0, global_norm: [1.8792514]\n"
        b"2026-11-20 23:15:44,861 - mindformers[mindformers/core/callback/callback.py:377] - INFO - { Epoch:[  2/  2], "
        b"step:[    1/    2], loss:[  inf/  inf], per_step_time: 6ms, lr: [2.4499998e-06], overflow cond: True, "
        b"loss_scale: 1024.0, global_norm: [inf]\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is MFLossMonitor's."""
        return any(_STEP.search(block.text) for block in source.blocks() if "step:[" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all step lines; raises EmptyLogError if there is none."""
        reading = _MindformersReading()
        log = RecordLines(source, _MINDFORMERS_START, *_MINDFORMERS_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", notes=(*log.notes, *reading.notes()))


class _MindformersReading:
    """Step lines, and the values among them that are no number: (line, text) by name."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, printed_of=_mindformers_printed), 0
        self._sinking = True
        self._unreadable: dict[str, list[tuple[int, str]]] = {}

    def add(self, block: LogBlock) -> None:
        """Take the step lines of a block."""
        matches = find_columns(block, _STEP)
        self.ignored += max(0, block.count_filled() - len(matches.places))
        if not matches.columns:
            return
        lines = block.numbers[matches.places]
        epochs, steps, totals, loss, so_far, separate, *others = matches.columns
        overflow = others.pop(3)
        metrics: dict[str, Sequence[str]] = dict(zip(_NAMES, (loss, so_far, *others), strict=True))
        for name in _IN_BRACKETS:
            metrics[name] = bare_texts(metrics[name], "[] ", _NO_VALUE)
            self._note_unreadable(name, lines.tolist(), metrics[name])
        self._sinking = self._sinking and all(mean in ("", last) for last, mean in zip(loss, so_far, strict=True))
        self.builder.add(
            lines,
            read_steps(steps),
            {**metrics, **pair_columns(separate, _SEPARATE)},
            epochs=read_steps(epochs),
            totals=read_steps(totals),
            skipped=are_word(overflow, "True").astype(np.int64),
        )

    def notes(self) -> tuple[str, ...]:
        """Say which values are no number; they are left out."""
        return tuple(
            sentence("logs_note.values_left_out", metric=name, count=len(found), text=found[0][1], line=found[0][0])
            for name, found in self._unreadable.items()
        )

    def _note_unreadable(self, name: str, lines: list[int], texts: Sequence[str]) -> None:
        if any(text and not is_number(text) for text in shown_texts(texts)):
            found = [(line, text) for line, text in zip(lines, texts, strict=True) if text and not is_number(text)]
            self._unreadable.setdefault(name, []).extend(found)

    def _window(self, name: str) -> Window:
        return EPOCH_SO_FAR if name == _SO_FAR and not self._sinking else RAW


def _mindformers_printed(name: str) -> Printed | None:
    """Losses have three decimals; learning rates, norms and scales all their digits."""
    return FIXED if "loss" in name and name != "loss_scale" else None


# MindSpore summary files (`..._MS`), as `SummaryCollector` and `SummaryRecord` write them; read without MindSpore.

_MINDSPORE_SUMMARY_KIND = EventKind(version=b"MindSpore.Event:", scalar=3)


class MindsporeSummaryFormat(LogPlugin):
    """Records that begin with the version `MindSpore.Event:1`."""

    name = "mindspore_summary"
    summary = "MindSpore summary file: ...out.events.summary..._MS"
    sample = bytes.fromhex(
        "1c00000000000000c8c1951d092662cdba01c0da411a114d696e6453706f72652e4576656e743a31fd9aa9f91a000000"
        "00000000129bd82d09b8a6ccba01c0da4110012a0d0a0b0a046c6f73731d0000803f4df965711a00000000000000129b"
        "d82d09474fcdba01c0da4110022a0d0a0b0a046c6f73731d0000003f765f5b8b1a00000000000000129bd82d09a451cd"
        "ba01c0da4110032a0d0a0b0a046c6f73731dabaaaa3e69fd612f"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first record is MindSpore's."""
        return is_event_file(source, _MINDSPORE_SUMMARY_KIND)

    def read(self, source: LogSource) -> LossLog:
        """Read the scalars of all tags; raises EmptyLogError if there is none."""
        return read_events(source, self, _MINDSPORE_SUMMARY_KIND)


# TensorBoard event files, by whichever library writes them; read without TensorFlow.

_TENSORBOARD_KIND = EventKind(version=b"brain.Event:", scalar=2, tensor=8)


class TensorboardFormat(LogPlugin):
    """Records that begin with the version `brain.Event:2`."""

    name = "tensorboard"
    summary = "TensorBoard event file: events.out.tfevents..."
    sample = bytes.fromhex(
        "4800000000000000fe92489d0917f4bcff01c0da411a0d627261696e2e4576656e743a32522e0a2c74656e736f72626f"
        "6172642e73756d6d6172792e7772697465722e6576656e745f66696c655f777269746572b22792b82000000000000000"
        "29eda950092afabcff01c0da4110012a130a110a0a747261696e2f6c6f7373150000803f6cd208fe2000000000000000"
        "29eda950097bfabcff01c0da4110022a130a110a0a747261696e2f6c6f7373150000003fc471a9a52000000000000000"
        "29eda95009a5fabcff01c0da4110032a130a110a0a747261696e2f6c6f737315abaaaa3e7da53b6e"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the first record is TensorBoard's."""
        return is_event_file(source, _TENSORBOARD_KIND)

    def read(self, source: LogSource) -> LossLog:
        """Read the scalars of all tags; raises EmptyLogError if there is none."""
        log = read_events(source, self, _TENSORBOARD_KIND)
        raw = all(series.window == RAW for series in log.table.metrics.values())
        return log.with_notes((sentence("logs_note.values_of_steps"),) if raw else ())


PLUGINS = (LossMonitorFormat(), MindformersFormat(), MindsporeSummaryFormat(), TensorboardFormat())
