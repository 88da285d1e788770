"""The commands of docs/scan.md print what the page quotes, and every option stands there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from align.cli.main import main
from align.rules.ascend_rules import BY_EFFORT, OtherDefault
from align.scan.scan_model import CallPlace, ScannedCall, ScanResult

DOCS = Path(__file__).parents[2] / "docs"
INPUT = ["--input", "x=float32[2,3,16,16]"]


@pytest.mark.parametrize("value", [ScanResult, ScannedCall, CallPlace, OtherDefault])
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


def test_the_page_names_every_status() -> None:
    text = (DOCS / "scan.md").read_text("utf-8")
    assert [one for one in BY_EFFORT if f"| {one} |" not in text] == []


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    assert page.run_commands() == [1]


@pytest.mark.frameworks
def test_the_page_lists_every_option(page: Any) -> None:
    assert page.known_options() <= page.named_options()


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_all_calls_can_be_shown_and_the_result_kept(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["scan", "model.py:build", "--target", "ascend:910b", *INPUT]
    assert main([*line, "--all", "--run", "run"]) == 1
    printed = capsys.readouterr().out
    assert "nn.Conv2d: float32 by default in HF32" in printed
    assert "Tensor.flatten" in printed
    document = json.loads(Path("run/scan.json").read_text(encoding="utf-8"))
    assert document["calls"][0]["status"] == "no counterpart"
    assert main([*line, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["seen_by"] == "run"


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_what_cannot_be_scanned_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "model.py:build", "--target", "tpu"]) == 2
    assert "known: cpu, gpu, ascend:910a" in capsys.readouterr().err
    assert main(["scan", "none.py:build"]) == 2
    assert "none.py" in capsys.readouterr().err
