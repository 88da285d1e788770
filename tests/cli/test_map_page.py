"""The commands of docs/map.md print what the page quotes, with the files that it shows; the project page is read."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main
from align.names.map_file import read_rules
from align.runs.project_file import read_project

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "map.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    for block in [*blocks("python"), *blocks("toml")]:
        if named := re.match(r"# (\S+\.\w+)\n", block):
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    for part in "".join(blocks("console")).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        if command.startswith("python "):
            runpy.run_path(command.removeprefix("python "))
            continue
        main(shlex.split(command)[1:])
        printed = [" ".join(line.split()) for line in "".join(capsys.readouterr()).splitlines()]
        assert quoted
        assert [line for line in quoted if " ".join(line.split()) not in printed] == []


def test_the_map_file_that_the_page_shows_is_read(tmp_path: Path) -> None:
    (shown,) = [block for block in blocks("toml") if "schema" in block]
    (tmp_path / "map.toml").write_text(shown, encoding="utf-8")
    rules = read_rules(tmp_path / "map.toml")
    assert rules.target_of("encoder.layer.3.attn.weight")[0] == "blocks.3.attn.weight"
    assert rules.target_of("layers.11.q.weight")[0] == "blocks.12.q.weight"
    assert rules.drop_of("target", "step_count") == ("not in the original", "[dropped.target] step_count")


def test_the_project_file_that_its_page_shows_is_read(tmp_path: Path) -> None:
    (shown,) = blocks("toml", (DOCS / "project-file.md").read_text(encoding="utf-8"))
    (tmp_path / "align.toml").write_text(shown, encoding="utf-8")
    project = read_project(tmp_path / "align.toml")
    assert project.reference.model == f"{tmp_path}/original.py:build"
    assert project.candidate.model == "port.models.resnet:build"
    assert project.map == tmp_path / "map.toml"
