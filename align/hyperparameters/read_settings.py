"""The settings of one side: a file, several with commas between, of which the last counts, or a folder of a capture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.registry import check_packages
from align.errors import MissingFileError, UnreadableSettingsError, UsageError
from align.hyperparameters.settings_format import settings_formats
from align.hyperparameters.settings_source import SettingsSource
from align.hyperparameters.thresholds import DEEPEST_SETTINGS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.hyperparameters.settings_format import Setting, SettingsFormat


@dataclass(frozen=True, slots=True)
class SettingsRead:
    """All settings of a side in the order in which they count, and the forms that they were read in."""

    label: str
    formats: tuple[str, ...]
    settings: tuple[Setting, ...]


def read_settings_of(side: str | Path) -> SettingsRead:
    """Read a side; raises MissingFileError, or UnreadableSettingsError for a file of it that holds no settings."""
    settings: list[Setting] = []
    formats: dict[str, None] = {}
    for path in settings_files(side):
        source = SettingsSource(path)
        readers = _formats_of(source)
        found = [setting for one in readers for setting in _read(one, source)]
        if not found:
            tried = "; ".join(one.summary for one in readers)
            raise UnreadableSettingsError(source.shown, say("settings_fault.nothing", tried=tried))
        formats |= dict.fromkeys(one.name for one in readers)
        settings.extend(found)
    return SettingsRead(str(side), tuple(formats), tuple(_with_long_names(settings)))


def _with_long_names(settings: list[Setting]) -> Iterator[Setting]:
    """The settings, those that are given by another name of an option under the option's own."""
    long = {other: one.name for one in settings for other in one.also}
    yield from (replace(one, name=long.get(one.name.replace("-", "_"), one.name)) for one in settings)


def settings_files(side: str | Path) -> list[Path]:
    """The files that a side names; commas stand between several. Raises MissingFileError, or UsageError for no name."""
    names = [str(side)] if str(side) and Path(side).exists() else str(side).split(",")
    if not all(name.strip() for name in names):
        raise UsageError.of("settings_usage.no_name", side=str(side))
    found = [Path(name.strip()) for name in names]
    for path in found:
        if not path.exists():
            raise MissingFileError(path, "settings file")
    return found


def _formats_of(source: SettingsSource) -> list[SettingsFormat]:
    """The readers that know a source; those of the last resort only where no other does."""
    if source.is_empty:
        raise UnreadableSettingsError(source.shown, say("settings_fault.empty"), say("settings_fault.empty_hint"))
    known = [one for one in settings_formats().values() if one.recognizes(source)]
    chosen = [one for one in known if one.certain] or known
    if not chosen:
        fault = "settings_fault.no_capture" if source.path.is_dir() else "settings_fault.unknown"
        raise UnreadableSettingsError(source.shown, say(fault))
    return chosen


def _read(reader: SettingsFormat, source: SettingsSource) -> list[Setting]:
    check_packages(reader)
    try:
        return list(reader.read(source))
    except RecursionError as error:
        raise UnreadableSettingsError(source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS)) from error
