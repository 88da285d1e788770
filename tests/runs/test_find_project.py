"""The project file is found from any folder below it, also as a table of pyproject.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.cli.given import language_of_project
from align.core.about import find_project
from align.errors import ProjectFileError
from align.runs.read_settings import find_settings

if TYPE_CHECKING:
    from pathlib import Path

SIDES = '[{prefix}reference]\nmodel = "port.py:torch_model"\n[{prefix}candidate]\nmodel = "port.py:port_model"\n'


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder two below that of the project, which is the current one."""
    folder = tmp_path / "notebooks" / "today"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_it_is_found_above_and_its_results_go_beside_it(tmp_path: Path, below: Path) -> None:
    (tmp_path / "align.toml").write_text(SIDES.format(prefix=""), encoding="utf-8")
    settings = find_settings(None)
    assert settings.file == tmp_path / "align.toml"
    assert settings.reference.model == f"{tmp_path}/port.py:torch_model"
    assert settings.run_folder == tmp_path / "align-run"
    (below / "align.toml").write_text(SIDES.format(prefix=""), encoding="utf-8")
    assert str(find_settings(None).file) == "align.toml"


def test_a_table_of_pyproject_is_a_project_and_other_pyprojects_are_none(tmp_path: Path, below: Path) -> None:
    (below / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n", encoding="utf-8")
    text = '[project]\nname = "port"\n[tool.align]\nlanguage = "zh"\n' + SIDES.format(prefix="tool.align.")
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    settings = find_settings(None)
    assert settings.candidate.model == f"{tmp_path}/port.py:port_model"
    assert language_of_project([]) == "zh"


def test_a_wrong_key_of_the_table_is_told_as_one_of_a_project_file(tmp_path: Path, below: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.align.forwards]\ninputs = 'a.npz'\n", encoding="utf-8")
    with pytest.raises(ProjectFileError, match="forwards"):
        find_settings(None)


def test_the_search_ends_at_the_folder_of_a_repository(tmp_path: Path, below: Path) -> None:
    (tmp_path / "align.toml").write_text(SIDES.format(prefix=""), encoding="utf-8")
    (below.parent / ".git").mkdir()
    assert find_project() is None
