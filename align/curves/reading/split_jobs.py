"""Logs into which several jobs were written, told apart by how many steps an epoch or a run of each has.

A resume of the same job goes on with the same total, and so does a run begun anew: there later points replace earlier
ones. Records that tell another total and do not go on from those before are of another job, and never put on one curve.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.curves.loss_log import LogTable
from align.errors import MixedJobsError, UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.curves.loss_log import Integers, LossLog, Series


def choose_job(log: LossLog, job: int | None = None) -> LossLog:
    """Return one job of a log, counted from 1; without a number the log must be of one job.

    Raises MixedJobsError if it is not, UsageError if there is no such job.
    """
    jobs = split_jobs(log)
    if job is None and len(jobs) > 1:
        raise MixedJobsError(log.label, [_told(one) for one in jobs])
    if job is not None and not 1 <= job <= len(jobs):
        raise UsageError(f"{log.label} has no job {job}", f"give a number from 1 to {len(jobs)}")
    if len(jobs) == 1:
        return log
    number = job or 1
    first, last, _ = _told(jobs[number - 1])
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


def _told(log: LossLog) -> tuple[int, int, int]:
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
