"""What all errors are: a message that says what is wrong, a hint that says what to do, an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors.thresholds import ERROR_LINES
from align.words.catalogue import ENGLISH, in_language, say, texts
from align.words.message_words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Self


def as_lines(lines: Sequence[str], most: int = ERROR_LINES) -> str:
    """The lines of a list, indented, each after a line break; of a long one the first, and how many more there are."""
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return "".join(f"\n  {line}" for line in (*lines[:most], *more))


def with_lines(head: str, lines: Sequence[str], most: int = ERROR_LINES, what: str = "fault") -> str:
    """A message of several faults, whose first line says enough alone: a single fault, or how many are listed below."""
    return f"{head}: {lines[0]}" if len(lines) == 1 else f"{head} ({counted(len(lines), what)}){as_lines(lines, most)}"


class AlignError(Exception):
    """Base of all errors of mindalign: `message` says what is wrong, `hint` what to do about it."""

    __module__ = "align.errors"  # tracebacks show where it is imported from
    exit_code = 2

    def __init_subclass__(cls) -> None:
        cls.__module__ = AlignError.__module__

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @classmethod
    def of(cls, key: str, **facts: object) -> Self:
        """The error whose message and hint stand under `key` in the catalogue, with the facts filled in."""
        message, hint = texts(key, **facts)
        return cls(message, hint)

    def __str__(self) -> str:
        return self.in_language(ENGLISH)

    def in_language(self, language: str) -> str:
        """What it says, in the reader's language as far as its texts come from a catalogue."""
        message, hint = (in_language(text, language) for text in (self.message, self.hint))
        return "".join((message, "\n", in_language(say("error.hint"), language), hint)) if hint else message


class CannotRunError(AlignError):
    """The work could not be done: nothing was decided about alignment."""


class NotAlignedError(AlignError):
    """Both sides were compared and they differ."""

    exit_code = 1


class NonfiniteFoundError(NotAlignedError):
    """A training that is watched came to a NaN, an Inf or an explosion, and was to stop there."""


class UsageError(CannotRunError):
    """Arguments that do not make sense together."""


class MissingFileError(CannotRunError):
    """A file or folder that should be there is not."""

    def __init__(self, path: Path | str, what: str, instead: str = "") -> None:
        message = f"{path} is no {what}: {instead}" if instead else f"{what} not found: {path}"
        super().__init__(message, "check the path; relative paths start at the current folder")
