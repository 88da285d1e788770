"""The command of docs/determinism.md prints what the page quotes, its other examples run, and every option is named."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from align.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "determinism.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.frameworks
@pytest.mark.usefixtures("settings_put_back")
def test_the_page_quotes_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "port.py").write_text(BLOCKS[0], encoding="utf-8")
    (console,) = re.findall(r"```console\n\$ (.*?)```", PAGE, re.DOTALL)
    command, *quoted = console.splitlines()
    assert main(shlex.split(command)[1:]) == 1
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert len(quoted) > 8
    assert [line for line in quoted if " ".join(line.split()) not in printed] == []


@pytest.mark.frameworks
@pytest.mark.usefixtures("settings_put_back")
def test_the_two_calls_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    exec(BLOCKS[1], {})
    assert "torch: manual_seed(7)" in capsys.readouterr().out
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    trained = []
    exec(BLOCKS[2], {"model": model, "train_one_step": trained.append})
    assert trained == [model]
    assert capsys.readouterr().out == "('0',) ('1',)\n"


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check-determinism", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
