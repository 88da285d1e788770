"""The commands of docs/capture.md print what the page quotes, and all its options are there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "capture.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def words(text: str) -> str:
    """Without the line breaks and spaces that the width of the page makes."""
    return " ".join(text.split())


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        (tmp_path / block.split("\n", 1)[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    codes = []
    for part in "".join(blocks("console")).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        codes.append(main(shlex.split(command)[1:]))
        printed = words(capsys.readouterr().out)
        for line in quoted:
            assert words(line) in printed, f"{line}\n{printed}"
    assert codes == [0, 0, 0, 1, 0, 0, 0, 1]


def test_every_option_of_the_page_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = set()
    for command in (["capture"], ["trace"], ["forward"]):
        assert main([*command, "--help"]) == 0
        known |= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert set(re.findall(r"--[a-z-]+", "".join(PAGE.split("## Example")[0]))) <= known
