"""What all loss-log readers share: numbers as they are printed, and how a log ends.

`null` or `None` in place of a number is what writers make of NaN.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from align.curves.thresholds import LONGEST_NUMBER, SHOWN_CHARACTERS
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.log_sources import LogSource

T = TypeVar("T")

NUMBER = r"[-+]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|(?i:nan|inf(?:inity)?)\b)"


_WHOLE = re.compile(NUMBER)
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+(?:[eE][-+]?[0-9]+)?")


def known(found: T | None, source: LogSource, expected: str) -> T:
    """Return what a format found in a log; raises EmptyLogError with what it expected if that is nothing."""
    if found is None:
        raise EmptyLogError(source.label, [expected])
    return found


def is_number(text: str) -> bool:
    """Tell whether a text is one decimal number, NaN or infinity."""
    return len(text) <= LONGEST_NUMBER and _WHOLE.fullmatch(text) is not None


def with_point(text: str) -> str:
    """Return a number with a decimal comma as one with a point, all else as it is."""
    return text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text


def shortened(text: str) -> str:
    """Return a text as messages show it, which may have any length in a log."""
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def is_null(text: str) -> bool:
    """Tell whether a text stands explicitly for no value."""
    return text.lower() in ("null", "none")


def end_notes(source: LogSource) -> tuple[str, ...]:
    """Say so if the text stops in the middle of a line: its last number may have been cut."""
    return (sentence("logs_note.no_line_end"),) if source.was_cut else ()


def only_epochs_note() -> str:
    """Say what a loss is in a log that counts only epochs."""
    return sentence("logs_note.only_epochs")
