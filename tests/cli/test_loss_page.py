"""The page on `align loss` shows what the command prints, and names all its options and formats."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from align.cli.main import main
from align.curves.log_sources import log_formats
from align.curves.loss_log import (
    Bound,
    Criterion,
    Curve,
    CurveComparison,
    CurveEvent,
    CurvePoints,
    DriftTest,
    EventKind,
    LogSummary,
    MetricSummary,
    OtherMetric,
    SideSpeed,
    SpeedComparison,
    Window,
)
from align.curves.losslogs.console import console_formats

ROOT = Path(__file__).parents[2]


def test_the_page_quotes_what_the_commands_print(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert page.run_commands() == [0, 2, 0, 1]


def test_every_option_is_told_of(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    main(["loss", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    of_a_side = {name for name in known if name.startswith(("--reference-", "--candidate-"))} - {"--reference-runs"}
    said = set(re.findall(r"--[a-z-]+", page.text))
    assert known - of_a_side <= said
    assert {name.replace("--reference-", "--") for name in of_a_side if "--reference-" in name} <= said


def test_every_format_that_is_quoted_says_so(page: Any) -> None:
    quoted = {name for name, plugin in log_formats().items() if plugin.quoted}
    as_data = {lines.name for lines in console_formats() if lines.quoted}
    assert quoted == {"mmcv_json", "json_series", *as_data}
    assert "mmcv `.log.json` (quoted)" in page.text
    assert "Nobody here has run these" in (ROOT / "docs" / "log-formats.md").read_text("utf-8")


@pytest.mark.parametrize(
    "value",
    [
        *(CurveComparison, CurvePoints, Criterion, CurveEvent, DriftTest, OtherMetric, SideSpeed, SpeedComparison),
        *(Curve, LogSummary, MetricSummary, Window),
    ],
)
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (ROOT / "docs" / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} - {"made_from", "verdict"} <= named
    assert {*get_args(EventKind), *get_args(Bound)} <= named | set(PHRASES)


PHRASES = ("not finite", "schedule boundary", "change point", "apart for a while", "together again")
