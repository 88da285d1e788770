"""mmengine's `vis_data/scalars.json`: one JSON object a line, its numbers with all digits.

The values are means as in the console log (_mmengine); the file does not tell over how many steps. A line without
`iter` is a validation: its `step` is the iteration, or the epoch where the run counts epochs; then it stands at the
last training line before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import have_word, take_texts
from align.curves.log_parts.mmengine import (
    USUAL_LENGTH,
    in_seconds,
    is_training_object,
    smoothed_window,
    usual_length_note,
)
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import by_phase, carry_forward, named_validation, phase_by_name
from align.curves.loss_log import LossLog
from align.errors import EmptyLogError

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Window

_OBJECT = re.compile(r'^[ \t]*(?=(\{"[^\n]*\})[ \t]*$)[^\n]*"step": ([0-9]+)', re.MULTILINE)
_PAIR = re.compile(rf'"([^"\n]+)": ({NUMBER})(?=[,}}])')
_COUNTERS = ("epoch", "iter", "step")
_LOSSES = ("loss", "train/loss")
_START, _TOGETHER = r'^[ \t]*\{"|(?<=\})[ \t]*\{"', (r'\}[ \t]*\{"',)


class MmengineScalarsFormat:
    """Lines `{"lr": 0.01, "data_time": 0.0008, "loss": 0.292, "time": 0.001, "epoch": 1, "iter": 10, "step": 10}`."""

    name = "mmengine_scalars"
    summary = (
        'mmengine vis_data/scalars.json: {"lr": 0.01, "data_time": 0.0008, "loss": 0.29, ..., "iter": 10, "step": 10}'
    )
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b'{"lr": 0.01, "data_time": 0.0008466720581054687, "loss": 0.29222402814775705, "loss1": 0.07543308983731549, '
        b'"loss2": 0.21679094061255455, "time": 0.0013542890548706055, "epoch": 1, "iter": 10, "step": 10}\n'
        b'{"lr": 0.01, "data_time": 0.0001536846160888672, "loss": 0.17107780054211616, "loss1": 0.0235635822173208, '
        b'"loss2": 0.14751421809196472, "time": 0.0013918876647949219, "epoch": 1, "iter": 20, "step": 20}\n'
        b'{"toy/acc": 0.7380385994911194, "data_time": 8.82720947265625e-05, "time": 0.000529956817626953, "step": 1}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one object or more is mmengine's of a training step."""
        return any(
            is_training_object(dict(_PAIR.findall(text)))
            for block in source.blocks()
            if '"iter": ' in block.text
            for text, _ in _OBJECT.findall(block.text)
        )

    def read(self, source: LogSource) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a training loss."""
        reading = _Reading()
        lines = RecordLines(source, _START, *_TOGETHER)
        for block in lines.blocks():
            reading.add(block)
        table = reading.builder.build()
        loss = next((name for name in _LOSSES if name in table.metrics), None)
        if loss is None:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name=loss,
            counting="global step",
            base=1,
            ignored_lines=reading.ignored + reading.builder.ignored,
            notes=(*lines.notes(), usual_length_note()),
        )


class _Reading:
    """Objects with a step: those with an iteration are of training."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(_window, phase_by_name), 0
        self._step = NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the objects of a block."""
        found = find_columns(block, _OBJECT)
        self.ignored += block.count_filled() - len(found.places)
        if not found.columns:
            return
        lines = block.numbers[found.places]
        objects, counters = found.columns
        training, printed = have_word(objects, '"iter": '), read_steps(counters)
        trained = carry_forward(printed, training, self._step)
        steps = np.where(trained == NO_STEP, NO_STEP, np.maximum(printed, trained))
        for validated, at in by_phase(~training):
            columns = in_seconds(pair_columns(take_texts(objects, at), _PAIR))
            metrics = {name: texts for name, texts in columns.items() if name not in _COUNTERS}
            self.builder.add(lines[at], steps[at], named_validation(metrics) if validated else metrics)
        self._step = int(trained[-1])


def _window(name: str) -> Window:
    return smoothed_window(name, USUAL_LENGTH)


PLUGIN = MmengineScalarsFormat()
