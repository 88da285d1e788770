"""What a value is the mean of, said by the user: a table or an event file cannot tell it, nor what else is printed.

Nothing but a comparison shows that means are no single steps, and there they look like less noise.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from align.curves.loss_log import EPOCH_MEAN, EPOCH_SO_FAR, RAW, SINCE_LAST_PRINT, Window
from align.errors import MetricMissingError, UsageError

if TYPE_CHECKING:
    from align.curves.loss_log import LossLog

_FIXED = {window.kind: window for window in (RAW, SINCE_LAST_PRINT, EPOCH_SO_FAR, EPOCH_MEAN)}
_OF_LAST = re.compile(r"(mean|median) of last ([1-9][0-9]{0,8})", re.ASCII)
_FORMS = ", ".join(f"'{form}'" for form in ("mean of last 10", "median of last 10", *_FIXED))


def find_window(text: str) -> Window:
    """Return what `mean of last 10`, `since last print` ... stand for; raises UsageError for another text."""
    words = " ".join(text.lower().split())
    if words in _FIXED:
        return _FIXED[words]
    of_last = _OF_LAST.fullmatch(words)
    if of_last is None:
        raise UsageError(f"a value of a log cannot be {text!r}", f"give one of {_FORMS}, with any number")
    length = int(of_last[2])
    if length == 1:
        return RAW
    return Window("mean of last" if of_last[1] == "mean" else "median of last", length)


def declare_window(log: LossLog, window: Window) -> LossLog:
    """Take the training loss as a mean over these steps, with a note; raises MetricMissingError if there is none."""
    name, metrics = log.loss_name, log.table.metrics
    if name not in metrics:
        raise MetricMissingError(log.label, "loss", sorted(metrics))
    declared = {**metrics, name: replace(metrics[name], window=window)}
    length = f" {window.length}" if window.length > 1 else ""
    note = f"each value of {name!r} is taken as said: {window.kind}{length}"
    return replace(log, table=replace(log.table, metrics=declared)).with_notes((note,))
