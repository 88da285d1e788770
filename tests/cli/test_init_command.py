"""`align init` as a user types it: what is written, what is left out, what is refused, what a terminal asks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import numpy as np
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


def test_what_is_written_beside_the_file_is_said_with_what_is_to_be_filled_in(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = "class Net(nn.{}):\n    def __init__(self, width):\n        super().__init__()\n        self.width = width\n"
    (tmp_path / "original.py").write_text("from torch import nn\nCFG = dict(width=3)\n" + net.format("Module"))
    (tmp_path / "port.py").write_text("from mindspore import nn\n" + net.format("Cell"))
    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "reference model       sides.py:reference",
        "candidate model       sides.py:candidate",
        'sides.py:reference was written: Net(width=config["width"]), made from original.py:3 with CFG of original.py',
        "sides.py:candidate was written, to be filled in at line 14: width of Net(width=...), of port.py:2",
        "Written: align.toml, sides.py",
        "Next: fill in sides.py:14, then: align run",
    ]
    assert "raise NotImplementedError(" in (tmp_path / "sides.py").read_text().splitlines()[13]


def test_a_checkpoint_that_is_left_out_is_said(folder, capsys):
    main(["convert", str(_saved(folder / "net.safetensors")), "net.ckpt", "--target", "nn", "--layer", "*=linear"])
    (folder / "net.safetensors").unlink()
    capsys.readouterr()
    assert main(["init"]) == 0
    told = capsys.readouterr().out
    assert "left out: net.ckpt does not have the names of the port's parameters" in told
    assert "candidate checkpoint" not in told


def _saved(path):
    from safetensors.numpy import save_file

    save_file({"alien.weight": np.ones((2, 3), np.float32)}, path)
    return path


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
        assert process.wait(timeout=600) == 0
    os.close(ours)
    os.close(theirs)
    project = read_project(folder / "align.toml")
    assert project.candidate.model == f"{folder}/second.py:model"
    assert project.candidate.training == f"{folder}/second.py:training"
