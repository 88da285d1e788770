"""The user's code runs in the process of align: what it does to that, and how it may end it, stays its own affair."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from align.errors import UserCodeError
from align.models.user_code import kept_process, load_function, run_user_code

CODE = {
    "parses.py": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=3)
arguments = parser.parse_args()
def build(): return arguments.width
""",
    "needs.py": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
arguments = parser.parse_args()
def build(): return arguments.width
""",
    "moves.py": """
import os
from pathlib import Path
os.chdir(Path(__file__).parent / "data")
def build(): return Path("weights.txt").read_text()
""",
    "stays.py": "from pathlib import Path\ndef build(): return Path('data/weights.txt').read_text()\n",
    "dies.py": "import os\nos._exit(0)\ndef build(): return 1\n",
    "later.py": """
import os
from os import _exit
def build():
    try:
        os._exit(0)
    except Exception:
        return "swallowed"
def by_name(): _exit(1)
def parent():
    child = os.fork()
    if not child:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
""",
    "leaves.py": "import sys\nsys.exit('no such data')\ndef build(): return 1\n",
    "clean.py": "import sys\ndef build(): return len(sys.argv)\n",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["align", "forward", "--width", "9"])
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights.txt").write_text("weights", encoding="utf-8")
    for name, text in CODE.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built(name: str, function: str = "build") -> Any:
    return load_function(f"{name}.py:{function}")()


def test_the_command_line_of_align_is_not_that_of_the_users_code(here: Path) -> None:
    assert built("parses") == 3
    assert built("clean") == 1
    assert sys.argv == ["align", "forward", "--width", "9"]


def test_a_parser_that_ends_the_program_is_told_as_such(here: Path) -> None:
    with pytest.raises(UserCodeError, match=r"building needs\.py:build failed: .*argparse.*sys\.exit\(2\)") as caught:
        built("needs")
    assert caught.value.exit_code == 2
    assert "__main__" in caught.value.hint
    assert "has no command line" in caught.value.hint


def test_a_folder_that_an_import_goes_to_is_left_again_and_its_own_functions_find_their_files(here: Path) -> None:
    assert built("moves") == "weights"
    assert Path.cwd() == here
    assert built("stays") == "weights"  # the other side's relative paths start where align was started
    assert built("moves") == "weights"  # a file is run once, and goes nowhere the second time


@pytest.mark.parametrize(("name", "function"), [("dies", "build"), ("later", "build"), ("later", "by_name")])
def test_code_that_ends_the_process_is_an_error_and_never_an_exit_code(here: Path, name: str, function: str) -> None:
    before = os._exit
    with pytest.raises(UserCodeError, match=r"failed: it ends the program: os\._exit\([01]\)") as caught:
        built(name, function)
    assert "`if __name__ == '__main__':`" in caught.value.hint
    assert os._exit is before


def test_a_process_that_the_code_starts_ends_as_it_always_does(here: Path) -> None:
    assert built("later", "parent") == 7


def test_sys_exit_says_what_was_written(here: Path) -> None:
    with pytest.raises(UserCodeError, match=r"failed: it ends the program: sys\.exit\('no such data'\)"):
        built("leaves")


def test_what_was_done_before_an_error_is_undone_too(here: Path) -> None:
    def code() -> None:
        os.chdir("data")
        sys.argv.append("--more")
        raise ValueError("no")

    with pytest.raises(UserCodeError):
        run_user_code(code, lambda error: UserCodeError("building it", error))
    assert Path.cwd() == here
    assert sys.argv == ["align", "forward", "--width", "9"]


def test_one_inside_another_leaves_the_outer_one_in_place(here: Path) -> None:
    with kept_process():
        with kept_process("data"):
            assert Path.cwd().name == "data"
        with pytest.raises(SystemExit):
            os._exit(3)
