"""The console log of MindCV's `StateMonitor`.

It prints the first step of an epoch, every n-th and the last, with six decimals, and says how many steps an epoch
has: nothing has to be guessed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from align.curves.log_parts.line_columns import find_columns
from align.curves.log_parts.printed_digits import all_fixed
from align.curves.log_parts.record_lines import RecordLines, twice
from align.curves.log_parts.table_builder import TableBuilder, read_steps

if TYPE_CHECKING:
    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import LossLog

_STEP = re.compile(
    r"Epoch: \[([0-9]+)/[0-9]+\], batch: \[([0-9]+)/([0-9]+)\], "
    r"loss: ([^\s,]+)(?:, lr: ([^\s,]+))?(?:, time: ([0-9.]+)s)?"
)
# Its time is that of all steps since the last print together.
_NAMES = ("loss", "lr", "interval_time_s")
_START = r"Epoch: \[[0-9]+/[0-9]+\], batch: "
_TOGETHER = (twice(_START),)


class MindcvFormat:
    """Lines `Epoch: [1/2], batch: [1/4], loss: 1.536860, lr: 0.100000, time: 0.745625s`."""

    name = "mindcv"
    summary = "MindCV console log: Epoch: [1/2], batch: [1/4], loss: 1.53"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b"[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [1/2], batch: [1/2], "
        b"loss: 1.536860, lr: 0.100000, time: 0.745625s\n"
        b"[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [1/2], batch: [2/2], "
        b"loss: 1.807196, lr: 0.100000, time: 0.098966s\n"
        b"[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [2/2], batch: [1/2], "
        b"loss: 1.245404, lr: 0.100000, time: 0.091885s\n"
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is StateMonitor's."""
        return any(_STEP.search(block.text) for block in source.blocks() if "batch: [" in block.text)

    def read(self, source: LogSource) -> LossLog:
        """Read all step lines; raises EmptyLogError if there is none."""
        reading = _Reading()
        log = RecordLines(source, _START, *_TOGETHER).read(self, reading)
        return replace(log, counting="step in epoch", notes=(*log.notes, *reading.builder.notes()))


class _Reading:
    """Step lines in columns; all others are counted."""

    def __init__(self) -> None:
        self.builder, self.ignored = TableBuilder(loss="loss", printed_of=all_fixed), 0

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        found = find_columns(block, _STEP)
        self.ignored += block.count_filled() - len(found.places)
        if found.columns:
            lines = block.numbers[found.places]
            epochs, steps, totals, *texts = found.columns
            metrics = dict(zip(_NAMES, texts, strict=True))
            self.builder.add(lines, read_steps(steps), metrics, epochs=read_steps(epochs), totals=read_steps(totals))


PLUGIN = MindcvFormat()
