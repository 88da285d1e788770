"""docs/diff.md quotes what its command prints, and names every option that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")


@pytest.mark.frameworks
def test_the_page_quotes_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    layers = {f"layers.{i}.weight": torch.arange(12.0).reshape(3, 4) - i for i in range(3)}
    before = {**layers, "embed.weight": torch.ones(5, 4), "norm.weight": torch.ones(4)}
    after = {name: value * 0.999 if name.startswith("layers") else value for name, value in before.items()}
    after["norm.weight"] = torch.tensor([1, 1, 1, 1 + 2**-23])
    torch.save(before, tmp_path / "before.pth")
    torch.save({"model": after, "step": 1}, tmp_path / "after.pth")
    monkeypatch.chdir(tmp_path)

    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    command, *quoted = block.removeprefix("$ ").splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert len(quoted) > 10
    assert [line for line in quoted if line not in printed] == []


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diff", "--help"])
    options = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help", "--debug"}
    assert len(options) > 6
    assert {option for option in options if option not in PAGE} == set()
