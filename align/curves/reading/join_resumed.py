"""The logs of a training that was stopped and resumed, put one behind the other.

Line numbers stay those of each file. What later points replace is decided on the axis, as for a single file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from align.curves.loss_log import LogTable, LossLog, Series
from align.errors import UnlikeLogsError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from align.curves.loss_log import Counting

T = TypeVar("T", bound=np.generic)


def join_logs(logs: Sequence[LossLog], label: str) -> LossLog:
    """Put logs of one format in a row; raises UnlikeLogsError if one value is not the same kind of thing in all."""
    if len(logs) == 1:
        return logs[0]
    first = logs[0]
    for log in logs[1:]:
        if (log.format, log.loss_name) != (first.format, first.loss_name):
            raise UnlikeLogsError(first.label, log.label, "their losses go by other names")
    counting = _counting(logs)
    lengths = {log.steps_per_epoch for log in logs if log.steps_per_epoch is not None}
    notes = [sentence("logs_note.of_file", file=log.label, note=note) for log in logs for note in log.notes]
    if len(lengths) > 1:
        notes.append(sentence("logs_note.unlike_lengths", lengths=sorted(lengths)))
    return LossLog(
        label=label,
        format=first.format,
        table=_join_tables(logs),
        loss_name=first.loss_name,
        counting=counting,
        base=min((log.base for log in logs if log.base is not None), default=None),
        steps_per_epoch=lengths.pop() if len(lengths) == 1 else None,
        ignored_lines=sum(log.ignored_lines for log in logs),
        headed=any(log.headed for log in logs),
        notes=(sentence("logs_note.files", count=len(logs), files=[log.label for log in logs]), *notes),
    )


def _counting(logs: Sequence[LossLog]) -> Counting:
    """Tell how all count: a file of one epoch does not show that its steps start again with each."""
    kinds = dict.fromkeys(log.counting for log in logs)
    if len(kinds) == 1:
        return logs[0].counting
    if kinds.keys() == {"global step", "step in epoch"} and all(log.table.epochs is not None for log in logs):
        return "step in epoch"
    raise UnlikeLogsError(logs[0].label, logs[-1].label, f"they count unlike things: {', '.join(kinds)}")


def _join_tables(logs: Sequence[LossLog]) -> LogTable:
    tables = [log.table for log in logs]
    sizes = [len(table.lines) for table in tables]
    firsts = np.cumsum([0, *sizes[:-1]]).tolist()
    names = dict.fromkeys(name for table in tables for name in table.metrics)
    epochs = [table.epochs for table in tables if table.epochs is not None]
    shares = [table.shares for table in tables if table.shares is not None]
    return LogTable(
        np.concatenate([table.lines for table in tables]),
        np.concatenate([table.steps for table in tables]),
        np.concatenate(epochs) if len(epochs) == len(tables) else None,
        {name: _join_series(name, logs, firsts) for name in names},
        _joined([table.totals for table in tables], sizes, np.int64),
        _joined([table.skipped for table in tables], sizes, np.int64),
        np.concatenate(shares) if len(shares) == len(tables) else None,
    )


def _joined(columns: Sequence[NDArray[T] | None], sizes: Sequence[int], kind: Callable[[], T]) -> NDArray[T] | None:
    """Put a column together that is 0 where a file lacks it; None if all do."""
    if all(column is None for column in columns):
        return None
    empty = kind().dtype
    return np.concatenate(
        [np.zeros(size, empty) if one is None else one for one, size in zip(columns, sizes, strict=True)]
    )


def _join_series(name: str, logs: Sequence[LossLog], firsts: Sequence[int]) -> Series:
    parts = [
        (log, log.table.metrics[name], first)
        for log, first in zip(logs, firsts, strict=True)
        if name in log.table.metrics
    ]
    label, known = parts[0][0].label, parts[0][1]
    for log, series, _ in parts:
        if (series.window, series.phase) != (known.window, known.phase):
            raise UnlikeLogsError(label, log.label, f"values of {name!r} are means over other spans of steps")
    return Series(
        np.concatenate([series.rows + first for _, series, first in parts]),
        np.concatenate([series.values for _, series, _ in parts]),
        np.concatenate([series.resolution for _, series, _ in parts]),
        known.window,
        known.phase,
    )
