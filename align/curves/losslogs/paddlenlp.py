"""What PaddleNLP prints: its Trainer, and the training scripts of its examples (`global step 10, epoch: 1, ...`).

The Trainer's losses are means since the last print; an evaluation stands at the last training line before it. A script
prints the loss of the step, as the examples do; what others made of their line is not known. Throughputs and costs are
taken since the last print.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_filled, take_texts
from align.curves.columns.printed_digits import Printed
from align.curves.log_parts.name_value_pairs import pair_columns
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import NO_STEP, TableBuilder, read_printed_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import by_phase, carry_forward, phase_by_name
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LossLog
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Window

_TRAINER = r"(?<![\w'])loss: [^\n]{0,200}?, global_step: ([0-9]+)"
_SCRIPT = r"global step ([0-9]+)(?:/[0-9]+)?, (?=[^\n]{0,500}\bloss: )"
_TRAINING = re.compile(rf"{_TRAINER}|{_SCRIPT}")
_LINE = re.compile(rf"((?:{_TRAINER}|{_SCRIPT}|(?<![\w'])(eval_)\w+: )[^\n]*)")
_PAIR = re.compile(rf"(?<![\w'.-])(learning rate|[A-Za-z][\w.-]{{0,80}}) ?: ?({NUMBER})(?=[,\s\[\]|]|$)", re.MULTILINE)
_COUNTERS = ("global_step", "epoch", "batch", "progress_or_epoch")
_TIMES = {
    "interval_runtime": "interval_runtime_s",
    "avg_reader_cost": "avg_reader_cost_s",
    "avg_batch_cost": "avg_batch_cost_s",
}
_SET = ("learning_rate", "learning rate", "lr", "loss_scale", "global_norm")
_TRAINER_PRINTS = {"loss": Printed("decimals", 8), "learning_rate": Printed("significant", 4)}
# A training line of the Trainer begins with its loss; those of scripts have theirs behind the step.
_START = (
    r"(?<![\w'])loss: (?=[^,\n]{1,40}, (?:[a-z_]{1,40}: [^,\n]{1,40}, ){0,4}global_step: [0-9])"
    r"|global step [0-9]+(?:/[0-9]+)?, |(?<=- )eval_loss: "
)
_TOGETHER = twice("loss: "), twice("global step ")


class PaddleNlpFormat:
    """Lines `loss: 5.408041, learning_rate: 2.996e-05, global_step: 10, interval_runtime: 3.084, ...`."""

    name = "paddlenlp"
    summary = (
        "PaddleNLP: loss: 5.408, learning_rate: 3e-05, global_step: 10, ..., or global step 10, epoch: 1, ... loss: 5.4"
    )
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"[2026-11-20 23:42:45,781] [    INFO] - loss: 1.41530406, learning_rate: 0.04688, global_step: 1, "
        b"interval_runtime: 0.0517, interval_samples_per_second: 38.7003, interval_steps_per_second: 19.3502, "
        b"progress_or_epoch: 0.125\n"
        b"[2026-11-20 23:42:45,783] [    INFO] - loss: 1.87084389, learning_rate: 0.04063, global_step: 3, "
        b"interval_runtime: 0.0022, interval_samples_per_second: 1840.6161, interval_steps_per_second: 920.3081, "
        b"progress_or_epoch: 0.375\n"
        b"[2026-11-20 23:42:45,799] [    INFO] - eval_loss: 1.6015843152999878, eval_accuracy: 0.375, "
        b"eval_runtime: 0.0022, progress_or_epoch: 1.0\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is that of a training step."""
        return any(_TRAINING.search(block.text) for block in source.blocks() if "loss: " in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read steps and evaluations; raises EmptyLogError if no step has a loss."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(
            log,
            base=None if reading.of_script else 1,
            notes=(*log.notes, *([sentence("logs_note.loss_of_step")] if reading.of_script else [])),
        )


class _Reading:
    """Lines of steps and, at the last step before them, of evaluations."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=self._printed), 0
        self.of_script = False
        self._step = NO_STEP

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        found = find_columns(block, _LINE)
        self.ignored += block.count_filled() - len(found.places)
        if not found.columns:
            return
        lines = block.numbers[found.places]
        lists, trained, scripted, evaluated = found.columns
        validation = are_filled(evaluated)
        printed = np.where(are_filled(trained), read_printed_steps(trained), read_printed_steps(scripted))
        steps = carry_forward(printed, ~validation, self._step)
        for _, at in by_phase(validation):
            columns = pair_columns(take_texts(lists, at), _PAIR)
            metrics = {_TIMES.get(name, name): texts for name, texts in columns.items() if name not in _COUNTERS}
            self.builder.add(lines[at], steps[at], metrics)
        self.of_script |= bool(are_filled(scripted).any())
        self._step = int(steps[-1])

    def _printed(self, name: str) -> Printed | None:
        return None if self.of_script else _TRAINER_PRINTS.get(name)

    def _window(self, name: str) -> Window:
        set_or_printed = name in _SET or "memory" in name or (self.of_script and "loss" in name)
        return RAW if set_or_printed or phase_by_name(name) == "validation" else SINCE_LAST_PRINT


PLUGIN = PaddleNlpFormat()
