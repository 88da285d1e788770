"""The exit code says what was found, whatever became of the standard streams: closed, left by their reader, full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

ALIGN = f"{sys.executable} -W ignore -m align.cli.main"
CLOSED = {"output": ">&-", "errors": "2>&-", "all": "<&- >&- 2>&-", "errors full": "2>/dev/full", "reader": "| true"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, bias in (("a", 0), ("b", 0), ("c", 1)):
        np.savez(tmp_path / f"{name}.npz", **{"fc.weight": np.ones((2, 3)), "fc.bias": np.full(2, bias)})
    return tmp_path


def code_of(folder: Path, words: str, closed: str) -> tuple[int, str]:
    """Run a command in a shell that leaves its code in a file; return the code and what came on the open streams."""
    line = f"{{ {ALIGN} {words} {closed.partition('|')[0]}; echo $? >code; }} {closed[closed.find('|') :]}"
    ended = subprocess.run(
        line if "|" in closed else line[:-1], shell=True, cwd=folder, capture_output=True, check=False
    )
    return int((folder / "code").read_text()), (ended.stdout + ended.stderr).decode()


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED.keys())
def test_the_code_is_that_of_the_verdict(folder: Path, closed: str) -> None:
    commands = {"diff a.npz b.npz": 0, "diff a.npz c.npz --json": 1, "diff a.npz none.npz": 2}
    found = {words: code_of(folder, words, closed) for words in commands}
    assert {words: code for words, (code, _) in found.items()} == commands
    assert "internal error" not in "".join(said for _, said in found.values())


def test_help_into_a_closed_pipe_is_no_failure(folder: Path) -> None:
    assert code_of(folder, "loss --help", "| true")[0] == 0
    assert code_of(folder, "--version", ">&-")[0] == 0


def test_a_result_that_a_disk_does_not_take_is_an_error(folder: Path) -> None:
    code, said = code_of(folder, "diff a.npz b.npz", ">/dev/full")
    assert code == 2
    message, hint = said.splitlines()
    assert message == f"align: standard output: {os.strerror(errno.ENOSPC)}"
    assert hint.startswith("Hint: ")


def test_a_file_that_is_written_never_takes_the_place_of_a_closed_stream(folder: Path) -> None:
    code, _ = code_of(folder, "convert a.npz out.npz --target torch", "<&- >&- 2>&-")
    assert code == 0
    with np.load(folder / "out.npz") as written:
        assert sorted(written) == ["fc.bias", "fc.weight"]
    assert code_of(folder, "diff a.npz out.npz", "")[0] == 0


def test_code_of_a_side_cannot_close_the_streams(folder: Path) -> None:
    (folder / "net.py").write_text(
        "import os, sys\nimport numpy as np\nfrom align.models.frameworks.arrays import ArrayLayer, ArrayModel\n"
        "sys.stdout.close(), sys.stderr.close(), os.close(2)\n"
        "def net():\n    weight = np.eye(3, dtype=np.float32)\n"
        '    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, w: x @ w.T, {"w": weight}),))\n',
        encoding="utf-8",
    )
    code, said = code_of(folder, "map net.py:net net.py:net", "")
    assert (code, "internal error" in said) == (0, False)
