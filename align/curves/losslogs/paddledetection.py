"""The console log of PaddleDetection, which counts epochs and steps from 0.

A loss is the median, not the mean, of the last `log_iter` steps, running on over epochs; costs are means of as many.
Lines are printed at its multiples, which tells it; where only step 0 is, it is taken to be the length of the epoch.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import TableBuilder, read_steps
from align.curves.log_parts.text import NUMBER
from align.curves.loss_log import RAW, LossLog, Window

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers

_STEP = re.compile(r"Epoch: \[([0-9]+)\] \[ *([0-9]+)/([0-9]+)\] (learning_rate: (?=[^\n]{0,2000}\bloss: )[^\n]*)")
_PAIR = re.compile(rf"(?<![\w./-])(?!eta:)([A-Za-z][\w./-]{{0,80}}): ({NUMBER})(?=[ ,]|$)", re.MULTILINE)
_COSTS = {"batch_cost": "batch_cost_s", "data_cost": "data_cost_s"}
_MEANS = (*_COSTS.values(), "ips")
_START = r"Epoch: \[[0-9]+\] \["
_TOGETHER = (twice(_START),)


class PaddleDetectionFormat:
    """Lines `Epoch: [0] [ 20/200] learning_rate: 0.000025 loss_cls: 7.02 loss: 10.63 eta: ... batch_cost: 6.62 ...`."""

    name = "paddledetection"
    summary = "PaddleDetection console log: Epoch: [0] [ 20/200] learning_rate: 0.000025 ... loss: 3.63 eta: ..."
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"[11/20 23:38:35] ppdet.engine INFO: Epoch: [0] [ 0/11] learning_rate: 0.100000 loss_cls: 1.462313 "
        b"loss: 1.462313 eta: 0:00:00 batch_cost: 0.0325 data_cost: 0.0000 ips: 92.3930 images/s\n"
        b"[11/20 23:38:35] ppdet.engine INFO: Epoch: [0] [ 4/11] learning_rate: 0.100000 loss_cls: 1.805956 "
        b"loss: 1.805956 eta: 0:00:00 batch_cost: 0.0005 data_cost: 0.0000 ips: 6511.2093 images/s\n"
        b"[11/20 23:38:35] ppdet.engine INFO: Epoch: [1] [ 0/11] learning_rate: 0.100000 loss_cls: 1.294298 "
        b"loss: 1.294298 eta: 0:00:00 batch_cost: 0.0004 data_cost: 0.0000 ips: 6930.8246 images/s\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of a step with a loss."""
        return any(_STEP.search(block.text) for block in source.blocks() if "learning_rate: " in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all steps; raises EmptyLogError if there is none."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", base=0)


class _Reading:
    """Lines of steps and the distances between them."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, printed_of=all_fixed), 0
        self._steps: list[Integers] = []
        self._total = 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        found = find_columns(block, _STEP)
        self.ignored += block.count_filled() - len(found.places)
        if found.columns:
            epochs, printed, printed_totals, lists = found.columns
            steps, totals = read_steps(printed), np.maximum(read_steps(printed_totals), 0)
            columns = pair_columns(lists, _PAIR)
            metrics = {_COSTS.get(name, name): texts for name, texts in columns.items()}
            self.builder.add(block.numbers[found.places], steps, metrics, epochs=read_steps(epochs), totals=totals)
            self._steps.append(steps)
            self._total = max(self._total, int(totals.max()))

    def _window(self, name: str) -> Window:
        length = int(np.gcd.reduce(np.maximum(np.concatenate(self._steps), 0))) or self._total
        if length <= 1 or not (name in _MEANS or "loss" in name):
            return RAW
        return Window("mean of last" if name in _MEANS else "median of last", length)


PLUGIN = PaddleDetectionFormat()
