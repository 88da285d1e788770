"""Which columns hold the training loss, by their names or as a sum of parts; and whether Lightning logged them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.table_reader import LOSS_NAMES
from align.curves.loss_log import Series
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from align.curves.loss_log import LogTable, Window

# What Lightning's LearningRateMonitor calls its metrics: the class of the optimizer.
RATE = re.compile(r"lr-[A-Z]")
# Of one step, logged one way only, mean of an epoch.
_WAYS = ("_step", "", "_epoch")
_STEMS = dict.fromkeys(name.removesuffix("_step").removesuffix("_epoch") for name in (*LOSS_NAMES, "loss/auto"))


def loss_names(names: Collection[str]) -> list[str]:
    """Return the names that usually stand for the training loss, the surest first, of one step before means."""
    plain = {name.strip().lower().replace(" ", "_").replace("-", "_"): name for name in reversed(list(names))}
    return [plain[stem + way] for stem in _STEMS for way in _WAYS if stem + way in plain]


def loss_notes(losses: list[str]) -> tuple[str, ...]:
    """Say which of several names is read as the loss."""
    if len(losses) < 2:
        return ()
    return (sentence("logs_note.also_in_log", loss=losses[0], others=losses[1:]),)


def is_lightning(names: Collection[str]) -> bool:
    """Tell Lightning's metrics by one logged both ways, `x_step` and `x_epoch`, or by learning rates."""
    if not {"epoch", "step"} <= set(names):
        return False
    means = {name.removesuffix("_epoch") for name in names if name.endswith("_epoch")}
    both = any(name.endswith("_step") and name.removesuffix("_step") in means for name in names)
    return both or any(RATE.match(name) for name in names)


def with_sum(table: LogTable, parts: Sequence[str], window: Window) -> LogTable:
    """Add the sum of several parts as `loss`, in the rows that have all of them; its rounding is that of all."""
    found = [table.metrics[name] for name in parts if name in table.metrics]
    if len(parts) < 2 or len(found) < len(parts):
        return table
    rows = reduce(np.intersect1d, [series.rows for series in found])
    values = np.sum([series.values[np.isin(series.rows, rows)] for series in found], axis=0)
    units = np.sum([series.resolution[np.isin(series.rows, rows)] for series in found], axis=0)
    loss = {"loss": Series(rows, values, units, window)} if len(rows) else {}
    return replace(table, metrics={**table.metrics, **loss})
