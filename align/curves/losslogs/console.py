"""Consoles of many trainers, each a table of `mappings/log_formats/`.

A format is chosen only if a line of training is there as it says, and all else that it asks for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.curves.line_formats.console_reader import console_formats, read_console

if TYPE_CHECKING:
    from align.curves.line_formats.console_reader import ConsoleLines
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog


class ConsoleFormat:
    """Lines as one table says."""

    requires: tuple[str, ...] = ()

    def __init__(self, lines: ConsoleLines) -> None:
        self._lines = lines
        self.name, self.summary, self.quoted = lines.name, lines.summary, lines.quoted
        self.sample = lines.sample.encode()

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether one line or more is of training, and nothing shows another format."""
        lines = self._lines
        if not any(lines.record.search(block.text) for block in source.blocks() if lines.has in block.text):
            return False
        return (not lines.needs or _finds(lines.needs, source)) and not (lines.lacks and _finds(lines.lacks, source))

    def read(self, source: LogSource) -> LossLog:
        """Read all lines of training and validation; raises EmptyLogError if no line of training has a loss."""
        return read_console(self._lines, source)


def _finds(expression: str, source: LogSource) -> bool:
    return any(re.search(expression, block.text, re.MULTILINE) for block in source.blocks())


PLUGINS = tuple(map(ConsoleFormat, console_formats()))
