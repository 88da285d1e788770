"""A last record that stops in the middle may lack digits of a number, so it is left out.

The lines of a format are known, so one more of a kind is enough to tell; of any log, `reading/cut_line` asks for more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from align.curves.log_parts.table_builder import take_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.log_sources import LogSource
    from align.curves.loss_log import LogTable

_NUMBER = re.compile(r"[-+]?[0-9][0-9.,:eE+-]*")
_LAST = re.compile(r"\S*$")
_LINES, _BYTES = 50, 1 << 16
NOTE = "the last line was cut: it is left out"


def leave_out_cut_record(source: LogSource, table: LogTable, record: re.Pattern[str]) -> tuple[str, LogTable]:
    """Leave out the records of the last line if it was cut, with a note; "" and the table as it is otherwise."""
    if not source.was_cut or not len(table.lines) or table.lines[-1] != source.data.count(b"\n") + 1:
        return "", table
    end = source.data[-_BYTES:].decode("utf-8", errors="replace").splitlines()
    *others, last = [line for line in end[-_LINES:] if record.search(line)] or [""]
    if not is_cut(last, others):
        return "", table
    return NOTE, take_rows(table, np.flatnonzero(table.lines < table.lines[-1]))


def is_cut(last: str, others: Sequence[str]) -> bool:
    """Tell whether a line is the beginning of one like these: it lacks what they have, or decimals at its end."""
    shape, alike = _shape(last), [line for line in others if _shape(line) == _shape(last)]
    if alike:
        return _end(last) < min(map(_end, alike))
    return any(_shape(line).startswith(shape.rstrip("#., ")) for line in others)


def _shape(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def _end(line: str) -> tuple[int, int]:
    """Return how many parts the last word or number of a line has, and the length of the last part if it counts.

    Whole numbers have any length: 9 may follow 10.
    """
    last = _LAST.search(line.rstrip())
    parts = re.split("[.:]", last[0] if last else "")
    return len(parts), len(parts[-1]) if len(parts) > 1 or not parts[-1].isdecimal() else 0
