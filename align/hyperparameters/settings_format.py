"""What a plugin for a form of settings offers, and all of them; what is read is a list of named values with places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast, runtime_checkable

from align.core.protocols import Plugin
from align.core.registry import plugins

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.hyperparameters.settings_source import SettingsSource

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


def settings_formats() -> dict[str, SettingsFormat]:
    """All forms of settings by name."""
    return {name: cast("SettingsFormat", plugin) for name, plugin in plugins("settings").items()}
