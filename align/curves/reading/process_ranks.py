"""Logs of several processes in one file: each line begins with the rank that printed it.

Launchers write it in ways of their own; one way at most is taken off, the one that most lines of the beginning have.
Lines without a prefix stay: they may be anybody's. The lines of other ranks are emptied, not taken out, so that all
others keep their numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from align.curves.log_sources import LogSource
from align.curves.thresholds import RANKED_BYTES, RANKED_LINES, RANKS_NAMED
from align.errors import UsageError
from align.words.catalogue import sentence
from align.words.message_words import first_few

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
    b"ank",
    b"ANK",
    b"PU",
    b"rocess",
    b"orker",
    b"default",
    b"trainer",
    b"]<std",
    b"device",
    b"_parallel",
    b"LOG",
    b"card",
    b"pu",
    b"] (",
)
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
        ranks = first_few([*map(str, self.ranks)], RANKS_NAMED)
        return (sentence("logs_note.ranks", ranks=ranks, rank=self.rank),)


def lines_by_rank(source: LogSource) -> dict[int | None, LogSource]:
    """Part lines by rank, in rising order after those of nobody (None), without prefixes and without their numbers."""
    prefix = _prefix(source)
    if prefix is None:
        return {None: source}
    line = re.compile(prefix.pattern + rb"([^\r\n]*)", re.MULTILINE)
    own: dict[int, list[bytes]] = {}
    for rank, content in line.findall(source.data):
        own.setdefault(int(rank), []).append(content)
    parted: dict[int | None, LogSource] = {None: LogSource(source.label, line.sub(b"", source.data))}
    for rank in sorted(own):
        parted[rank] = LogSource(source.label, b"\n".join(own[rank]) + b"\n")
    return parted


def choose_rank(source: LogSource, rank: int | None = None) -> RankedSource:
    """Keep the lines of a rank, of the lowest if none is asked for; raises UsageError if there is no such rank."""
    prefix = _prefix(source)
    ranks = _ranks(prefix, source.data)
    if rank is not None and rank not in ranks:
        if not ranks:
            raise UsageError.of("log_usage.no_ranks", label=source.label, rank=rank)
        raise UsageError.of("log_usage.rank", label=source.label, rank=rank, ranks=list(ranks))
    if prefix is None:
        return RankedSource(source, None, (), 0)
    chosen = min(ranks) if rank is None else rank
    return _kept(source, prefix, chosen, ranks)


def _kept(source: LogSource, prefix: re.Pattern[bytes], rank: int, ranks: tuple[int, ...]) -> RankedSource:
    """Empty the lines with the prefix of another number, then take off what is left of prefixes."""
    data, left_out = source.data, 0
    if len(ranks) > 1:
        others = re.compile(prefix.pattern.replace(_RANK, rb"(?!0*%d\b)[0-9]{1,6}" % rank) + rb"[^\r\n]*", re.MULTILINE)
        data, left_out = others.subn(b"", data)
    return RankedSource(LogSource(source.label, prefix.sub(b"", data)), rank, ranks, left_out)


def _ranks(prefix: re.Pattern[bytes] | None, data: bytes) -> tuple[int, ...]:
    return tuple(sorted({int(found) for found in prefix.findall(data)})) if prefix else ()


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
