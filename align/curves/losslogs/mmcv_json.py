"""mmcv's `.log.json`, one JSON object a line.

`iter` counts inside the epoch where the run goes by epochs, and through where it goes by iterations: the data shows
which. The values are means over the print interval (_mmengine). A validation stands at the last training line before
it, as its `iter` counts the batches of validation.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_word, take_texts
from align.curves.columns.printed_digits import Printed
from align.curves.log_parts.mmengine import in_seconds, interval_window, print_interval
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import by_phase, carry_forward, named_validation, phase_by_name

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Counting, Integers, LossLog, Window

_OBJECT = re.compile(
    r'^[ \t]*(\{"mode": "(train|val)", "epoch": ([0-9]+), "iter": ([0-9]+), [^\n]*\})[ \t]*$', re.MULTILINE
)
_PAIR = re.compile(rf'"([^"\n]+)": ({NUMBER})(?=[,}}])')
_COUNTERS = ("epoch", "iter")
_ROUNDED = Printed("decimals", 5)
_START = r'\{"mode": "'
_TOGETHER = (twice(_START),)


class MmcvJsonFormat:
    """Lines `{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00198, ..., "loss": 1.2, "time": 0.4}`."""

    name = "mmcv_json"
    summary = 'mmcv .log.json: {"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00198, ..., "loss": 1.2, "time": 0.4}'
    requires: tuple[str, ...] = ()
    quoted = True
    sample = (
        b'{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00198, "memory": 3100, "data_time": 0.0312, '
        b'"loss_cls": 1.21433, "loss": 1.21433, "time": 0.4125}\n'
        b'{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.00398, "memory": 3100, "data_time": 0.0051, '
        b'"loss_cls": 0.98712, "loss": 0.98712, "time": 0.3987}\n'
        b'{"mode": "val", "epoch": 1, "iter": 625, "lr": 0.02, "bbox_mAP": 0.365}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one object or more is of a training step with a loss."""
        return any(
            mode == "train" and '"loss": ' in text
            for block in source.blocks()
            if '"mode": "train"' in block.text
            for text, mode, *_ in _OBJECT.findall(block.text)
        )

    def read(self, source: LogSource) -> LossLog:
        """Read all objects; raises EmptyLogError if none has a training loss."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(log, counting=reading.counting())


class _Reading:
    """Objects of training and, at the last of them, of validation."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=lambda _: _ROUNDED), 0
        self._step = NO_STEP
        self._training_steps: list[Integers] = []
        self._training_epochs: list[Integers] = []

    def add(self, block: LogBlock) -> None:
        """Take the objects of a block."""
        found = find_columns(block, _OBJECT)
        self.ignored += block.count_filled() - len(found.places)
        if not found.columns:
            return
        lines = block.numbers[found.places]
        objects, modes, printed_epochs, printed = found.columns
        training, epochs = are_word(modes, "train"), read_steps(printed_epochs)
        steps = carry_forward(read_steps(printed), training, self._step)
        for validated, at in by_phase(~training):
            columns = in_seconds(pair_columns(take_texts(objects, at), _PAIR))
            metrics = {name: texts for name, texts in columns.items() if name not in _COUNTERS}
            metrics = named_validation(metrics) if validated else metrics
            self.builder.add(lines[at], steps[at], metrics, epochs=epochs[at])
        self._step = int(steps[-1])
        self._training_steps.append(steps[training])
        self._training_epochs.append(epochs[training])

    def counting(self) -> Counting:
        """Tell how the run counts: inside epochs if a later one starts at an earlier step."""
        back = np.diff(np.concatenate(self._training_steps)) <= 0
        on = np.diff(np.concatenate(self._training_epochs)) > 0
        return "step in epoch" if np.any(back & on) else "global step"

    @cached_property
    def _interval(self) -> int:
        return print_interval(self._training_steps)

    def _window(self, name: str) -> Window:
        return interval_window(name, self._interval)


PLUGIN = MmcvJsonFormat()
