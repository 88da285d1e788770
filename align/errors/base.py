"""What all errors are: a message that says what is wrong, a hint that says what to do, an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from align.words.catalogue import ENGLISH, in_language, say, table, texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Self

ERROR_LINES: Final = 20
"""Lines of problems that a message lists, one below the other.
Choice: they fit on a screen with the hint, and show whether there is one cause or several."""


def as_lines(lines: Sequence[str], most: int = ERROR_LINES) -> str:
    """The lines of a list, indented, each after a line break; of a long one the first, and how many more there are."""
    more = [say("fault_list.more", count=len(lines) - most)] if len(lines) > most else []
    return say("fault_list.lines", lines=[*lines[:most], *more])


def with_lines(head: str, lines: Sequence[str], most: int = ERROR_LINES, what: str = "fault") -> str:
    """A message of several faults, whose first line says enough alone: a single fault, or how many are listed below."""
    if len(lines) == 1:
        return say("fault_list.one", head=head, fault=lines[0])
    return say(f"fault_list.{what}", head=head, count=len(lines), lines=as_lines(lines, most))


def noun(name: str) -> str:
    """The name of a kind of file, or of what both sides should have, as a text; one without a text stays as it is."""
    key = name.replace(" ", "_").lower()
    return say(f"noun.{key}") if table("noun").get(key) == name else name


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
        named, facts = noun(what), {"instead": instead} if instead else {}
        key = "missing_file.something_else" if instead else "missing_file.not_found"
        super().__init__(*texts(key, path=str(path), what=named, **facts))
