"""The console log of MindCV's `StateMonitor`.

It prints the first step of an epoch, every n-th and the last, with six decimals, and says how many steps an epoch
has: nothing has to be guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.core.curves import LogRecord, LossLog
from align.errors import EmptyLogError
from align.losslogs._text import NUMBER, as_table, clean_lines, end_notes, read_step

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP = re.compile(
    rf"\bEpoch: \[(\d+)/\d+\], batch: \[(\d+)/(\d+)\], loss: ({NUMBER})"
    rf"(?:, lr: ({NUMBER}))?(?:, time: ({NUMBER})s)?"
)
_NAMES = ("loss", "lr", "time_s")


class MindcvFormat:
    """Lines `Epoch: [1/2], batch: [1/4], loss: 1.536860, lr: 0.100000, time: 0.745625s`."""

    name = "mindcv"
    summary = "MindCV console log: Epoch: [1/2], batch: [1/4], loss: 1.53"
    requires: tuple[str, ...] = ()
    sample = (
        "[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [1/2], batch: [1/2], "
        "loss: 1.536860, lr: 0.100000, time: 0.745625s\n"
        "[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [1/2], batch: [2/2], "
        "loss: 1.807196, lr: 0.100000, time: 0.098966s\n"
        "[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - Epoch: [2/2], batch: [1/2], "
        "loss: 1.245404, lr: 0.100000, time: 0.091885s\n"
    )

    def recognizes(self, text: str) -> bool:
        """Tell whether one line or more is StateMonitor's."""
        return any(_STEP.search(line) for _, line in clean_lines(text) if "batch: [" in line)

    def read(self, text: str, label: str) -> LossLog:
        """Read all step lines; raises EmptyLogError if there is none."""
        totals: list[int] = []
        ignored: list[int] = []
        table = as_table(_records(text, totals, ignored))
        if "loss" not in table.metrics:
            raise EmptyLogError(label, [self.summary])
        notes = end_notes(text)
        if len(set(totals)) > 1:
            notes = (
                *notes,
                f"epochs of {', '.join(map(str, sorted(set(totals))))} steps: more than one job in this log",
            )
        return LossLog(
            label=label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="step in epoch",
            base=1,
            steps_per_epoch=int(np.max(totals)) if len(set(totals)) == 1 else None,
            ignored_lines=len(ignored),
            notes=notes,
        )


def _records(text: str, totals: list[int], ignored: list[int]) -> Iterator[LogRecord]:
    for number, line in clean_lines(text):
        found = _STEP.search(line)
        epoch, step, total = (read_step(text) for text in found.groups()[:3]) if found else (None, None, None)
        if found and epoch is not None and step is not None and total:
            totals.append(total)
            texts = {name: value for name, value in zip(_NAMES, found.groups()[3:], strict=True) if value}
            yield LogRecord(number, step, epoch, texts)
        elif line.strip():
            ignored.append(number)


PLUGIN = MindcvFormat()
