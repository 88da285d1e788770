"""The last line of a log that stops in the middle of it: left out where the lines before show that it was longer.

A number that lost its last digits is a wrong one: a loss, or a step that seems to go back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.curves.log_sources import LogSource

if TYPE_CHECKING:
    from collections.abc import Sequence

# Lines like the last one are looked for in so many bytes before it.
BEFORE_BYTES = 1 << 16
LEAST_ALIKE = 2
_NUMBER = re.compile(rb"[-+]?[0-9][0-9.eE+-]*")
_TAIL = re.compile(rb"[-+.0-9eE]*[0-9.]$")


def without_cut_line(source: LogSource) -> tuple[LogSource, tuple[str, ...]]:
    """Return the log without its last line if that was plainly cut, and a note; else as it is."""
    if not source.was_cut or source.is_binary:
        return source, ()
    start = max(source.data.rfind(b"\n"), source.data.rfind(b"\r")) + 1
    before = source.data[max(0, start - BEFORE_BYTES) : start].splitlines()
    if not _is_beginning(source.data[start:], before[start > BEFORE_BYTES :]):
        return source, ()
    return LogSource(source.label, source.data[:start]), ("the last line was cut: it is left out",)


def _is_beginning(last: bytes, before: Sequence[bytes]) -> bool:
    """Tell whether a line is the beginning of one like those before, whatever their numbers."""
    shape = _NUMBER.sub(b"#", last)
    if b"#" not in shape:
        return False
    shapes = [_NUMBER.sub(b"#", line) for line in before]
    alike = [line for line, other in zip(before, shapes, strict=True) if other == shape]
    if alike:
        return _is_shorter(last, alike)
    return sum(other.startswith(shape) for other in shapes) >= LEAST_ALIKE


def _is_shorter(last: bytes, alike: Sequence[bytes]) -> bool:
    """Tell whether the number at the end has fewer digits than all others, or than one that only grew."""
    tail, tails = _tail(last), [_tail(line) for line in alike]
    if not tail or len(tails) < LEAST_ALIKE or not all(tails):
        return False
    lengths = list(map(len, tails))
    grew = all(one.isdigit() for one in tails) and lengths == sorted(lengths)
    return len(tail) < min(lengths) or (grew and len(tail) < lengths[-1])


def _tail(line: bytes) -> bytes:
    found = _TAIL.search(line.rstrip())
    return found[0] if found else b""
