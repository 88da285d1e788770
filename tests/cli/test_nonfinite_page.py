"""The commands of docs/nonfinite.md print what the page quotes, and every option stands there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from align.cli.main import main
from align.loops.recorded_pass import CallFigures, NearOverflow, NonfiniteEvent, NonfiniteResult

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("value", [NonfiniteResult, NonfiniteEvent, CallFigures, NearOverflow])
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(page: Any) -> None:
    assert page.run_commands() == [1, 0]


@pytest.mark.frameworks
def test_the_page_lists_every_option(page: Any) -> None:
    assert page.known_options() <= page.named_options()


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_the_result_is_kept_and_the_steps_before_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["nonfinite", "train.py:training", "--batch", "train.py:batch", "--steps-file", "steps.jsonl"]
    assert main([*line, "--run", "run"]) == 1
    event = json.loads(Path("run/nonfinite.json").read_text(encoding="utf-8"))["event"]
    assert (event["step"], event["layer"], event["cause"]) == (19, "head", "log-of-0")
    rows = [json.loads(one) for one in Path("steps.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [one["step"] for one in rows[-3:-1]] == [17, 18]
    assert rows[-1]["event"]["step"] == 19
    assert main(["report", "run"]) in {0, 1, 2}
    assert "first NaN or Inf" in Path("run/report.html").read_text(encoding="utf-8")
    capsys.readouterr()


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_one_training_is_called_neither_aligned_nor_not(capsys: pytest.CaptureFixture[str]) -> None:
    found = ("training", 1, "NaN first at step 19", "not aligned"), ("slow", 0, "no NaN, Inf or explosion", "aligned")
    for factory, code, said, outcome in found:
        line = ["nonfinite", f"train.py:{factory}", "--batch", "train.py:batch", "--steps", "30"]
        assert main(line) == code
        printed = capsys.readouterr().out
        assert printed.count(said) == 1
        assert "aligned" not in printed.lower()
        assert main([*line, "--json"]) == code
        assert json.loads(capsys.readouterr().out)["verdict"]["outcome"] == outcome


@pytest.mark.frameworks
@pytest.mark.usefixtures("page")
def test_what_cannot_be_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    batch = ["--batch", "train.py:batch"]
    for rest, said in [
        ([], "no batch is given"),
        ([*batch, "--steps", "0"], "0 is no number of steps"),
        ([*batch, "--keep", "0"], "0 is not a valid number of steps to keep"),
        ([*batch, "--factor", "1"], "1.0 is not a valid factor"),
    ]:
        assert main(["nonfinite", "train.py:training", *rest]) == 2
        assert said in capsys.readouterr().err
