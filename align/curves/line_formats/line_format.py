"""A format of lines as data: an expression with named groups, and what it cannot say by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from align.core.user_patterns import LimitedPattern
from align.curves.line_formats.numbers_of_line import named_numbers
from align.curves.log_parts.text import is_number

if TYPE_CHECKING:
    from align.curves.loss_log import Base, Window


@dataclass(frozen=True)
class LineFormat:
    r"""Lines in which `pattern` is searched, each by itself.

    Groups: `loss`; `step` or `epoch` or both; `total`, the steps of an epoch; `validation`, which takes part in what is
    not of training; `overflow` or `skipped`, how many steps were skipped; any other name is a metric. One with `\n` is
    searched in the whole text. A line may hold only a counter or `validation`
    (`Epoch (?P<epoch>\d+)$|train_loss (?P<loss>\S+)`): it then speaks for the lines that follow. An empty group
    `(?P<step>)` or `(?P<epoch>)` numbers the records in their order, anew below each line without a loss that is found.
    `window` None: single steps, or the mean of the epoch where only epochs are counted. `base` and `steps_per_epoch` as
    in LossLog. `of_user` says that a user wrote the pattern, which may take for ever. `keeps_all`: all other numbers of
    a record are metrics too, by what stands in front of them, or by the `columns` between a `delimiter` (spaces if "").
    """

    name: str
    summary: str
    pattern: str
    window: Window | None = None
    base: Base | None = None
    steps_per_epoch: int | None = None
    of_user: bool = False
    keeps_all: bool = False
    columns: tuple[str, ...] = ()
    delimiter: str = ""

    def others(self, line: str, match: re.Match[str]) -> dict[str, tuple[int, int]]:
        """Return where the other numbers of a record stand, by their names."""
        if not self.keeps_all or not match["loss"]:
            return {}
        taken = [match.span(name) for name in match.re.groupindex if match[name]]
        found = self._cells(line) if self.columns else {one.label: (one.start, one.end) for one in named_numbers(line)}
        return {
            name: span
            for name, span in found.items()
            if name not in match.re.groupindex and not any(span[0] < end and start < span[1] for start, end in taken)
        }

    def _cells(self, line: str) -> dict[str, tuple[int, int]]:
        cells = re.finditer(rf"[^{re.escape(self.delimiter)}]+" if self.delimiter.strip() else r"\S+", line)
        spans = {name: cell.span() for name, cell in zip(self.columns, cells, strict=False) if name}
        return {name: span for name, span in spans.items() if is_number(line[slice(*span)].strip())}

    @property
    def numbers_rows(self) -> bool:
        """True if records are numbered in their order."""
        return "(?P<step>)" in self.pattern or "(?P<epoch>)" in self.pattern

    @property
    def spans_lines(self) -> bool:
        """True if a record stands in several lines."""
        return r"\n" in self.pattern or "\n" in self.pattern

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The expression, ready for use; raises re.error if it is none."""
        return re.compile(self.pattern, re.MULTILINE if self.spans_lines else 0)

    def searched(self) -> re.Pattern[str] | LimitedPattern:
        """Return what to search with; a pattern of the user's has its time from now on."""
        return LimitedPattern(self.compiled) if self.of_user else self.compiled
