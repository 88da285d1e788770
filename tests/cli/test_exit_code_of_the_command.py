"""The exit code is the command's, whatever code of the user's own runs before, beside and after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SIDE = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

def net(factor=1.0):
    weight = np.eye(3, dtype=np.float32) * np.float32(factor)
    return ArrayModel((ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": weight}),))
"""
AT_EXIT = "import atexit, os\natexit.register(lambda: os._exit(0))\n"
LATER = f"""
import threading
{AT_EXIT}
atexit.register(lambda: os.execl("/bin/true", "true"))
def end():
    threading.main_thread().join(60)
    os._exit(0)
threading.Thread(target=end).start()
"""


def exit_code(folder: Path, port: str) -> tuple[int, str]:
    """Compare `net` of net.py with `net` of the port in a process of its own; return its code and what it said."""
    (folder / "net.py").write_text(SIDE, encoding="utf-8")
    (folder / "port.py").write_text(port, encoding="utf-8")
    words = ["forward", "net.py:net", "port.py:net", "--input", "x=float32[2,3]", "--no-power"]
    ended = subprocess.run(
        [sys.executable, "-m", "align.cli.main", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_what_outlives_the_comparison_cannot_change_its_code(tmp_path: Path) -> None:
    code, said = exit_code(tmp_path, SIDE.replace("factor=1.0", "factor=1.1") + LATER)
    assert code == 1, said
    assert "NOT ALIGNED" in said


def test_an_exit_handler_that_ends_nothing_still_runs(tmp_path: Path) -> None:
    code, said = exit_code(tmp_path, SIDE + "import atexit\natexit.register(print, 'handled')\n" + AT_EXIT)
    assert code == 0, said
    assert said.count("handled") == 1


def test_another_program_in_the_place_of_align_is_no_result(tmp_path: Path) -> None:
    code, said = exit_code(tmp_path, "import os\nos.execv('/bin/true', ['true'])\n" + SIDE)
    assert code == 2, said
    assert "it ends the program: os.execv('/bin/true', ['true'])" in said


def test_a_hook_of_the_users_code_is_not_asked_about_errors_of_align(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from align.models.user_code import load_function

    monkeypatch.chdir(tmp_path)
    before = sys.excepthook
    Path("hooked.py").write_text("import sys\nsys.excepthook = print\ndef build(): return 1\n", encoding="utf-8")
    assert load_function("hooked.py:build")() == 1
    assert sys.excepthook is before


def test_a_side_that_ends_the_program_where_a_reader_calls_it_is_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from align.cli.main import main

    monkeypatch.chdir(tmp_path)
    lazy = (
        "from align.models.frameworks.arrays import ArrayModel\n"
        "class Lazy:\n    def __iter__(self): raise SystemExit(0)\n"
        "def net(): return ArrayModel(Lazy())\n"
    )
    Path("lazy.py").write_text(lazy, encoding="utf-8")
    assert main(["forward", "lazy.py:net", "lazy.py:net", "--input", "x=float32[2,3]"]) == 2
    assert "it ends the program: sys.exit(0)" in capsys.readouterr().err


def test_a_process_that_the_code_forks_may_become_another_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from align.models.user_code import load_function

    monkeypatch.chdir(tmp_path)
    forks = (
        "import os\n"
        "def build():\n"
        "    child = os.fork()\n"
        "    if not child:\n        os.execlp('false', 'false')\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
    )
    Path("forks.py").write_text(forks, encoding="utf-8")
    before = os.execve
    assert load_function("forks.py:build")() == 1
    assert os.execve is before


def test_a_reader_that_goes_away_changes_no_code(tmp_path: Path) -> None:
    for log, loss in (("a.csv", 1.0), ("b.csv", 2.0)):
        (tmp_path / log).write_text(f"step,loss\n1,{loss}\n2,{loss}\n", encoding="utf-8")
    words = [sys.executable, "-m", "align.cli.main", "loss", "a.csv", "b.csv"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        said = running.stderr.read()
    assert (running.returncode, said) == (1, "")
