"""Logs whose epochs or steps stand in lines of their own above the losses: which loss is below which of them.

Out of order, such lines cannot be sorted: what counts them is lost. Where the first lines of a log are missing, so is
what counts the losses up to the next such line; and where all are, several epochs look like a run begun anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.deduplicate_steps import deduplicate_steps
from align.errors import SeveralRunsError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Integers, LossLog

_LOSS = -1  # format: the mark of a line with a loss


class HeadedRecords:
    """Takes the lines that count and those with a loss, block by block, in file order.

    >>> records = HeadedRecords()
    >>> records.add(np.array([1, 2, 3, 4]), np.array([-2, 0, 1, -2]), np.array([True, False, False, True]))
    >>> records.unnumbered.tolist(), records.are_mixed
    ([1], True)
    """

    def __init__(self) -> None:
        self._counts: list[Integers] = []
        self._lines: list[Integers] = []

    def add(self, lines: Integers, counts: Integers, losses: Booleans) -> None:
        """Take lines by their numbers: `counts` is what one tells that has no loss, negative if it does not count."""
        told = losses | (counts >= 0)
        self._counts.append(np.where(losses, _LOSS, counts)[told])
        self._lines.append(lines[told])

    @property
    def unnumbered(self) -> Integers:
        """The numbers of the lines with a loss above the first line that counts; none where no line does."""
        counts, lines = self._told()
        headers = np.flatnonzero(counts != _LOSS)
        return lines[: headers[0]] if len(headers) else lines[:0]

    @property
    def are_mixed(self) -> bool:
        """True if losses without a line that counts, or several under one, go with such lines without a loss."""
        counts, _ = self._told()
        followed = counts[:-1] != _LOSS
        empty = followed & (counts[1:] > counts[:-1])
        crowded = ~followed & (counts[1:] == _LOSS)
        lone = len(self.unnumbered)
        return lone > 1 or bool(empty.any() and (lone or crowded.any()))

    def notes(self) -> tuple[str, ...]:
        """Say which losses are left out."""
        lines = self.unnumbered
        return (sentence("headed_note.unnumbered", count=len(lines), line=int(lines[0])),) if len(lines) else ()

    def _told(self) -> tuple[Integers, Integers]:
        empty = np.zeros(0, np.int64)
        return np.concatenate([empty, *self._counts]), np.concatenate([empty, *self._lines])


def refuse_unnumbered_epochs(log: LossLog) -> None:
    """Raise SeveralRunsError where no line tells the epoch, and steps start again with other losses."""
    series = log.table.metrics["loss"]
    kept = deduplicate_steps(log.table.steps[series.rows], series.values)
    if kept.resumed is not None and kept.each == 1:
        first = int(log.table.lines[series.rows][kept.index].min())
        raise SeveralRunsError(log.label, len(kept.index), len(series.values) - len(kept.index), first)
