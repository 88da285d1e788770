"""Settings written into files, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.hyperparameters.compare_hyperparameters import compare_hyperparameters
from align.hyperparameters.settings_format import read_settings_of

if TYPE_CHECKING:
    from pathlib import Path


class Settings:
    """Files of settings in a folder of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def read(self, name: str, text: str) -> dict[str, Any]:
        """The settings of a file by name, as they count."""
        return {one.name: one.value for one in read_settings_of(self.file(name, text)).settings}

    def places(self, name: str, text: str) -> dict[str, str]:
        found = read_settings_of(self.file(name, text)).settings
        return {one.name: one.place.removeprefix(f"{self.folder}/") for one in found}

    def compare(self, first: tuple[str, str], second: tuple[str, str]) -> Any:
        return compare_hyperparameters(self.file(f"a/{first[0]}", first[1]), self.file(f"b/{second[0]}", second[1]))

    def differing(self, first: tuple[str, str], second: tuple[str, str]) -> dict[str, tuple[str, str]]:
        """What differs: both values by parameter."""
        found = self.compare(first, second).differences
        return {one.parameter: (one.reference.value, one.candidate.value) for one in found}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)
