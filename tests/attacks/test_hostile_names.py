"""Names and values that write to the terminal, or fill it: what files hold is shown, and steers nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import align
from align.cli.main import main
from align.words.catalogue import LONGEST_SHOWN_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable

CLEAR, TITLE, C1, BIDI = "\x1b[2J", "\x1b]0;owned\x07", "\x9b2J", "\u202e"
STEERING = f"x{CLEAR}{TITLE}{C1}{BIDI}\r\x08"
HUGE = "n" * 200_000
PAGES = 100_000  # characters of a whole output: some twenty pages


def write_log(path: Path, slope: float) -> None:
    rows = ({"step": n, "loss": 2 - slope * n, STEERING: n / 7, HUGE: 1.0 * slope} for n in range(12))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_settings(path: Path, rate: float) -> None:
    path.write_text(json.dumps({"lr": rate, STEERING: f"{rate}{STEERING}", HUGE: f"{rate}{HUGE}"}), encoding="utf-8")


def write_arrays(path: Path, value: float) -> None:
    np.savez(path, **{"fc.weight": np.full((2, 2), value), "t": np.array(["a"])})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate("ab", 1):
        write_log(Path(f"{name}.jsonl"), number / 100)
        write_settings(Path(f"{name}.json"), number / 1000)
        write_arrays(Path(f"{name}.npz"), number)
    Path("bad.toml").write_text(f'[reference]\n"{HUGE}" = 1\n"x\\u001b[2J" = 2\n', encoding="utf-8")
    return tmp_path


def steering_in(text: str) -> Iterable[str]:
    return {char for char in text if not char.isprintable() and char != "\n"}


COMMANDS = {
    "loss a.jsonl": 0,
    "loss a.jsonl b.jsonl": 1,
    "loss a.jsonl b.jsonl --metric nothing": 2,
    "hyperparameters a.json b.json": 1,
    "forward --project bad.toml": 2,
    f"inspect no{STEERING.replace(' ', '')}.npz": 2,
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: ascii(command)[:30])
@pytest.mark.usefixtures("files")
def test_nothing_that_a_file_holds_steers_the_terminal_or_fills_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(command.split(" "))
    said = "".join(capsys.readouterr())
    assert code == COMMANDS[command]
    assert steering_in(said) == set()
    assert len(said) < PAGES
    assert max(map(len, said.splitlines())) <= LONGEST_SHOWN_LINE + len(" ...")


@pytest.mark.usefixtures("files")
def test_the_name_is_shown_as_it_is_written_in_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loss", "a.jsonl"]) == 0
    assert r"x\x1b[2J\x1b]0;owned\x07\x9b2J\u202e" in capsys.readouterr().out


@pytest.mark.usefixtures("files")
def test_a_document_steers_nothing_and_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hyperparameters", "a.json", "b.json", "--json"]) == 1
    said = capsys.readouterr().out
    assert steering_in(said) == set()
    assert any(STEERING in text for text in _strings(json.loads(said)))


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)


def test_nothing_is_printed_but_through_one_door() -> None:
    room = Path(align.__file__).parent
    printing = re.compile(r"\b(typer|click)\.s?echo\(|\bstream\.write\(text\)|sys\.stdout\.write\(")
    found = [str(p.relative_to(room)) for p in room.rglob("*.py") if printing.search(p.read_text(encoding="utf-8"))]
    assert found == ["cli/given.py"]


@pytest.mark.usefixtures("files")
def test_half_a_letter_in_a_name_is_written_and_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    name = "half \ud800"
    for path in ("a.json", "b.json"):
        Path(path).write_text(json.dumps({"lr": 1, name: path, "other \udfff": path}), encoding="utf-8")
    assert main(["hyperparameters", "a.json", "b.json", "--json", "--run", "run"]) == 1
    printed = json.loads(capsys.readouterr().out)
    written = json.loads(Path("run", "hyperparameters.json").read_text(encoding="utf-8"))
    for document in (printed, written):
        assert name in _strings(document)


def test_names_in_other_letters_are_written_in_every_locale(files: Path) -> None:
    shutil.copy(files / "a.npz", files / "源.npz")
    line = [sys.executable, "-m", "align.cli.main"]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    commands = ["convert 源.npz 目.npz --target torch", "diff 源.npz 目.npz --run 跑 --json"]
    said = [
        subprocess.run([*line, *words.split()], cwd=files, env=environment, capture_output=True, check=False)
        for words in commands
    ]
    assert [ended.returncode for ended in said] == [0, 0], said
    for text in (said[1].stdout.decode("ascii"), (files / "跑" / "diff.json").read_text(encoding="utf-8")):
        assert json.loads(text)["candidate"] == "目.npz"
