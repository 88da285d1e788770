"""The commands of docs/bisect.md print what the page quotes, and every option stands there."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from align.cli.main import main
from align.core.bisections import (
    Bisection,
    PointOrigin,
    PointState,
    PrecisionBisection,
    SensitiveLayer,
    SplicePoint,
    WrongStretch,
)

PAGE = (Path(__file__).parents[2] / "docs" / "bisect.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("value", [Bisection, SplicePoint, WrongStretch, PrecisionBisection, SensitiveLayer])
def test_the_page_of_the_run_folder_names_every_field_and_state(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named
    assert {*get_args(PointState), *get_args(PointOrigin), "point-unusable"} <= named


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        (tmp_path / block.split("\n", 1)[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    space: dict[str, object] = {}
    exec(blocks("python")[0], space)
    state = space["build"]().state_dict()  # type: ignore[operator]
    np.savez(tmp_path / "weights.npz", **{name: value.numpy() for name, value in state.items()})
    return tmp_path


@pytest.mark.frameworks
@pytest.mark.usefixtures("workplace")
def test_the_page_quotes_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    for part in "".join(blocks("console")).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        assert main(shlex.split(command)[1:]) == 1
        printed = [" ".join(line.split()) for line in "".join(capsys.readouterr()).splitlines()]
        assert quoted
        assert [line for line in quoted if " ".join(line.split()) not in printed] == []


@pytest.mark.frameworks
def test_points_can_be_named_and_results_kept(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "points.toml").write_text('"1" = "stages.1"\n', encoding="utf-8")
    sides = ["bisect", "original.py:build", "port.py:build", "--input", "x=float32[4,8]"]
    assert main([*sides, "--points", "points.toml", "--point", "4=stages.4", "--run", "run", "--all"]) == 1
    printed = capsys.readouterr().out
    assert "Right up to 1 -> stages.1, wrong after 4 -> stages.4" in printed
    assert "not needed" in printed
    document = json.loads((workplace / "run" / "bisect.json").read_text(encoding="utf-8"))
    assert [point["origin"] for point in document["points"]] == ["given", "given"]
    assert main([*sides, "--point", "nonsense", "--point", "a=b=c"]) == 2
    assert "points that name no two places:\n  nonsense\n  a=b=c" in capsys.readouterr().err
    (workplace / "points.toml").write_text('"1" = 2\n', encoding="utf-8")
    assert main([*sides, "--points", "points.toml"]) == 2
    assert "is no table of points:\n  1: 2 is no text" in capsys.readouterr().err


def test_options_of_the_other_form_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "a.py:f", "b.py:g", "--limit", "1", "--input", "x=float32[2]"]) == 2
    assert "--limit cannot be used here" in capsys.readouterr().err
    assert main(["bisect", "a.py:f", "b.py:g", "--precision", "float16", "--map", "m.toml"]) == 2
    assert "CANDIDATE, --map cannot be used here" in capsys.readouterr().err


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bisect", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--project"}
    assert set(re.findall(r"--[a-z-]+", PAGE.split("## Example")[0])) == known
