"""The file or folder of one side; its text is read once, and never more than a reader may take."""

from __future__ import annotations

from codecs import BOM_UTF8
from functools import cached_property
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.thresholds import LONGEST_LOG_HEAD_BYTES, LONGEST_SETTINGS_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from pathlib import Path


class SettingsSource:
    """A path that is there; `shown` is how places in it are named."""

    def __init__(self, path: Path) -> None:
        self.path, self.shown = path, str(path)

    @property
    def suffix(self) -> str:
        """What its name ends with, in small letters."""
        return self.path.suffix.lower()

    @cached_property
    def head(self) -> bytes:
        """The first bytes, enough to tell what it is; none of a folder."""
        return self._read(64) if self.path.is_file() else b""

    @cached_property
    def is_text(self) -> bool:
        """Tell whether it is a file of text: one without zeros at its beginning."""
        return self.path.is_file() and b"\0" not in self._read(4096)

    @cached_property
    def is_empty(self) -> bool:
        """Tell whether it is a file of nothing, or of blanks alone."""
        return self.path.is_file() and not self._read(LONGEST_SETTINGS_BYTES).removeprefix(BOM_UTF8).strip()

    @cached_property
    def text(self) -> str:
        """The beginning of a log, or all of a shorter file; what is no UTF-8 is replaced."""
        return self._read(LONGEST_LOG_HEAD_BYTES).decode("utf-8", errors="replace")

    def whole_text(self, most: int = LONGEST_SETTINGS_BYTES) -> str:
        """All of a file that is parsed as a whole; raises UnreadableSettingsError if that is too much, or no UTF-8."""
        size = self.path.stat().st_size
        if size > most:
            raise UnreadableSettingsError(self.shown, say("settings_fault.too_long", size=size, most=most))
        try:
            return self._read(most).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UnreadableSettingsError(self.shown, say("settings_fault.no_text", error=error)) from error

    def place(self, line: int) -> str:
        """How a line of it is named."""
        return f"{self.shown}:{line}"

    def _read(self, most: int) -> bytes:
        try:
            with self.path.open("rb") as stream:
                return stream.read(most)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnreadableSettingsError(self.shown, say("settings_fault.no_file", error=reason)) from error
