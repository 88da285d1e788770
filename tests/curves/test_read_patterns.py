"""Expressions for loss logs in the project file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.errors import ProjectFileError
from align.runs.project_file import Project, read_project

if TYPE_CHECKING:
    from pathlib import Path


def _read(folder: Path, text: str) -> Project:
    (folder / "align.toml").write_text(text, encoding="utf-8")
    return read_project(folder / "align.toml")


def test_one_pattern_is_of_both_sides_and_a_sides_own_comes_first(tmp_path: Path) -> None:
    assert _read(tmp_path, "").loss_patterns == ("", "")
    assert _read(tmp_path, "[loss]\npattern = 'a'\n").loss_patterns == ("a", "a")
    assert _read(tmp_path, "[loss]\npattern = 'a'\ncandidate_pattern = 'b'\n").loss_patterns == ("a", "b")
    assert _read(tmp_path, "[loss]\nreference_pattern = 'c'\n").loss_patterns == ("c", "")


def test_patterns_that_are_no_text_are_listed_together(tmp_path: Path) -> None:
    with pytest.raises(ProjectFileError) as caught:
        _read(tmp_path, "[loss]\npattern = 1\nreference_pattern = ' '\nmetric = 'loss'\n")
    assert "[loss] pattern must be text, not 1" in str(caught.value)
    assert "[loss] reference_pattern must be text, not ' '" in str(caught.value)
    assert "[loss] unknown key 'metric'; known: " in str(caught.value)
