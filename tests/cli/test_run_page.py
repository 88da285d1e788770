"""docs/run.md quotes what its command prints, and names every rung and every option that there is."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree

import pytest

import align
from align.cli.main import main
from align.runs.rung import rungs


@pytest.mark.frameworks
def test_the_page_quotes_what_the_command_prints(page):
    copytree(Path(align.__file__).parents[1] / "examples" / "first_port", Path(), dirs_exist_ok=True)
    port = Path("port.py")
    listed = "[Residual(16) for _ in range(3)]"
    port.write_text(port.read_text().replace(listed, f"nn.CellList({listed})"))
    assert main(["init"]) == 0
    page.capsys.readouterr()
    assert page.run_commands() == [1]


def test_the_page_lists_every_rung_in_its_order_and_says_which_are_optional(page):
    table = page.text.split("## The rungs")[1]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == [rung.name for rung in rungs()]
    assert [name for name, what in rows if "(optional)" in what] == [rung.name for rung in rungs() if rung.optional]


def test_the_page_names_every_option(page):
    table = page.text.split("## Options")[1].split("\n## ")[0]
    assert set(re.findall(r"--[a-z][a-z-]+", table)) == page.known_options() | {"--project"}
