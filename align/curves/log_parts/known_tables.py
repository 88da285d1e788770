"""What loggers write as tables, known by their columns: `[[table]]` in `mappings/log_formats/`.

CSV files, JSON lines and event files of these loggers are read like any others, but what a loss is the mean of and what
the first step is called are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from align.curves.log_parts.format_tables import check_keys, format_tables
from align.curves.loss_log import RAW, find_window
from align.errors import AlignError, MappingRuleError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from align.curves.loss_log import Base, Window

_TUPLES = ("has", "lacks", "step", "epoch", "loss")


@dataclass(frozen=True)
class KnownTable:
    """How one logger names its columns, by regular expressions that a whole name has to match.

    All of `has` are there and none of `lacks`. Of `step`, `epoch` and `loss` the first that is there counts. `window`
    is what a loss is the mean of, `windows` other metrics by their name. `first_step` is what the log calls it.
    `null`: an explicit null stands for no loss in the row, not for NaN. `sample` shows rows, `points` their steps and
    losses.
    """

    name: str
    summary: str
    has: tuple[str, ...]
    loss: tuple[str, ...]
    sample: str
    points: tuple[tuple[int, float], ...]
    step: tuple[str, ...] = ()
    epoch: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    window: Window = RAW
    windows: Mapping[str, Window] = field(default_factory=dict)
    first_step: Base | None = None
    null: bool = False
    note: str = ""

    @cached_property
    def asked(self) -> tuple[re.Pattern[str], ...]:
        """What is asked for, ready for use; raises re.error."""
        return tuple(map(re.compile, self.has))

    def fits(self, names: Collection[str]) -> bool:
        """Tell whether the columns are those of this logger."""
        if not all(_any_matches(one, names) for one in self.asked):
            return False
        return not any(_any_matches(re.compile(one), names) for one in self.lacks)

    def window_of(self, name: str) -> Window:
        """Return what a metric of training is the mean of."""
        return self.windows.get(name, self.window if self.is_loss(name) or "loss" in name.lower() else RAW)

    def is_loss(self, name: str) -> bool:
        """Tell whether a column may be the training loss."""
        return any(re.fullmatch(one, name) for one in self.loss)


def known_table(names: Collection[str]) -> KnownTable | None:
    """Return the logger that writes these columns; None if no known one does."""
    given = frozenset(names)
    return next((table for table in known_tables() if table.fits(given)), None)


def _any_matches(asked: re.Pattern[str], names: Collection[str]) -> bool:
    """Tell whether a name matches, at once where the expression is a name itself: a row may have 100,000."""
    literal = re.escape(asked.pattern) == asked.pattern
    return asked.pattern in names if literal else any(map(asked.fullmatch, names))


def find_names(asked: Collection[str], names: Collection[str]) -> list[str]:
    """Return the names that match one of these expressions, the first expression first."""
    return list(dict.fromkeys(name for one in asked for name in names if re.fullmatch(one, name)))


@cache
def known_tables() -> tuple[KnownTable, ...]:
    """Return all known tables; raises MappingRuleError if one is none."""
    return tuple(read_known_table(path, table) for path, table in format_tables("table"))


def read_known_table(path: Path, table: dict[str, Any]) -> KnownTable:
    """Make one table; raises MappingRuleError with what is wrong."""
    check_keys(path, table, {one.name for one in fields(KnownTable)})
    given = dict(table)
    for key in _TUPLES:
        if key in given:
            given[key] = (given[key],) if isinstance(given[key], str) else tuple(given[key])
    try:
        if "window" in given:
            given["window"] = find_window(given["window"])
        given["windows"] = {metric: find_window(text) for metric, text in given.get("windows", {}).items()}
        given["points"] = tuple((step, float(loss)) for step, loss in given["points"])
        made = KnownTable(**given)
        _ = made.asked, [re.compile(one) for one in (*made.lacks, *made.step, *made.epoch, *made.loss)]
    except (TypeError, ValueError, KeyError, re.error, AlignError) as error:
        raise MappingRuleError(path, f"{table.get('name', '?')}: {error}") from error
    return made
