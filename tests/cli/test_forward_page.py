"""The commands of docs/forward.md print what the page quotes, and its constants are those of the code."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main
from align.steps import limits

PAGE = (Path(__file__).parents[2] / "docs" / "forward.md").read_text(encoding="utf-8")


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
        name = block.split("\n", 1)[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
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


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["forward", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    named = set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0]))
    assert named <= known
    assert {"--inputs", "--input", "--map", "--run", "--json"} <= named


def test_the_page_gives_the_constants_that_are_in_force() -> None:
    assert f"| times the noise | {limits.NOISE_FACTOR:g} |" in PAGE
    assert f"| {limits.TYPICAL_UNITS:g} units in the last place |" in PAGE
    assert f"| {limits.WORST_UNITS:g} units of the largest value |" in PAGE
    assert f"upper end of the {limits.CONFIDENCE:.0%} confidence".replace("%", " %") in PAGE
    for value in limits.RELATIVE_BY_DTYPE.values():
        assert f"{value:.0e}".replace("e-0", "e-") in PAGE
