"""Lines of their own that say that a step changed no weight: DeepSpeed, apex, fairseq and others print them.

They stand before the record of the step, or of the steps that it is the mean of, whatever format that has. Of several
processes each may print the same line: lines that say the same between two records are one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog

_SKIPPED = re.compile(
    r"(?i)(?:overflow|(?:nan|inf)\w* (?:grad|in grad)).*?"
    r"(?:skip(?:s|ped|ping)?\b.{0,12}?\b(?:step|iteration|update|batch)"
    r"|ignoring gradient|drop(?:s|ped|ping)?\b.{0,8}?\bstep|setting loss scale to)"
    r"|grad norm is \S+ skipping updating the model|overflow(?:[ _](?:cond|flag|status))?\s*(?:is|:|=)\s*True\b"
)
# One of each stands in such a line: a search that is quick where nothing is found.
_WORDS = ("verflow", "VERFLOW", "kipping")
_SAID = ("kip", "KIP", "True", "gnoring", "drop", "setting loss")
_TABLES = {"csv", "jsonl", "json_arrays"}
_STILL = re.compile(r"(?i)still update|not skip")
# What differs between processes and times, but not between steps: the rank.
_RANK = re.compile(r"(?i)\brank[ :=]*[0-9]+")


def with_overflow_lines(log: LossLog, source: LogSource) -> LossLog:
    """Add the skipped steps that lines beside the records tell of, where its format knows none."""
    losses = log.series("loss")
    if log.table.skipped is not None or log.format in _TABLES or losses is None or source.is_binary:
        return log
    said = list(_overflow_lines(source))
    if not said:
        return log
    rows = losses.rows[np.argsort(log.table.lines[losses.rows], kind="stable")]
    before = np.searchsorted(log.table.lines[rows], [number for number, _ in said])
    told = {(int(at), text): None for at, (_, text) in zip(before, said, strict=True)}
    skipped = np.zeros(len(log.table.lines), np.int64)
    np.add.at(skipped, [rows[at] for at, _ in told if at < len(rows)], 1)
    last = sum(at >= len(rows) for at, _ in told)
    notes = [sentence("skip_note.by_lines", count=int(skipped.sum()), line=said[0][0])]
    notes += [sentence("skip_note.after_the_last", count=last)] if last else []
    table = replace(log.table, skipped=skipped) if skipped.any() else log.table
    return replace(log, table=table, skips_between=True).with_notes(tuple(notes))


def _overflow_lines(source: LogSource) -> Iterator[tuple[int, str]]:
    """Yield the number of each such line, and what it says but for times and ranks."""
    for block in source.blocks():
        if _has_both(block.text):
            for number, line in block.lines():
                found = _SKIPPED.search(line) if _has_both(line) else None
                if found and not _STILL.search(line):
                    yield number, _RANK.sub("", line[found.start() :].strip())


def _has_both(text: str) -> bool:
    return any(word in text for word in _WORDS) and any(word in text for word in _SAID)
