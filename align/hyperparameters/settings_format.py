"""What a plugin for a form of settings offers, and all of them; what is read is a list of named values with places."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast, runtime_checkable

from align.core.load_code import check_packages, plugins
from align.core.protocols import Plugin
from align.errors import MissingFileError, UnreadableSettingsError, UsageError
from align.hyperparameters.thresholds import DEEPEST_SETTINGS, LONGEST_LOG_HEAD_BYTES, LONGEST_SETTINGS_BYTES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterable


Scalar: TypeAlias = "str | int | float | bool | None"
Value: TypeAlias = "Scalar | tuple[Scalar, ...]"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is given: its full name with dots between parts, its value, and `file:line`.

    `option` tells the default of an option that the program itself defines, `computed` what only the program knows,
    `also` what else an option is called, such as `b` of `-b, --batch-size`.
    """

    name: str
    value: Value
    place: str
    option: bool = False
    computed: bool = False
    also: tuple[str, ...] = ()


@runtime_checkable
class SettingsFormat(Plugin, Protocol):
    """Reads one form of settings."""

    @property
    def certain(self) -> bool:
        """False for a form that is taken only where no other reader knows the file."""
        ...

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by the name or the content whether this plugin reads the source."""
        ...

    def read(self, source: SettingsSource) -> Iterable[Setting]:
        """Read all settings, the ones that count last; raises UnreadableSettingsError for damage."""
        ...


class SettingsPlugin:
    """What most plugins share: no packages, and files that are known by what their names end with."""

    requires: tuple[str, ...] = ()
    certain = True
    suffixes: tuple[str, ...] = ()

    def recognizes(self, source: SettingsSource) -> bool:
        """Tell by its name."""
        return source.suffix in self.suffixes


def settings_formats() -> dict[str, SettingsFormat]:
    """All forms of settings by name."""
    return {name: cast("SettingsFormat", plugin) for name, plugin in plugins("settings").items()}


# The file or folder of one side; its text is read once, and never more than a reader may take.


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


# The settings of one side: a file, several with commas between, of which the last counts, or a folder of a capture.


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
        of_file = [setting for reader in readers for setting in _read(reader, source)]
        if not of_file:
            tried = "; ".join(reader.summary for reader in readers)
            raise UnreadableSettingsError(source.shown, say("settings_fault.nothing", tried=tried))
        formats |= dict.fromkeys(reader.name for reader in readers)
        settings.extend(of_file)
    # What is given by another name of an option stands under the option's own.
    long = {other: setting.name for setting in settings for other in setting.also}
    named = (replace(setting, name=long.get(setting.name.replace("-", "_"), setting.name)) for setting in settings)
    return SettingsRead(str(side), tuple(formats), tuple(named))


def settings_files(side: str | Path) -> list[Path]:
    """The files that a side names; commas stand between several. Raises MissingFileError, or UsageError for no name."""
    names = [str(side)] if str(side) and Path(side).exists() else str(side).split(",")
    if not all(name.strip() for name in names):
        raise UsageError.of("settings_usage.no_name", side=str(side))
    paths = [Path(name.strip()) for name in names]
    for path in paths:
        if not path.exists():
            raise MissingFileError(path, "settings file")
    return paths


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
