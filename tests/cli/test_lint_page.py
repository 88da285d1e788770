"""The commands of docs/lint.md print what the page quotes."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")


@pytest.mark.frameworks
def test_the_page_quotes_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / block.split("\n", 1)[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    (console,) = re.findall(r"```console\n\$ (.*?)```", PAGE, re.DOTALL)
    command, *quoted = console.splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = [" ".join(line.split()) for line in "".join(capsys.readouterr()).splitlines()]
    assert [line for line in quoted if " ".join(line.split()) not in printed] == []


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known


def test_the_contributing_page_shows_every_word_of_the_vocabulary() -> None:
    from align.rules.pitfalls import FORMS, JUDGES

    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").split("## A pitfall")[1].split("\n## ")[0]
    assert [name for name in (*FORMS, *JUDGES) if f"`{name}`" not in page] == []
