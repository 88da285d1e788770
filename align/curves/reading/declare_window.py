"""What a value is the mean of, said by the user: a table or an event file cannot tell it, nor what else is printed.

Nothing but a comparison shows that means are no single steps, and there they look like less noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from align.errors import MetricMissingError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import LossLog, Window


def declare_window(log: LossLog, window: Window) -> LossLog:
    """Take the training loss as a mean over these steps, with a note; raises MetricMissingError if there is none."""
    name, metrics = log.loss_name, log.table.metrics
    if name not in metrics:
        raise MetricMissingError(log.label, "loss", sorted(metrics))
    declared = {**metrics, name: replace(metrics[name], window=window)}
    length = window.length if window.length > 1 else None
    note = sentence("logs_note.as_said", metric=name, window=window.kind, length=length)
    return replace(log, table=replace(log.table, metrics=declared)).with_notes((note,))
