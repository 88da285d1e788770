"""The command of docs/step.md prints what the page quotes, and the page names every option."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "step.md").read_text(encoding="utf-8")


@pytest.mark.frameworks
def test_the_page_quotes_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(# sides.py.*?)```", PAGE, re.DOTALL)
    (tmp_path / "sides.py").write_text(block, encoding="utf-8")
    (console,) = re.findall(r"```console\n\$ (.*?)```", PAGE, re.DOTALL)
    command, *quoted = console.splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in quoted if " ".join(line.split()) not in printed] == []


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["step", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
