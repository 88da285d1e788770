"""One JSON document: an array of objects with a step and a loss, or an object of arrays such as a Keras history.

The array or object may stand under a key. Arrays without a step or an epoch hold one value an epoch, as a history does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.curves.columns.printed_column import ABSENT
from align.curves.log_parts.table_reader import TableReader, find_columns
from align.curves.log_parts.text import known
from align.curves.log_sources import LogBlock
from align.curves.thresholds import ARRAY_ROWS
from align.errors import EmptyLogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_parts.table_reader import LogColumns
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog

_EPOCH = "epoch"
# What another format reads: the state of a Hugging Face trainer.
_OTHERS = "log_history"


class JsonArraysFormat:
    """A document `[{"step": 1, "loss": 2.3}, ...]` or `{"loss": [2.3, 2.2], "val_loss": [2.4, 2.3]}`."""

    name = "json_arrays"
    summary = 'JSON document: [{"step": 1, "loss": 2.3}, ...], or a Keras history {"loss": [2.3, 2.2], ...}'
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b'[\n {"step": 1, "loss": 2.302585, "lr": 0.1},\n {"step": 2, "loss": 2.287413, "lr": 0.1}\n]\n'

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the document holds a step (or epochs) and a loss."""
        return _read_cells(source) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read all objects, or all places of the arrays; raises EmptyLogError if none has a loss."""
        columns, cells = known(_read_cells(source), source, f"{self.name}: {EmptyLogError.COLUMNS}")
        reader, count = TableReader(columns, source.metric), len(next(iter(cells.values())))
        lines = np.ones(count, np.int64)
        reader.add(LogBlock("\n".join(["."] * count), lines), lines, cells)
        return replace(reader.read(source, self.name), ignored_lines=0)


def _read_cells(source: LogSource) -> tuple[LogColumns, dict[str, Sequence[str]]] | None:
    """Return the columns of the log and their texts; None if the document has none."""
    document = source.document
    within = document.values() if isinstance(document, dict) and _OTHERS not in document else ()
    parts = (part for part in (document, *within) if isinstance(part, (list, dict)))
    return next(filter(None, (_cells(part, source.metric) for part in parts)), None)


def _cells(part: list[Any] | dict[str, Any], metric: str) -> tuple[LogColumns, dict[str, Sequence[str]]] | None:
    cells = _of_objects(part) if isinstance(part, list) else _of_arrays(part)
    columns = find_columns(cells, metric) if cells else None
    return (columns, cells) if columns is not None and columns.loss else None


def _of_objects(rows: list[Any]) -> dict[str, Sequence[str]]:
    if len(rows) < ARRAY_ROWS or not all(isinstance(row, dict) for row in rows):
        return {}
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_text(row.get(name, ABSENT)) for row in rows] for name in names}


def _of_arrays(table: dict[str, Any]) -> dict[str, Sequence[str]]:
    """Take the arrays, if all are of one length; without a counter each place is an epoch."""
    arrays = {name: one for name, one in table.items() if isinstance(one, list)}
    length = max(map(len, arrays.values()), default=0)
    cells: dict[str, Sequence[str]] = {
        name: list(map(_text, one)) for name, one in arrays.items() if len(one) == length
    }
    if length < ARRAY_ROWS or len(cells) < len(arrays):
        return {}
    if find_columns(cells) is None:
        cells[_EPOCH] = list(map(str, range(1, length + 1)))
    return cells


def _text(value: object) -> str:
    """Return a number as it stands; what is none of a row's is absent."""
    return value if isinstance(value, str) else "null" if value is None else ABSENT


PLUGIN = JsonArraysFormat()
