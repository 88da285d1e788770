"""What docs/dumps.md shows is what the commands print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dumps.md").read_text(encoding="utf-8")
DATA = ROOT / "tests" / "traces" / "data"


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Run a command beside the dumps that the page names, and return what it prints."""
    for name in ("msprobe/torch", "msprobe/mindspore", "mindspore_dump"):
        shutil.copytree(DATA / name, tmp_path / Path(name).name)
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> str:
        main(command.split()[1:])
        return capsys.readouterr().out

    return run


def test_the_report_is_as_shown(printed: Callable[[str], str]) -> None:
    shown = [
        line.rstrip() for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    assert shown[0] == "$ align forward torch mindspore"
    lines = [line.rstrip() for line in printed("align forward torch mindspore").splitlines()]
    assert [line for line in shown[1:] if line and line not in lines] == []


def test_the_commands_at_the_top_end_as_shown(printed: Callable[[str], str]) -> None:
    top = PAGE.partition("## In detail")[0]
    for command, said in re.findall(r"^(align .*)\n# (.*)$", top, re.MULTILINE):
        assert said in " ".join(printed(command).split())


def test_every_reader_is_on_the_page() -> None:
    from align.core.load_code import dump_readers

    versions = {word for one in dump_readers().values() for word in re.findall(r"\d+\.\d+(?:\.\d+)?", one.tried_with)}
    assert [version for version in versions if version not in PAGE] == []
