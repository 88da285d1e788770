"""The commands of docs/validate.md print what the page quotes."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main
from align.steps.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "validate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(
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
    codes = []
    for part in "".join(blocks("console")).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        codes.append(main(shlex.split(command)[1:]))
        printed = [" ".join(line.split()) for line in "".join(capsys.readouterr()).splitlines()]
        assert quoted
        assert [line for line in quoted if " ".join(line.split()) not in printed] == []
    assert codes == [0, 0, 1]


def test_the_page_names_every_option_and_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
    assert [name for name in METRICS if f"`{name}`" not in PAGE] == []
