"""The jobs of a training and its files: a log of several jobs is split, the files of a resumed job are joined.

A resume of the same job goes on with the same total of steps, and so does a run that begins anew: there later points
replace earlier ones, which is decided on the axis. Records of another total that do not go on from those before are of
another job, and never put on one curve. Line numbers stay those of each file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from align.curves.loss_log import LogTable, LossLog, Series
from align.errors import MixedJobsError, UnlikeLogsError, UsageError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from align.curves.loss_log import Counting, Integers

T = TypeVar("T", bound=np.generic)


def choose_job(log: LossLog, job: int | None = None) -> LossLog:
    """Return one job of a log, counted from 1; without a number the log must be of one job.

    Raises MixedJobsError if it is not, UsageError if there is no such job.
    """
    jobs = split_jobs(log)
    if job is None and len(jobs) > 1:
        raise MixedJobsError(log.label, [_extent(one) for one in jobs])
    if job is not None and not 1 <= job <= len(jobs):
        raise UsageError.of("log_usage.job", label=log.label, job=job, last=len(jobs))
    if len(jobs) == 1:
        return log
    number = job or 1
    first, last, _ = _extent(jobs[number - 1])
    note = sentence("logs_note.job", number=number, count=len(jobs), first=first, last=last)
    return jobs[number - 1].with_notes((note,))


def split_jobs(log: LossLog) -> tuple[LossLog, ...]:
    """Split a log where another job begins; put together, the tables are that of the log."""
    begins = _begins(log).tolist()
    bounds = zip([0, *begins], [*begins, len(log.table.lines)], strict=True)
    return tuple(replace(log, table=_part(log.table, *bound)) for bound in bounds) if begins else (log,)


def _begins(log: LossLog) -> Integers:
    """Return the records with which another job begins.

    A run may go on with a new total, as it was prolonged, and a new epoch may have another length.
    """
    table, loss = log.table, log.series("loss")
    if loss is None or table.totals is None or not (table.totals != table.totals[:1]).any():
        return table.lines[:0]
    rows = loss.rows[table.totals[loss.rows] > 0]
    place = table.steps[rows] if table.epochs is None or log.counting != "step in epoch" else table.epochs[rows]
    begins: Integers = rows[1:][(np.diff(table.totals[rows]) != 0) & (np.diff(place) <= 0)]
    return begins


def _extent(log: LossLog) -> tuple[int, int, int]:
    """Return the first and the last line of a job and its total of steps."""
    lines, totals = log.table.lines, log.table.totals
    return int(lines.min()), int(lines.max()), 0 if totals is None else int(totals.max())


def _part(table: LogTable, start: int, stop: int) -> LogTable:
    """Return the records [start, stop); metrics that have no value there are left out."""
    records = slice(start, stop)
    parts = {name: _series_part(series, start, stop) for name, series in table.metrics.items()}
    return LogTable(
        table.lines[records],
        table.steps[records],
        _cut(table.epochs, records),
        {name: part for name, part in parts.items() if len(part.rows)},
        _cut(table.totals, records),
        _cut(table.skipped, records),
        _cut(table.shares, records),
    )


def _cut(column: NDArray[Any] | None, records: slice) -> Any:
    return None if column is None else column[records]


def _series_part(series: Series, start: int, stop: int) -> Series:
    at = slice(*np.searchsorted(series.rows, (start, stop)))
    return replace(series, rows=series.rows[at] - start, values=series.values[at], resolution=series.resolution[at])


def join_logs(logs: Sequence[LossLog], label: str) -> LossLog:
    """Put logs of one format in a row; raises UnlikeLogsError if one value is not the same kind of thing in all."""
    if len(logs) == 1:
        return logs[0]
    first = logs[0]
    for log in logs[1:]:
        if (log.format, log.loss_name) != (first.format, first.loss_name):
            raise UnlikeLogsError(first.label, log.label, say("log_fault.other_names"))
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
        skips_between=any(log.skips_between for log in logs),
        notes=(sentence("logs_note.files", count=len(logs), files=[log.label for log in logs]), *notes),
    )


def _counting(logs: Sequence[LossLog]) -> Counting:
    """Tell how all count: a file of one epoch does not show that its steps start again with each."""
    kinds = dict.fromkeys(log.counting for log in logs)
    if len(kinds) == 1:
        return logs[0].counting
    if kinds.keys() == {"global step", "step in epoch"} and all(log.table.epochs is not None for log in logs):
        return "step in epoch"
    raise UnlikeLogsError(logs[0].label, logs[-1].label, say("log_fault.other_counting", kinds=list(kinds)))


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
            raise UnlikeLogsError(label, log.label, say("log_fault.other_spans", name=name))
    return Series(
        np.concatenate([series.rows + first for _, series, first in parts]),
        np.concatenate([series.values for _, series, _ in parts]),
        np.concatenate([series.resolution for _, series, _ in parts]),
        known.window,
        known.phase,
    )
