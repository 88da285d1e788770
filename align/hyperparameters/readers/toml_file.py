"""TOML: values as Python's own reader gives them; the line of a key is looked for under its table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from align.core.documents import DocumentFault, parse_toml
from align.errors import UnreadableSettingsError
from align.hyperparameters.reader_parts.nested_settings import Leaf, Tree, flat_settings
from align.hyperparameters.thresholds import DEEPEST_SETTINGS
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Setting
    from align.hyperparameters.settings_source import SettingsSource

_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


class TomlSettings:
    """TOML files."""

    name = "toml"
    summary = "TOML configurations"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its name."""
        return source.suffix == ".toml"

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read all settings."""
        text = source.whole_text()
        try:
            document = parse_toml(text)
            lines = _lines(text)
            return flat_settings(_tree(document, (), lines, source), source.shown)
        except DocumentFault as fault:
            raise UnreadableSettingsError(source.shown, str(fault)) from fault
        except RecursionError as error:
            raise UnreadableSettingsError(
                source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS)
            ) from error


def _lines(text: str) -> dict[str, int]:
    """The line of each key that stands at the beginning of one, by its full name."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = header[1].replace('"', "") + "."
        elif key := _KEY.match(line):
            found.setdefault(table + key[1].replace('"', ""), number)
    return found


def _tree(value: object, path: tuple[str, ...], lines: dict[str, int], source: SettingsSource) -> Tree:
    if isinstance(value, dict):
        return {name: _tree(one, (*path, name), lines, source) for name, one in value.items()}
    if isinstance(value, list):
        return [_tree(one, path, lines, source) for one in value]
    known = value if isinstance(value, (str, int, float, bool)) else str(value)
    return Leaf(known, source.place(lines.get(".".join(path), 1)))


PLUGIN = TomlSettings()
