"""The files that a configuration is made from: named relative to it, each read once a way, and never in a circle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_source import SettingsSource
from align.hyperparameters.thresholds import MOST_BASES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from align.hyperparameters.reader_parts.nested_settings import Tree

BASES = ("_base_", "__BASE__", "_BASE_")


class BaseFiles:
    """The files that are being read, outermost first, and how many were read in all."""

    def __init__(self, source: SettingsSource) -> None:
        self._open: list[Path] = [source.path.resolve()]
        self._read = 0

    def within(self, name: str, named_by: SettingsSource, read: Callable[[SettingsSource], Tree]) -> Tree:
        """Read a base that a file names; raises UnreadableSettingsError for one that is missing, or is being read."""
        path = named_by.path.parent / name
        self._read += 1
        if path.resolve() in self._open or self._read > MOST_BASES:
            raise UnreadableSettingsError(named_by.shown, say("settings_fault.circle", base=name))
        if not path.is_file():
            raise UnreadableSettingsError(named_by.shown, say("settings_fault.no_base", base=name))
        self._open.append(path.resolve())
        try:
            return read(SettingsSource(path))
        finally:
            self._open.pop()
