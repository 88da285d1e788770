"""The console log of PaddleClas.

It calls the first epoch 1 but the first iteration 0: here both are 1. Losses and metrics are means of the epoch so far,
each batch weighed by its size, so that the `[Avg]` of an epoch is the value of its last step; costs are means since the
last print, `lr` is the current one. An evaluation stands at the end of its epoch.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_filled, take_texts
from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_printed_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import by_phase, carry_forward, named_validation, phase_by_name
from align.curves.loss_log import EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, LossLog

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Window

_TRAINING = r"\[Train\]\[Epoch ([0-9]+)/[0-9]+\]\[(?:Iter: ([0-9]+)/([0-9]+)|Avg)\]"
_LINE = re.compile(rf"(?:{_TRAINING}|\[Eval\]\[Epoch ([0-9]+)\]\[Avg\])([^\n]*)")
_ITERATION = re.compile(r"\[Train\]\[Epoch [0-9]+/[0-9]+\]\[Iter: [0-9]+/[0-9]+\][^\n]{0,1000}\bloss: ")
_PAIR = re.compile(
    rf"(?<![\w@./-])(?!eta:)([A-Za-z][\w@./-]{{0,80}})(?:\(\w{{1,80}}\))?: ({NUMBER})(?=s?[, \[]|s?$)", re.MULTILINE
)
_COSTS = {"batch_cost": "batch_cost_s", "reader_cost": "reader_cost_s"}
_SINCE_LAST_PRINT = (*_COSTS.values(), "ips")
_START = r"\[(?:Train|Eval)\]\[Epoch [0-9]"
_TOGETHER = (twice(r"\[Epoch [0-9]"),)


class PaddleClasFormat:
    """Lines `[Train][Epoch 1/20][Iter: 10/100]lr(Cosine): 0.01, top1: 0.5, CELoss: 4.2, loss: 4.2, batch_cost: ...`."""

    name = "paddleclas"
    summary = "PaddleClas console log: [Train][Epoch 1/20][Iter: 10/100]lr(Cosine): 0.01, ... loss: 4.2"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch 1/2][Iter: 0/6]lr(Linear): 0.10000000, top1: 0.25000, "
        b"CELoss: 1.94957, loss: 1.94957, batch_cost: 0.03991s, reader_cost: 0.00000, ips: 100.23130 samples/s, "
        b"eta: 0:00:00\n"
        b"[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch 1/2][Iter: 5/6]lr(Linear): 0.05000000, top1: 0.45833, "
        b"CELoss: 1.49276, loss: 1.49276, batch_cost: 0.00032s, reader_cost: 0.00000, ips: 12510.97390 samples/s, "
        b"eta: 0:00:00\n"
        b"[2026/11/20 23:36:16] ppcls INFO: [Train][Epoch 1/2][Avg]top1: 0.45833, CELoss: 1.49276, loss: 1.49276\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of an iteration with a loss."""
        return any(_ITERATION.search(block.text) for block in source.blocks() if "[Train][" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read iterations, epochs and evaluations; raises EmptyLogError if there is no training loss."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch")


class _Reading:
    """Lines with a loss; what tells of a whole epoch stands at its last step."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_window, phase_by_name, printed_of=all_fixed), 0
        self._total = NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        found = find_columns(block, _LINE)
        self.ignored += block.count_filled() - len(found.places)
        if not found.columns:
            return
        lines = block.numbers[found.places]
        trained, iterations, printed_totals, evaluated, lists = found.columns
        read, training = read_printed_steps(iterations), ~are_filled(evaluated)
        totals = carry_forward(read_printed_steps(printed_totals), read != NO_STEP, self._total)
        steps = np.where(read != NO_STEP, read + 1, totals)
        epochs = np.where(training, read_printed_steps(trained), read_printed_steps(evaluated))
        for validated, at in by_phase(~training):
            columns = pair_columns(take_texts(lists, at), _PAIR)
            metrics = {_COSTS.get(name, name): texts for name, texts in columns.items()}
            self.builder.add(
                lines[at],
                steps[at],
                named_validation(metrics) if validated else metrics,
                epochs=epochs[at],
                totals=np.maximum(totals[at], 0),
            )
        self._total = int(totals[-1])


def _window(name: str) -> Window:
    if name == "lr" or phase_by_name(name) == "validation":
        return RAW
    return SINCE_LAST_PRINT if name in _SINCE_LAST_PRINT else EPOCH_SO_FAR


PLUGIN = PaddleClasFormat()
