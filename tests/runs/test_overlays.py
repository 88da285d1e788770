"""Copies of packages that a project file names: they come first in every command, and in what the ladder types."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main
from align.errors import UsageError
from align.runs.climb_ladder import Performed, climb_ladder
from align.runs.project_file import read_project
from align.runs.read_settings import find_settings

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
[reference]
log = "a.csv"
[candidate]
log = "b.csv"
overlay = "run/overlay"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two logs, with a folder of copied packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "run" / "overlay").mkdir(parents=True)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("step,loss\n1,2.0\n2,1.5\n")
    (tmp_path / "align.toml").write_text(PROJECT)
    return tmp_path


def test_the_copies_stand_first_on_the_import_path(project: Path) -> None:
    find_settings(None)
    assert sys.path[0] == str(project / "run" / "overlay")


def test_what_a_rung_types_has_them_first_too(project: Path) -> None:
    ran: list[object] = []

    def perform(call: object) -> Performed:
        ran.append(call)
        return Performed(error=UsageError("not here"))

    result = climb_ladder(read_project(project / "align.toml"), project / "run", perform)
    curve = next(rung for rung in result.rungs if rung.name == "curve")
    assert curve.commands[0].startswith("PYTHONPATH=run/overlay align loss a.csv b.csv")
    assert ran


def test_a_folder_of_copies_that_is_gone_is_said_and_undo_does_not_need_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "run" / "overlay").rmdir()
    assert main(["run"]) == 2
    assert "the folder of copied packages is not there" in capsys.readouterr().err
    assert main(["fix", "--undo"]) == 2
    assert "keeps nothing of an earlier fix" in capsys.readouterr().err
