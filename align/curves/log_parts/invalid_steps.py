"""Rows whose step is no step: -1, 0.5 or 1e17, or a word beside a loss.

They are left out of the curve, which is told; where no other rows are left, that is why there is no curve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.table_builder import NO_STEP
from align.curves.log_parts.text import is_number, shortened
from align.errors import NoStepError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.loss_log import Integers


class InvalidSteps:
    """What was left out of a log, block by block; lines between the rows, which are neither, are none of it."""

    def __init__(self) -> None:
        self._count = 0
        self._first: tuple[int, str] = (0, "")

    def look(self, lines: Integers, steps: Integers, texts: Sequence[str], losses: Sequence[str]) -> None:
        """Look at the steps of a block, as read and as printed; texts are empty where the block has none."""
        for row in np.flatnonzero(steps == NO_STEP).tolist() if len(texts) else ():
            text = texts[row].strip()
            if is_number(text) or (text and row < len(losses) and is_number(losses[row].strip())):
                self._first = self._first if self._count else (int(lines[row]), shortened(text))
                self._count += 1

    def notes(self) -> tuple[str, ...]:
        """Say how many rows are left out."""
        line, text = self._first
        return (sentence("logs_note.invalid_steps", count=self._count, text=text, line=line),) if self._count else ()

    def refuse(self, label: str) -> None:
        """Raise NoStepError if anything was left out: for a log of which nothing else is left."""
        if self._count:
            raise NoStepError(label, *self._first)
