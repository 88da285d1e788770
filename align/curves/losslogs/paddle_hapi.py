"""What PaddlePaddle's `paddle.Model.fit` prints.

A loss is that of the printed step; other metrics are means of the epoch so far, and so is the time per step; the costs
of `verbose=3` are means since the last print. The epoch stands in a line of its own. Of an evaluation the last line
counts: its metrics are those of all its batches, its loss that of the last batch alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_filled, are_word, take_texts
from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_printed_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import carry_forward, named_validation, phase_by_name
from align.curves.loss_log import EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, LossLog
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class _Reading:
    """The steps of a log, as distinguished by the lines between them."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_window, phase_by_name, printed_of=all_fixed), 0
        self._epoch, self._evaluating, self._total = NO_STEP, 0, 0
        self._before_first_epoch = 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block; of an evaluation the last step is kept, at the end of the epoch."""
        found = find_columns(block, _LINE)
        self.ignored += block.count_filled()
        if not found.columns:
            return
        lines, (epoch_texts, others, step_texts, total_texts, *printed) = block.numbers[found.places], found.columns
        of_steps, begins = are_filled(step_texts), are_filled(epoch_texts)
        epochs = carry_forward(read_printed_steps(epoch_texts), begins, self._epoch)
        evaluating = carry_forward(are_filled(others).astype(np.int64), ~of_steps, self._evaluating)
        steps, totals = read_printed_steps(step_texts), np.maximum(read_printed_steps(total_texts), 0)
        counted = of_steps & (epochs != NO_STEP)
        training = counted & (evaluating == 0)
        last = counted & (evaluating != 0) & (steps == totals)
        of_epochs = carry_forward(totals, training, self._total)
        self._before_first_epoch += int(np.count_nonzero(of_steps & ~counted))
        self._epoch, self._evaluating, self._total = int(epochs[-1]), int(evaluating[-1]), int(of_epochs[-1])
        for kept, numbers, named in ((training, steps, dict), (last, of_epochs, named_validation)):
            if len(at := np.flatnonzero(kept)):
                self.ignored -= len(at)
                metrics = named(_metrics(*(take_texts(column, at) for column in printed)))
                self.builder.add(lines[at], numbers[at], metrics, epochs=epochs[at], totals=of_epochs[at])

    def notes(self) -> tuple[str, ...]:
        """Say what was left out for want of an epoch."""
        count = self._before_first_epoch
        return (sentence("logs_note.before_first_epoch", count=count),) if count else ()


def _metrics(values: Sequence[str], times: Sequence[str], units: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the metrics of some lines by name, the times in milliseconds."""
    if not are_word(units, "ms").all():
        times = [time + _TO_MILLISECONDS[unit] for time, unit in zip(times, units, strict=True)]
    columns = pair_columns(values, _PAIR)
    return {**{_COSTS.get(name, name): texts for name, texts in columns.items()}, "step_time_ms": times}


def _window(name: str) -> Window:
    if name == "loss" or phase_by_name(name) == "validation":
        return RAW
    return SINCE_LAST_PRINT if name in _SINCE_LAST_PRINT else EPOCH_SO_FAR


PLUGIN = PaddleHapiFormat()
