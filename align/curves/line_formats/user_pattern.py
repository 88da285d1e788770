"""A log format made from a user's own regular expression with named groups.

`loss` and one of `step` and `epoch` are needed; what others stand for, LineFormat says. The expression is searched in
each line by itself, or in all of the text if it asks for line ends. It is the user's own, so it may take for ever: each
block has its time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from align.curves.line_formats.line_format import LineFormat
from align.curves.line_formats.line_reader import blocks_of, find_in_block, read_lines
from align.errors import UsageError

if TYPE_CHECKING:
    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LossLog

_EXAMPLE = r"name the groups, as in 'step (?P<step>\d+) .*loss (?P<loss>\S+)'; others are metrics"
_RATIO = re.compile(r"\s*/\s*[0-9]")
_TOTAL = r"let the pattern take the number behind the step too: (?P<step>\d+)\s*/\s*(?P<total>\d+)"


class PatternFormat:
    """Lines in which the expression finds its groups; raises UsageError where it cannot tell a step and a loss."""

    name = "pattern"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b""

    def __init__(self, pattern: str) -> None:
        self.summary = f"lines in which the pattern '{pattern}' is found"
        self._format = LineFormat(self.name, self.summary, _checked(pattern), of_user=True)

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the expression is found in a line."""
        return any(find_in_block(self._format, block) for block in blocks_of(self._format, source))

    def read(self, source: LogSource) -> LossLog:
        """Read all lines that match; raises EmptyLogError if none has a loss, UsageError if that takes for ever."""
        log = read_lines(self._format, source)
        return replace(log, settled_by=_TOTAL) if self._leaves_total(source) else log

    def _leaves_total(self, source: LogSource) -> bool:
        """Tell whether a number of steps stands behind the step, and no group takes it."""
        groups = self._format.compiled.groupindex
        if "total" in groups or not {"step", "epoch"} <= set(groups) or self._format.spans_lines:
            return False
        searched = self._format.searched()
        found = (searched.search(line) for _, line in source.head().lines())
        ends = ((match.string, match.end("step")) for match in found if match and match["step"])
        return any(_RATIO.match(line, end) for line, end in islice(ends, 1))


def _checked(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"'{pattern}' is no regular expression: {error}", _EXAMPLE) from error
    missing = [] if "loss" in groups else ["loss"]
    if "step" not in groups and "epoch" not in groups:
        missing.append("step (or epoch)")
    if missing:
        raise UsageError(f"the pattern '{pattern}' has no group {' and no group '.join(missing)}", _EXAMPLE)
    return pattern
