"""The jobs of a training and its files: a log of several jobs is split, the files of a resumed job are joined.

A resume of the same job goes on with the same total of steps, and so does a run that begins anew: there later points
replace earlier ones, which is decided on the axis. Records of another total that do not go on from those before are of
another job, and never put on one curve. Line numbers stay those of each file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from align.curves.log_parts.table_builder import take_rows
from align.curves.log_sources import LogSource
from align.curves.loss_log import LogTable, LossLog, Series
from align.curves.thresholds import RANKED_BYTES, RANKED_LINES, RANKS_NAMED
from align.errors import MixedJobsError, UnlikeLogsError, UsageError
from align.words.catalogue import few, say, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.loss_log import Counting, Integers


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
    parts = (take_rows(log.table, np.arange(*bound)) for bound in bounds)
    return tuple(replace(log, table=part) for part in parts) if begins else (log,)


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
    """Put tables together: epochs and shares if all tell them, totals and skipped steps as 0 where one lacks them."""
    tables = [log.table for log in logs]
    firsts = np.cumsum([0, *(len(table.lines) for table in tables[:-1])]).tolist()
    names = dict.fromkeys(name for table in tables for name in table.metrics)

    def joined(name: str, *, filled: bool) -> Any:
        columns = [getattr(table, name) for table in tables]
        lacking = [column is None for column in columns]
        if all(lacking) or (any(lacking) and not filled):
            return None
        zeros = (np.zeros(len(table.lines), np.int64) for table in tables)
        return np.concatenate([zero if one is None else one for one, zero in zip(columns, zeros, strict=True)])

    return LogTable(
        joined("lines", filled=False),
        joined("steps", filled=False),
        joined("epochs", filled=False),
        {name: _join_series(name, logs, firsts) for name in names},
        joined("totals", filled=True),
        joined("skipped", filled=True),
        joined("shares", filled=False),
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


# Logs of several processes in one file: each line begins with the rank that printed it.
#
# Launchers write it in ways of their own; one way at most is taken off, the one that most lines of the beginning
# have. Lines without a prefix stay: they may be anybody's. The lines of other ranks are emptied, not taken out, so
# that all others keep their numbers.

_COLOUR = rb"(?:\x1b\[[0-9;]*m)*"
# A launcher's prefix is printed after a carriage return too: progress bars are written in parts.
_START = rb"(?:^|(?<=\r))[ \t]{0,8}"
_RANK = rb"([0-9]{1,6})"
# torchrun and torch, msrun; Open MPI with --tag-output.
_CLEAR = (
    rb"\[(?:[Rr]ank|default|trainer|worker) ?" + _RANK + rb"\]:?[ \t]?",
    rb"\[[^\],\[\s]{1,80}," + _RANK + rb"\]<std(?:out|err)>:[ \t]?",
    # What grep prints of the logs in folders of several devices: `train_parallel0/log:`, with a line's number or none.
    rb"(?:[\w.-]{0,80}/){0,8}?(?:device|rank|train_parallel|worker|LOG|card|npu|gpu)[_-]?"
    + _RANK
    + rb"/[\w./-]{1,80}:(?:[0-9]{1,9}:)?[ \t]?",
    # What scripts write by hand, `GPU 0 | step 10 | loss 2.3`; `Rank 1: 93.2` is no process.
    rb"(?:[Rr]ank|RANK|GPU|[Pp]rocess|[Ww]orker)[ :#]{1,2}"
    + _RANK
    + rb"(?:[ \t]?[:|,-])?[ \t]+(?=[^\r\n]{0,400}(?:[Ll]oss|LOSS))",
    # What icefall prints behind its place: `2023-05-10 14:20:11,234 INFO [train.py:901] (0/8) Epoch 1, batch 50, ...`.
    rb"[0-9-]{10} [0-9:,]{8,12} [A-Z]{4,8} \[[\w./-]{1,80}:[0-9]{1,6}\] \(" + _RANK + rb"/[0-9]{1,6}\)[ \t]?",
)
# What a search that is quick where nothing is found knows of each clear prefix.
_HINTS = (
    re.compile(rb"(?:ank|default|trainer|worker) ?[0-9]"),
    re.compile(rb"\]<std"),
    re.compile(rb"(?:device|rank|train_parallel|worker|LOG|card|npu|gpu)[_-]?[0-9]{1,6}/"),
    re.compile(rb"(?:ank|ANK|GPU|rocess|orker)[ :#]{1,2}[0-9]"),
    re.compile(rb":[0-9]{1,6}\] \([0-9]{1,6}/"),
)
# One of them stands in every clear prefix: most logs need no longer search.
_WORDS = (
    b"ank", b"ANK", b"PU", b"rocess", b"orker", b"default", b"trainer", b"]<std", b"device", b"_parallel", b"LOG",
    b"card", b"pu", b"] (",
)  # fmt: skip
# `srun -l` and the like: nearly all lines must have such a number, and one that only rises is a step.
_VAGUE = rb"[ 0]{0,6}" + _RANK + rb":[ \t]"
_FILLED = re.compile(rb"^[ \t\r]*[^\s]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RankedSource:
    """The lines of one rank (`rank` None: the log does not tell ranks) and of nobody, without prefixes."""

    source: LogSource
    rank: int | None
    ranks: tuple[int, ...]
    left_out: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Say so if lines of other ranks were left out."""
        if len(self.ranks) < 2:
            return ()
        ranks = few([*map(str, self.ranks)], RANKS_NAMED)
        return (sentence("logs_note.ranks", ranks=ranks, rank=self.rank),)


