"""Small words that messages share: a number with its noun, a list cut to a readable length."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LISTED = 3
MOST_SUGGESTED = 12  # names for which close ones are looked up: among thousands that takes a second each


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 tensor`, `2 tensors`, `3 entries`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def some(names: Sequence[str], most: int = MOST_LISTED) -> str:
    """The first `most` names, and dots if there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
