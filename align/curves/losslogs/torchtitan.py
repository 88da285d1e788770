"""The console log of torchtitan, which prints step 1 and every n-th.

A loss, over all ranks, is that of the printed step; versions until January 2025 printed the mean since the last print.
Theirs are the lines without `tflops`, which came a month later. Throughputs are taken over the time since the last
print, the memory is its peak. Ranks print the same line each, as far as they are not filtered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.curves.columns.line_columns import find_columns
from align.curves.columns.printed_column import are_filled, take_texts, without_letter
from align.curves.columns.printed_digits import all_fixed
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import TableBuilder, read_steps
from align.curves.log_parts.text import NUMBER
from align.curves.log_parts.validation_metrics import by_phase, named_validation, phase_by_name
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LossLog
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Window

_STEP = re.compile(
    rf"step:(?:(?<=(validate) step:)|) +([0-9]+) +loss: +({NUMBER})(?: +grad_norm: +({NUMBER}))?"
    rf" +memory: +({NUMBER})GiB\(({NUMBER})%\)(?: +wps: +([0-9,]+))?(?: +tps: +([0-9,]+))?"
    rf"(?: +tflops: +([0-9,.]+|nan|inf))?(?: +mfu: +({NUMBER})%)?"
)
_NAMES = ("loss", "grad_norm", "memory_gib", "memory_percent", "wps", "tps", "tflops", "mfu")
_WITH_COMMAS = _SINCE_LAST_PRINT = ("wps", "tps", "tflops")
_START = "(?:validate )?step: +[0-9]+ +loss: "
_TOGETHER = (twice("step: +[0-9]+ +loss: "),)


class TorchtitanFormat:
    """Lines `[titan] ... - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  memory:  0.90GiB(1.25%)  ...`."""

    name = "torchtitan"
    summary = "torchtitan console log: step:  3  loss:  4.9925  grad_norm:  2.6422  memory:  0.90GiB(1.25%)"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"[titan] 2026-11-20 23:19:40,858 - root - INFO - step:  1  loss:  2.45474  grad_norm:  0.7858  "
        b"memory:  0.90GiB(1.25%)  tps: 157  tflops: 0.00  mfu: 0.00%\n"
        b"[titan] 2026-11-20 23:19:41,074 - root - INFO - step:  5  loss:  2.39077  grad_norm:  0.7085  "
        b"memory:  0.90GiB(1.25%)  tps: 2,364  tflops: 0.00  mfu: 0.00%\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is a training step of torchtitan's."""
        return any(_STEP.search(block.text) for block in source.blocks() if "GiB(" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all steps and validations; raises EmptyLogError if no line has a training loss."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return log.with_notes((sentence("logs_note.without_tflops"),)) if reading.averages else log


class _Reading:
    """The lines of steps; `averages` while none has shown that losses are those of one step."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(self._window, phase_by_name, printed_of=all_fixed), 0
        self.averages = True

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        found = find_columns(block, _STEP)
        self.ignored += max(0, block.count_filled() - len(found.places))
        if not found.columns:
            return
        lines = block.numbers[found.places]
        for validated, at in by_phase(are_filled(found.columns[0])):
            _, steps, *texts = (take_texts(column, at) for column in found.columns)
            metrics = dict(zip(_NAMES, texts, strict=True))
            for name in _WITH_COMMAS:
                metrics[name] = without_letter(metrics[name], ",")
            self.averages &= not are_filled(metrics["tflops"]).any()
            self.builder.add(lines[at], read_steps(steps), named_validation(metrics) if validated else metrics)

    def _window(self, name: str) -> Window:
        return SINCE_LAST_PRINT if name in _SINCE_LAST_PRINT or (name == "loss" and self.averages) else RAW


PLUGIN = TorchtitanFormat()
