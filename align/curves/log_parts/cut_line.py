"""The last line of a log that stops in the middle of it: left out where the lines before show that it was longer.

A number that lost its last digits is a wrong one: a loss, or a step that seems to go back. Of any text two lines like
it are asked for; where the lines of the format are known, one more is enough.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.curves.log_sources import LogSource
from align.curves.thresholds import CUT_LINE_BYTES, CUT_LINE_EXAMPLES, CUT_LINE_RECORDS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NUMBER = re.compile(r"[-+]?[0-9][0-9.eE+-]*")
_TAIL = re.compile(r"[-+.0-9eE]*[0-9.]$")


def without_cut_line(
    source: LogSource, is_record: Callable[[str], object] | None = None
) -> tuple[LogSource, tuple[str, ...]]:
    """Return the log without its last line if that was plainly cut, and a note; else as it is.

    `is_record` knows the lines of the format; without it all lines count.
    """
    if not source.was_cut or source.is_binary:
        return source, ()
    start = _last_start(source)
    last, text = (part.decode("utf-8", "replace") for part in (source.data[start:], _before(source.data, start)))
    lines = text.splitlines()[start > CUT_LINE_BYTES :]
    if is_record is not None:
        lines = [line for line in lines[-CUT_LINE_RECORDS:] if is_record(line)] if is_record(last) else []
    if not _is_beginning(last, lines, CUT_LINE_EXAMPLES if is_record is None else 1):
        return source, ()
    return LogSource(source.label, source.data[:start], source.metric), (sentence("logs_note.cut_line"),)


def without_last_line(source: LogSource, is_cut: Callable[[str], bool]) -> tuple[LogSource, tuple[str, ...]]:
    """Return the log without a last line that has no end and of which `is_cut` says so by itself, and a note."""
    if not source.was_cut or not is_cut(source.data[(start := _last_start(source)) :].decode("utf-8", "replace")):
        return source, ()
    return LogSource(source.label, source.data[:start], source.metric), (sentence("logs_note.cut_line"),)


def _last_start(source: LogSource) -> int:
    return max(source.data.rfind(b"\n"), source.data.rfind(b"\r")) + 1


def _before(data: bytes, start: int) -> bytes:
    return data[max(0, start - CUT_LINE_BYTES) : start]


def _is_beginning(last: str, before: Sequence[str], least: int) -> bool:
    """Tell whether a line is the beginning of one like those before, whatever their numbers."""
    shape, shapes = _shape(last), list(map(_shape, before))
    if "#" not in shape:
        return False
    alike = [line for line, other in zip(before, shapes, strict=True) if other == shape]
    if alike:
        return len(alike) >= least and _is_shorter(last, alike)
    return sum(other.startswith(shape) for other in shapes) >= least


def _shape(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def _is_shorter(last: str, alike: Sequence[str]) -> bool:
    """Tell whether the number at the end has fewer decimals than all others, or is a whole one of too few digits.

    Numbers of unlike decimals are printed with all their digits: then far fewer of these tell too. A lone other proves
    nothing of whole numbers, as 9 may follow 10, unless they only grew.
    """
    tail, tails = _tail(last), list(map(_tail, alike))
    if not tail or not all(tails):
        return False
    decimals, lengths = list(map(_decimals, tails)), list(map(len, tails))
    if max(decimals) > 0:
        return _decimals(tail) < min(decimals) or (min(decimals) < max(decimals) and _has_few_digits(tail, tails))
    shorter = len(tails) >= CUT_LINE_EXAMPLES and len(tail) < min(lengths)
    return shorter or (lengths == sorted(lengths) and len(tail) < lengths[-1])


def _has_few_digits(tail: str, tails: Sequence[str]) -> bool:
    """Tell whether a number has at least two significant digits less than all others, which print all they have."""
    return _significant(tail) + CUT_LINE_EXAMPLES <= min(map(_significant, tails))


def _significant(number: str) -> int:
    """Count the digits from the first that is no zero, without those of an exponent."""
    return sum(map(str.isdigit, re.split("[eE]", number)[0].lstrip("+-0.")))


def _tail(line: str) -> str:
    found = _TAIL.search(line.rstrip())
    return found[0] if found else ""


def _decimals(number: str) -> int:
    """Count the digits behind the point, and the point; 0 for a whole number."""
    return len(number) - len(number.partition(".")[0])