def lines_by_rank(source: LogSource) -> dict[int | None, LogSource]:
    """Part lines by rank, in rising order after those of nobody (None), without prefixes and without their numbers."""
    prefix = _prefix(source)
    if prefix is None:
        return {None: source}
    line = re.compile(prefix.pattern + rb"([^\r\n]*)", re.MULTILINE)
    lines_of_rank: dict[int, list[bytes]] = {}
    for rank, content in line.findall(source.data):
        lines_of_rank.setdefault(int(rank), []).append(content)
    parted: dict[int | None, LogSource] = {None: LogSource(source.label, line.sub(b"", source.data))}
    for rank in sorted(lines_of_rank):
        parted[rank] = LogSource(source.label, b"\n".join(lines_of_rank[rank]) + b"\n")
    return parted


def choose_rank(source: LogSource, rank: int | None = None) -> RankedSource:
    """Keep the lines of a rank, of the lowest if none is asked for; raises UsageError if there is no such rank."""
    prefix = _prefix(source)
    ranks = tuple(sorted({int(found) for found in prefix.findall(source.data)})) if prefix else ()
    if rank is not None and rank not in ranks:
        if not ranks:
            raise UsageError.of("log_usage.no_ranks", label=source.label, rank=rank)
        raise UsageError.of("log_usage.rank", label=source.label, rank=rank, ranks=list(ranks))
    if prefix is None:
        return RankedSource(source, None, (), 0)
    chosen, data, left_out = min(ranks) if rank is None else rank, source.data, 0
    if len(ranks) > 1:
        number = rb"(?!0*%d\b)[0-9]{1,6}" % chosen
        others = re.compile(prefix.pattern.replace(_RANK, number) + rb"[^\r\n]*", re.MULTILINE)
        data, left_out = others.subn(b"", data)
    return RankedSource(LogSource(source.label, prefix.sub(b"", data)), chosen, ranks, left_out)


def _prefix(source: LogSource) -> re.Pattern[bytes] | None:
    """Return the way in which this log tells ranks; None if it does not."""
    head = b"" if source.is_binary else source.head().data
    if any(word in head for word in _WORDS):
        clear = [re.compile(_START + _COLOUR + form, re.MULTILINE) for form in _CLEAR]
        counts = [
            _count_lines(source.head(), form) if hint.search(head) else 0
            for form, hint in zip(clear, _HINTS, strict=True)
        ]
        if max(counts):
            return clear[counts.index(max(counts))]
    vague = re.compile(_START + _COLOUR + _VAGUE, re.MULTILINE)
    beginning = source.head(RANKED_BYTES).data
    numbers = list(map(int, vague.findall(beginning)))
    rising = all(first < second for first, second in pairwise(numbers))
    return None if rising or len(numbers) < RANKED_LINES * len(_FILLED.findall(beginning)) else vague


def _count_lines(source: LogSource, prefix: re.Pattern[bytes]) -> int:
    """Count the lines that begin with a prefix, by one of each layout, as a rank may be any number."""
    count = 0
    for block in source.blocks():
        shown = (line.encode("utf-8", "surrogatepass") for line in block.shown_lines())
        found = np.array([prefix.match(line) is not None for line in shown])
        count += int(np.count_nonzero(found if block.layouts is None else found[block.layouts.kinds]))
    return count
