"""docs/repro.md: its commands print what it quotes, and the script that it shows is the one that is written."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "repro.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.frameworks
def test_the_page_shows_what_the_commands_print_and_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        (tmp_path / block.split("\n", 1)[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    space: dict[str, object] = {}
    exec(blocks("python")[0], space)
    torch.save(space["build"]().state_dict(), "net.pth")  # type: ignore[operator]
    for part in "".join(blocks("console")).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        assert main(shlex.split(command)[1:]) == 0
        printed = [" ".join(line.split()) for line in "".join(capsys.readouterr()).splitlines()]
        assert quoted
        assert [line for line in quoted if " ".join(line.split()) not in printed] == []
    assert blocks("text") == [(tmp_path / "pooling" / "candidate_layer.py").read_text(encoding="utf-8")]


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["repro", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
