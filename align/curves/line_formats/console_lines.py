"""The lines that a logger prints to the console, as data: what `mappings/log_formats/` holds.

An expression is a regular one in which `<step>`, `<epoch>`, `<total>` (the steps of an epoch) and `<loss>` stand for
numbers, any other name in angle brackets for a metric, `<#>` for a number that is passed over and `<...>` for a stretch
of anything. `<overflow>` and `<skipped>` are what tells that a step changed no weight: a word, or how many such steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.curves.log_parts.format_tables import check_keys, format_tables
from align.curves.log_parts.text import NUMBER
from align.curves.loss_log import RAW, find_window
from align.curves.thresholds import LONGEST_LINE
from align.errors import AlignError, MappingRuleError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from align.curves.loss_log import Base, Counting, Window

# What counts, and what is neither a count nor a metric.
COUNTERS = ("epoch", "step", "total")
SKIPPED = ("overflow", "skipped")
VALIDATION, REST = "validation", "rest"
_MARK = re.compile(r"(?<!\?P)<(#|\.\.\.|\w+)>")
# What stands for a loss that is no number is kept, as NaN.
_LOSS = rf"{NUMBER}(?:\(s?nan\)|\(ind\))?|None|null|[-+]?[0-9]\.#[A-Z]{{2,5}}"
_INTEGER, _WORD, _ANYTHING = "[0-9]{1,12}", r"[\w.]{1,20}", "[^\\n]{0,300}?"
# Where one name stands in several lines, its groups are distinguished by what follows this.
_AGAIN = "__"
_TUPLES = ("lines", "validation", "header", "loss", "left_out")
_COUNTS = ("global step", "step in epoch", "epoch")


@dataclass(frozen=True)
class ConsoleLines:
    r"""How one logger writes.

    `has` is a text that stands once in every line of training, or in the head of the log where `start` is given. Each
    of `lines` finds one of training, of `validation` one of another phase, of `header` one that holds only counters,
    for the lines below it. With `pairs`, which stands between a name and its number (`: `), all that follows in the
    line are metrics too, but for those `left_out`, under their `renamed` names. `loss` names the training loss, or the
    parts whose sum it is.

    `window` is what a loss is the mean of, `windows` that of single metrics; `window_length` and `epoch_length` are
    expressions whose group tells, once in a log, the steps of one. `first_step` and `first_epoch` are what the log
    calls them; None leaves it to the log. `fixed`: numbers are printed with a fixed number of decimals. Of lines of a
    `bar` at the same counters the last counts.

    `needs` must be found in the log, `lacks` must not. `start` is where a record begins, if another one ran into its
    line; where they cannot be parted, `double` stands once in each. `sample` shows real lines, `points` their steps and
    losses. `quoted`: nobody here has run the logger. `path` is the file that says all this.
    """

    name: str
    summary: str
    has: str
    lines: tuple[str, ...]
    sample: str
    points: tuple[tuple[int, float], ...]
    validation: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    pairs: str = ""
    loss: tuple[str, ...] = ("loss",)
    renamed: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    window: Window = RAW
    windows: Mapping[str, Window] = field(default_factory=dict)
    window_length: str = ""
    epoch_length: str = ""
    counts: Counting | None = None
    first_step: Base | None = None
    first_epoch: Base | None = None
    needs: str = ""
    lacks: str = ""
    bar: bool = False
    fixed: bool = False
    start: str = ""
    double: str = ""
    note: str = ""
    quoted: bool = True
    path: Path = field(default_factory=Path)

    @cached_property
    def record(self) -> re.Pattern[str]:
        """Find a line of training in a block of lines; raises MappingRuleError, as all that is made at first use."""
        return self._compiled(self._training())

    @cached_property
    def line(self) -> re.Pattern[str]:
        """Find any line of the format in a block of lines."""
        behind = self._behind()
        validation = [f"(?P<{VALIDATION}>{one}){behind}" for one in self.validation]
        return self._compiled([*self._training(), *validation, *self.header])

    @cached_property
    def head(self) -> re.Pattern[str]:
        """Find a line that holds only counters in a block of lines."""
        return self._compiled(self.header)

    @cached_property
    def pair(self) -> re.Pattern[str]:
        """Find a metric and its number in what follows in a line."""
        never = "".join(rf"(?!{name}\b)" for name in ("eta", "ETA", *self.left_out))
        name = rf"(?<![\w@./(-]){never}([A-Za-z][\w@./-]{{0,80}})"
        return self._compiled([rf"{name}{self.pairs}({NUMBER})(?![\w.:/-]|%\|)"])

    @cached_property
    def places(self) -> Mapping[str, tuple[int, ...]]:
        """Tell which groups of `line` hold what stands under a name, counted from 0."""
        places: dict[str, tuple[int, ...]] = {}
        for name, group in self.line.groupindex.items():
            plain = name.split(_AGAIN)[0]
            places[plain] = (*places.get(plain, ()), group - 1)
        return places

    @property
    def record_start(self) -> str:
        """Return what finds the beginning of a record anywhere in a line."""
        return self.start or "|".join(unnamed(spelled_out(one)) for one in (*self.lines, *self.validation))

    @property
    def once(self) -> str:
        """Return what stands once in each record."""
        return f"(?:{self.double or self.start or re.escape(self.has)})"

    def _compiled(self, expressions: Iterable[str]) -> re.Pattern[str]:
        """Join expressions; each format is asked for only where its words stand, and hundreds take a while."""
        try:
            return _compiled(expressions)
        except re.error as error:
            raise MappingRuleError(self.path, f"{self.name}: {error}") from error

    def _training(self) -> list[str]:
        return [one + self._behind(self.loss if "<loss>" not in one else ()) for one in self.lines]

    def _behind(self, names: Iterable[str] = ()) -> str:
        """Return what takes in the rest of a line, in which these names have to stand."""
        if not self.pairs:
            return ""
        asked = "".join(rf"(?=[^\n]{{0,{LONGEST_LINE}}}?(?<![\w./-]){re.escape(name)}{self.pairs})" for name in names)
        return rf"{asked}(?P<{REST}>[^\n]*)"


def spelled_out(expression: str) -> str:
    """Write named groups for the marks of an expression."""
    return _MARK.sub(_group, expression)


def unnamed(expression: str) -> str:
    """Leave the names of groups out."""
    return re.sub(r"\(\?P<\w+>", "(?:", expression)


def _group(mark: re.Match[str]) -> str:
    name = mark[1]
    if name == "...":
        return _ANYTHING
    if name == "#":
        return f"(?:{NUMBER})"
    kind = _LOSS if name == "loss" else _WORD if name in SKIPPED else NUMBER
    kind = _INTEGER if name in COUNTERS else kind
    return f"(?P<{name}>{kind})"


def _compiled(expressions: Iterable[str]) -> re.Pattern[str]:
    """Join expressions, and number the groups of one name; raises re.error."""
    seen: dict[str, int] = {}

    def distinguished(group: re.Match[str]) -> str:
        seen[group[1]] = seen.get(group[1], 0) + 1
        return f"(?P<{group[1]}{_AGAIN}{seen[group[1]]}>"

    joined = "|".join(map(spelled_out, expressions))
    return re.compile(re.sub(r"\(\?P<(\w+)>", distinguished, joined), re.MULTILINE)


_KNOWN = {field.name for field in fields(ConsoleLines)} - {"path"}


@cache
def console_formats() -> tuple[ConsoleLines, ...]:
    """Return all formats of console lines; raises MappingRuleError if a table is none."""
    return tuple(read_console_table(path, table) for path, table in format_tables("console"))


def read_console_table(path: Path, table: dict[str, Any]) -> ConsoleLines:
    """Make one format; raises MappingRuleError with what is wrong, of expressions when they are used."""
    check_keys(path, table, _KNOWN)
    name = table.get("name", "?")
    if table.get("counts", "epoch") not in _COUNTS:
        raise MappingRuleError(path, say("log_table.counts", name=name, known=_COUNTS, given=table["counts"]))
    try:
        return ConsoleLines(**_values(table), path=path)
    except (TypeError, ValueError, KeyError, AttributeError, AlignError) as error:
        raise MappingRuleError(path, f"{name}: {error}") from error


def _values(table: dict[str, Any]) -> dict[str, Any]:
    given = dict(table)
    for key in _TUPLES:
        if key in given:
            given[key] = (given[key],) if isinstance(given[key], str) else tuple(given[key])
    if "window" in given:
        given["window"] = find_window(given["window"])
    given["windows"] = {metric: find_window(text) for metric, text in given.get("windows", {}).items()}
    given["points"] = tuple((step, float(loss)) for step, loss in given["points"])
    return given
