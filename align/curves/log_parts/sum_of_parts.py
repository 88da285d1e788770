"""The training loss as the sum of its parts, for logs that print no sum."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from align.curves.loss_log import Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.loss_log import LogTable, Window


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
