"""What PaddlePaddle's `paddle.Model.fit` prints.

A loss is that of the printed step; other metrics are means of the epoch so far, and so is the time per step; the costs
of `verbose=3` are means since the last print. The epoch stands in a line of its own. Of an evaluation the last line
counts: its metrics are those of all its batches, its loss that of the last batch alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.columns.line_columns import find_lines
from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.phases import phase_by_name
from align.curves.log_parts.record_lines import RecordLines
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import named_validation
from align.curves.loss_log import EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, LossLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Window

_STEP = r"\bstep +([0-9]{1,9})(?:/([0-9]{1,9}))?(?: \[[=>.]*\])? - ([^\n]{0,1000}) - ([0-9]+)(us|ms|s)/step"
_LINE = re.compile(rf"\bEpoch ([0-9]{{1,9}})/[0-9]+[ \t]*$|\b(Eval|Predict) begin\.\.\.|{_STEP}", re.MULTILINE)
_LOSS = re.compile(r"\bstep +[0-9]+(?:/[0-9]+)?(?: \[[=>.]*\])? - loss: [^\n]{0,1000} - [0-9]+[um]?s/step")
_PAIR = re.compile(rf"(?<![\w./-])([A-Za-z][\w./-]{{0,80}}): \[?({NUMBER})(?![\w.])")
_TO_MILLISECONDS = {"us": "e-3", "ms": "", "s": "e3"}
_COSTS = {"avg_reader_cost": "avg_reader_cost_s", "avg_batch_cost": "avg_batch_cost_s"}
_SINCE_LAST_PRINT = (*_COSTS.values(), "ips")
_START = (
    r"step +[0-9]{1,9}(?:/[0-9]{1,9})?(?: \[[=>.]*\])? - |Epoch [0-9]{1,9}/[0-9]|(?:Eval|Predict) (?:begin|samples)"
)
_TOGETHER = (
    r"/step[ \t]*[^ \t\n]",
    r"Epoch [0-9]{1,9}/[0-9]+[ \t]*[^ \t\n0-9]",
    r"begin\.\.\.[ \t]*[^ \t\n]",
    "samples: [0-9]+Epoch",
)


class PaddleHapiFormat:
    """Lines `step  2/13 - loss: 2.1448 - acc: 0.5000 - 33ms/step`, after `Epoch 1/2`."""

    name = "paddle_hapi"
    summary = "paddle.Model.fit: Epoch 1/2, step  2/13 - loss: 2.1448 - acc: 0.5000 - 33ms/step"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"Epoch 1/2\n"
        b"step 10/13 - loss: 1.7921 - acc: 0.4000 - 8ms/step\n"
        b"step 13/13 - loss: 0.6695 - acc: 0.4400 - 6ms/step\n"
        b"Eval begin...\n"
        b"step 5/5 - loss: 1.0725 - acc: 0.4000 - 817us/step\n"
        b"Eval samples: 10\n"
        b"Epoch 2/2\n"
        b"step 10/13 - loss: 1.1123 - acc: 0.3500 - 2ms/step\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of a step with a loss."""
        return any(_LOSS.search(block.text) for block in source.blocks() if "/step" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read steps and the ends of evaluations; raises EmptyLogError if no step of training has a loss."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", notes=(*log.notes, *reading.notes()))


class _Record(NamedTuple):
    """A printed step, in the epoch of the last `Epoch` line before it."""

    line: int
    epoch: int
    step: int
    total: int
    values: str
    step_time_ms: str


class _Reading:
    """The steps of a log, as told apart by the lines between them."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_window, phase_by_name, printed_of=all_fixed), 0
        self._epoch, self._evaluating, self._total = NO_STEP, False, 0
        self._before_first_epoch = 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        lines, rows = find_lines(block, _LINE)
        training: list[_Record] = []
        validation: list[_Record] = []
        for line, (epoch, other, *printed) in zip(lines.tolist(), rows, strict=True):
            if printed[0]:
                self._sort(_record(line, self._epoch, printed), training, validation)
            else:
                self._epoch, self._evaluating = int(epoch or self._epoch), bool(other)
        self.ignored += block.count_filled() - len(training) - len(validation)
        if training:
            self._add(training, _columns(training))
        if validation:
            self._add(validation, named_validation(_columns(validation)))

    def notes(self) -> tuple[str, ...]:
        """Say what was left out for want of an epoch."""
        cut = f"{self._before_first_epoch} steps before the first line of an epoch are left out"
        return (cut,) if self._before_first_epoch else ()

    def _sort(self, record: _Record, training: list[_Record], validation: list[_Record]) -> None:
        """Put a step where it belongs; of an evaluation the last is kept, at the end of the epoch."""
        if self._epoch == NO_STEP:
            self._before_first_epoch += 1
        elif not self._evaluating:
            self._total = record.total
            training.append(record)
        elif record.step == record.total:
            validation.append(record._replace(step=self._total, total=self._total))

    def _add(self, records: list[_Record], metrics: Mapping[str, Sequence[str]]) -> None:
        lines, epochs, steps, totals = (np.array(column) for column in list(zip(*records, strict=True))[:4])
        self.builder.add(lines, steps, metrics, epochs=epochs, totals=totals)


def _record(line: int, epoch: int, printed: Sequence[str]) -> _Record:
    step, total, values, time, unit = printed
    return _Record(line, epoch, int(step), int(total or 0), values, time + _TO_MILLISECONDS[unit])


def _columns(records: list[_Record]) -> Mapping[str, Sequence[str]]:
    columns = pair_columns([record.values for record in records], _PAIR)
    times = {"step_time_ms": [record.step_time_ms for record in records]}
    return {_COSTS.get(name, name): texts for name, texts in columns.items()} | times


def _window(name: str) -> Window:
    if name == "loss" or phase_by_name(name) == "validation":
        return RAW
    return SINCE_LAST_PRINT if name in _SINCE_LAST_PRINT else EPOCH_SO_FAR


PLUGIN = PaddleHapiFormat()
