"""The files that a configuration is made from: each read once a way, and never in a circle.

They are named relative to it, or stand in an installed package, which is found and not imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_source import SettingsSource
from align.hyperparameters.thresholds import MOST_BASES
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.hyperparameters.reader_parts.nested_settings import Tree

IN_PACKAGE = "::"
CONFIGS_OF_PACKAGE = (".mim", "configs")  # where mmengine's packages keep them
BASES = ("_base_", "__BASE__", "_BASE_")


class BaseFiles:
    """The files that are being read, outermost first, and how many were read in all."""

    def __init__(self, source: SettingsSource) -> None:
        self._open: list[Path] = [source.path.resolve()]
        self._read = 0

    def within(self, name: str, named_by: SettingsSource, read: Callable[[SettingsSource], Tree]) -> Tree:
        """Read a base that a file names; raises UnreadableSettingsError for one that is missing, or is being read."""
        path = _package_file(name, named_by) if IN_PACKAGE in name else named_by.path.parent / name
        self._read += 1
        if path.resolve() in self._open or self._read > MOST_BASES:
            raise UnreadableSettingsError(named_by.shown, say("settings_fault.circle", base=name))
        if not path.is_file():
            raise UnreadableSettingsError(
                named_by.shown, say("settings_fault.no_base", base=name), say("settings_fault.base_hint")
            )
        self._open.append(path.resolve())
        try:
            return read(SettingsSource(path))
        finally:
            self._open.pop()


def package_folder(package: str, base: str, named_by: SettingsSource) -> Path:
    """Where a package is installed; raises UnreadableSettingsError where it is not, `base` being what is looked for."""
    spec = find_spec(package) if package.isidentifier() and package != "__main__" else None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        fault = say("settings_fault.no_package", base=base, package=package)
        raise UnreadableSettingsError(named_by.shown, fault, say("settings_fault.package_hint", package=package))
    return Path(places[0])


def _package_file(name: str, named_by: SettingsSource) -> Path:
    """The file that `package::folder/config.py` stands for, with mmengine's rule; the ending may be left out."""
    package, _, inside = name.partition(IN_PACKAGE)
    path = package_folder(package, name, named_by).joinpath(*CONFIGS_OF_PACKAGE, inside)
    return path if path.suffix else path.with_suffix(".py")
