"""What typer says, and which language is asked for: in Chinese as in English, with the same exit codes."""

from __future__ import annotations

import os
import re
import string
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from typer import rich_utils

from align.cli.command_tree import of_typer
from align.cli.given import GROUPS
from align.cli.main import main
from align.words.catalogue import phrases, speak

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHINESE = re.compile("[\u4e00-\u9fff]")
COMMANDS = " ".join(GROUPS.values()).split()
HEADINGS = (
    "ARGUMENTS_PANEL_TITLE", "OPTIONS_PANEL_TITLE", "COMMANDS_PANEL_TITLE", "ERRORS_PANEL_TITLE", "RICH_HELP",
    "DEFAULT_STRING", "ENVVAR_STRING", "REQUIRED_LONG_STRING", "DEPRECATED_STRING", "ABORTED_TEXT",
)  # fmt: skip


@pytest.fixture
def _chinese() -> Iterator[None]:
    before = speak("zh")
    yield
    speak(before)


def test_each_heading_of_typer_is_known() -> None:
    assert {getattr(rich_utils, name) for name in HEADINGS} <= phrases("zh", "typer").keys()


def test_each_text_of_typer_names_what_its_twin_names() -> None:
    for english, chinese in phrases("zh", "typer").items():
        names = [{name for _, name, *_ in string.Formatter().parse(text) if name} for text in (english, chinese)]
        assert names[1] <= names[0], english
        assert names[0] - names[1] <= {"kind", "message"}, english  # said by the sentence itself


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("loss", "缺少参数 'reference'"),
        ("loss a b c", "多余的参数：c"),
        ("loss a b --last-step x", "'--last-step' 的值无效：'x' 不是整数"),
        ("convert a b --target keras", "'--target' 的值无效：'keras' 不是以下之一：'nn', 'mint', 'torch'"),
        ("loss a --json=1", "选项 '--json' 后不能有值"),
        ("loss a --last-step", "选项 '--last-step' 后缺少值"),
        ("inspect a --nope", "没有选项 --nope"),
        ("inspect a --jsn", "没有选项 --jsn（相近的选项：--"),
        ("los", "没有命令 'los'，是否想写 'loss'？"),
        ("nothing-of-the-kind", "没有命令 'nothing-of-the-kind'"),
    ],
)
def test_an_error_of_a_line_is_told_in_chinese(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "--lang", "zh"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in re.sub(r"\s*│\n│ ", "", told.err)
    assert "错误" in told.err
    assert main(line.split()) == 2
    assert not CHINESE.search(capsys.readouterr().err)


@pytest.mark.usefixtures("_chinese")
def test_an_error_within_an_error_is_told_too_and_an_unknown_one_stays() -> None:
    assert of_typer("Invalid value for '--seed': 'x' is not a valid int.") == "'--seed' 的值无效：'x' 不是整数"
    assert of_typer("Missing option '--to'. Choose from: a, b") == "缺少选项 '--to'：Choose from: a, b"
    assert of_typer("what no version has said yet") == "what no version has said yet"


@pytest.mark.parametrize("width", ["80", "100"])
def test_a_help_in_chinese_has_its_headings_keeps_to_the_width_and_cuts_nothing(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", int(width))
    for command in ("", *COMMANDS):
        assert main([*filter(None, [command]), "--help", "--lang", "zh"]) == 0
        shown = capsys.readouterr().out
        assert "用法：" in shown
        assert "选项" in shown
        assert not re.search("Usage|Options|Arguments|Show this|required|default:", shown), command
        assert max(map(cell_len, shown.splitlines())) <= int(width)
        described = [line for line in shown.splitlines() if CHINESE.search(line)]
        assert not [line for line in described if "…" in line.partition("  ")[2].replace("--…", "")], command


def test_a_help_in_english_is_as_it_was_after_one_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for language in ("en", "zh", "en"):
        main(["loss", "--help", "--lang", language])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[2] != shown[1]
    assert "Options" in shown[0]
    assert not CHINESE.search(shown[0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--lang", "--lang names no language"),
        ("--lang=", "--lang names no language"),
        ("--lang --all", "--lang names no language"),
        ("--lang fr", "--lang fr is not known"),
        ("--lang zh --lang=en", "--lang takes one value, but 2 were given: zh, en"),
    ],
)
def test_a_language_that_cannot_be_taken_is_an_error(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "a.npz", *options.split()]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == "" or "--json" in options  # a program is told in a document


def test_the_same_language_twice_is_that_language(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "nothing.npz", "--lang", "zh", "--lang=zh"]) == 2
    assert "找不到权重文件" in capsys.readouterr().err


# Code pages of Windows and others: those that have Chinese letters, and those that have none.
ENCODINGS = {"utf-8": True, "cp936": True, "cp1252": False, "ascii": False}
LINES = """
import os, sys
from align.cli.main import main, open_streams
open_streams()
for language in ("en", "zh"):
    os.environ["ALIGN_LANG"] = language
    print("##", flush=True)
    lines = ("--help", "inspect --help", "inspect", "plugins", "inspect nothing --lang", "loss a.log b.log")
    codes = [main(line.split()) for line in lines]
    if codes != [0, 0, 2, 0, 2, 1]:
        sys.exit(str(codes))
"""


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_terminal_of_any_encoding_is_told_what_it_can_show(encoding: str, tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    variables |= {"PYTHONIOENCODING": encoding, "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    for name, slope in (("a.log", 0.0), ("b.log", 0.5)):
        lines = (f"step {step} loss {2 / (step + 1) + slope * step / 100:.6f}\n" for step in range(100))
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", LINES],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env=variables,
        check=False,
    )
    told = run.stdout.decode(encoding)
    assert run.returncode == 0, told
    assert "Traceback" not in told
    _, english, chinese = told.split("##")
    assert not CHINESE.search(english)
    assert (CHINESE.search(chinese) is not None) is ENCODINGS[encoding]
    assert not re.search("[\u4e00-\u9fff]\\?|\\?[\u4e00-\u9fff]", chinese)
