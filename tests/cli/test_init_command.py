"""`align init` as a user types it: what is written, what is left out, what is refused, what a terminal asks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

import align
from align.cli.main import main
from align.runs.project_file import read_project

CHECKOUT = Path(align.__file__).parents[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The example port, as the current folder."""
    monkeypatch.chdir(copytree(CHECKOUT / "examples" / "first_port", tmp_path / "port"))
    return tmp_path / "port"


def test_it_prints_what_it_found_and_what_to_type_next(folder, capsys):
    assert main(["init"]) == 0
    told = capsys.readouterr().out
    assert "candidate training    port.py:training\n" in told
    assert told.endswith("Written: align.toml\nNext: align run\n")
    assert read_project(folder / "align.toml").reference.model == f"{folder}/original.py:model"


def test_what_is_left_out_is_said_with_its_option_which_gives_it(folder, capsys):
    for name in ("one.ckpt", "two.ckpt"):
        (folder / name).touch()
    assert main(["init"]) == 0
    said = "left out: [candidate] checkpoint may be one.ckpt or two.ckpt; give one with --candidate-checkpoint"
    assert said in capsys.readouterr().out
    assert main(["init", "--overwrite", "--candidate-checkpoint", "two.ckpt"]) == 0
    assert "left out" not in capsys.readouterr().out
    assert read_project(folder / "align.toml").candidate.checkpoint == folder / "two.ckpt"


def test_a_file_that_is_there_is_not_replaced(folder, capsys):
    (folder / "align.toml").write_text("# mine")
    assert main(["init"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (folder / "align.toml").read_text() == "# mine"


@pytest.mark.parametrize(
    ("given", "said"),
    [([], "no reference model is found here"), (["--reference", "package.module:model"], "no candidate model")],
)
def test_an_empty_folder_is_refused_with_what_to_give(given, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *given]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "file.py:function" in told
    assert not (tmp_path / "align.toml").exists()


def test_two_models_are_listed_where_nobody_can_be_asked(folder, capsys):
    (folder / "second.py").write_text((folder / "port.py").read_text())
    assert main(["init"]) == 2
    told = capsys.readouterr()
    assert "port.py:model, second.py:model" in told.err
    assert "Hint: give one with --candidate" in told.err
    assert main(["init", "--candidate", "second.py:model"]) == 0


def test_a_terminal_asks_and_takes_a_number(folder):
    (folder / "second.py").write_text((folder / "port.py").read_text())
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "align.cli.main", "init"]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.write(ours, b"7\n2\n2\n")  # a number that there is not; the model, then the training
        assert process.wait(timeout=60) == 0
    os.close(ours)
    os.close(theirs)
    project = read_project(folder / "align.toml")
    assert project.candidate.model == f"{folder}/second.py:model"
    assert project.candidate.training == f"{folder}/second.py:training"
