"""The example of docs/dump-in-training.md prints what the page quotes; the page of the run folder names all fields."""

from __future__ import annotations

import dataclasses
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import get_args

import pytest

from align.cli.main import main
from align.loops.dump import ChangedTensor, IterationChanges
from align.loops.find_explosion import LossScaleResult, OverflowPlace, ScaleStep, ScaleTrouble
from align.training.compare_ranks import TrainingBisection

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "dump-in-training.md").read_text(encoding="utf-8")
RESULTS = [TrainingBisection, IterationChanges, ChangedTensor, LossScaleResult, ScaleStep, OverflowPlace]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.frameworks
def test_the_page_quotes_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    source = next(one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if one.startswith("# train.py"))
    Path("train.py").write_text(source, encoding="utf-8")
    for part in "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        if command == "python train.py":
            runpy.run_path("train.py", run_name="__main__")
        else:
            assert main(shlex.split(command)[1:]) == 0
        printed = words(capsys.readouterr().out)
        assert quoted
        assert [line for line in quoted if words(line) not in printed] == []


@pytest.mark.parametrize("value", RESULTS)
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_the_page_names_every_trouble() -> None:
    assert [one for one in get_args(ScaleTrouble) if f"`{one}`" not in PAGE] == []
