"""The lines of a log with one record in each, also where writers that share a file ran together on one line.

A record that is not the first of its line begins at its time stamp, else at the words that all of its kind begin with;
from there on it is a line of its own, under the same number. That is rare, so that whole blocks are asked first.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from align.curves.line_layouts import is_digit_blind
from align.curves.log_parts.text import end_notes
from align.curves.log_sources import LogBlock
from align.curves.loss_log import LossLog
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.log_format import LogFormat
    from align.curves.log_parts.table_builder import TableBuilder
    from align.curves.log_sources import LogSource

# A time stamp, and the names of a logger between it and the record.
_STAMP = r"(?:(?:\[?[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T]|\[[0-9]{2}/[0-9]{2} )[^\n]{0,150}?)?"


class RecordReading(Protocol):
    """What takes the lines of a format into columns; `ignored` counts those that are no record."""

    @property
    def builder(self) -> TableBuilder:
        """The columns so far."""
        ...

    @property
    def ignored(self) -> int:
        """Lines that were no record, but for those that the builder left out."""
        ...

    def add(self, block: LogBlock) -> None:
        """Take the lines of a block."""
        ...


class RecordLines:
    """The blocks of a log: `start` is found where a record starts, one of `together` in each line that holds two.

    Both are regular expressions. `together` may be found in other lines too; it is fast if it begins with a fixed text.
    """

    def __init__(self, source: LogSource, start: str, *together: str) -> None:
        self._source = source
        self._start, self._together = re.compile(_STAMP + f"(?:{start})"), [re.compile(one) for one in together]
        self._found: list[int] = []

    def blocks(self) -> Iterator[LogBlock]:
        """Give the lines in order."""
        for block in self._source.blocks():
            yield self._taken_apart(block) if self._may_hold_two(block) else block

    def notes(self) -> tuple[str, ...]:
        """Say where records were taken apart, and whether the end of the text was cut."""
        at_end = end_notes(self._source)
        if not self._found:
            return at_end
        return (sentence("logs_note.taken_apart", count=len(self._found), line=self._found[0]), *at_end)

    def read(self, plugin: LogFormat, reading: RecordReading) -> LossLog:
        """Hand all blocks to `reading`, and make a log of global steps from 1; raises EmptyLogError without a loss."""
        for block in self.blocks():
            reading.add(block)
        table = reading.builder.build()
        if "loss" not in table.metrics:
            raise EmptyLogError(self._source.label, [plugin.summary])
        ignored = reading.ignored + reading.builder.ignored
        return LossLog(
            self._source.label, plugin.name, table, "loss", "global step", 1, ignored_lines=ignored, notes=self.notes()
        )

    def _may_hold_two(self, block: LogBlock) -> bool:
        layouts = block.layouts if all(map(is_digit_blind, self._together)) else None
        texts = (block.text,) if layouts is None else layouts.samples
        return any(one.search(text) for one in self._together for text in texts)

    def _taken_apart(self, block: LogBlock) -> LogBlock:
        pieces: list[str] = []
        numbers: list[int] = []
        for number, line in block.lines():
            later = [found.start() for found in self._start.finditer(line)][1:]
            pieces += [line[first:last] for first, last in pairwise((0, *later, len(line)))]
            numbers += [number] * (len(later) + 1)
            self._found += [number] * bool(later)
        return LogBlock("\n".join(pieces), np.array(numbers, np.int64))


def twice(start: str) -> str:
    """Make an expression that finds two of a kind in a line."""
    return f"{start}[^\n]*{start}"
