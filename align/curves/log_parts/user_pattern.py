"""A log format made from a user's own regular expression with named groups.

`loss` and one of `step` and `epoch` are needed; `total` is how many steps an epoch has, any other name is a metric. The
expression is searched in each line by itself. It is the user's own, so it may take for ever: each block has its time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.core.regex_timeout import SECONDS, TimeIsUpError, limited_time
from align.curves.log_parts.invalid_steps import InvalidSteps
from align.curves.log_parts.table_builder import TableBuilder, read_steps
from align.curves.log_parts.text import ONLY_EPOCHS, end_notes
from align.curves.loss_log import EPOCH_MEAN, RAW, LossLog
from align.errors import EmptyLogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers

_COUNTERS = ("step", "epoch", "total")
_EXAMPLE = r"name the groups, as in 'step (?P<step>\d+) .*loss (?P<loss>\S+)'; others are metrics"


class PatternFormat:
    """Lines in which the expression finds its groups; raises UsageError where it cannot tell a step and a loss."""

    name = "pattern"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = b""

    def __init__(self, pattern: str) -> None:
        self.summary = f"lines in which the pattern '{pattern}' is found"
        self._pattern = _compiled(pattern)

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether the expression is found in a line."""
        return any(len(self._find(block)[0]) for block in source.blocks())

    def read(self, source: LogSource) -> LossLog:
        """Read all lines that match; raises EmptyLogError if none has a loss, UsageError if that takes for ever."""
        groups, ignored = self._pattern.groupindex, 0
        counter = "step" if "step" in groups else "epoch"
        window, notes = (RAW, ()) if counter == "step" else (EPOCH_MEAN, (ONLY_EPOCHS,))
        builder, odd = TableBuilder(lambda _: window, loss="loss"), InvalidSteps()
        for block in source.blocks():
            lines, columns = self._find(block)
            ignored += block.count_filled() - len(lines)
            if len(lines):
                counts = {name: read_steps(columns[name]) for name in _COUNTERS if name in groups}
                metrics = {name: texts for name, texts in columns.items() if name not in _COUNTERS}
                odd.look(lines, counts[counter], columns[counter], columns["loss"])
                builder.add(lines, counts[counter], metrics, epochs=counts.get("epoch"), totals=counts.get("total"))
        builder.refuse_words(source.label)
        table = builder.build()
        if "loss" not in table.metrics:
            odd.refuse(source.label)
            raise EmptyLogError(source.label, [self.summary], EmptyLogError.OWN_PATTERN)
        inside = "step" in groups and "epoch" in groups
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="step in epoch" if inside else "global step" if counter == "step" else "epoch",
            base=None,
            ignored_lines=ignored + builder.ignored,
            notes=(*end_notes(source), *builder.notes(), *odd.notes(), *notes),
        )

    def _find(self, block: LogBlock) -> tuple[Integers, dict[str, Sequence[str]]]:
        """Return the numbers of the lines that match, and the texts of each group."""
        try:
            with limited_time():
                found = [(number, match) for number, line in block.lines() if (match := self._pattern.search(line))]
        except TimeIsUpError:
            reason = f"the pattern '{self._pattern.pattern}' takes more than {SECONDS} seconds"
            hint = "a repetition inside a repetition, such as (a+)+, can take for ever: write it without"
            raise UsageError(reason, hint) from None
        lines = np.array([number for number, _ in found], np.int64)
        return lines, {name: [(match[name] or "").strip() for _, match in found] for name in self._pattern.groupindex}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"'{pattern}' is no regular expression: {error}", _EXAMPLE) from error
    groups = compiled.groupindex
    missing = [] if "loss" in groups else ["loss"]
    if "step" not in groups and "epoch" not in groups:
        missing.append("step (or epoch)")
    if missing:
        raise UsageError(f"the pattern '{pattern}' has no group {' and no group '.join(missing)}", _EXAMPLE)
    return compiled
