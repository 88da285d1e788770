"""The commands of docs/bisect.md print what the page quotes, and every option stands there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from align.cli.main import main
from align.forward.bisect_precision import (
    Bisection,
    PointOrigin,
    PointState,
    PrecisionBisection,
    SensitiveLayer,
    SplicePoint,
    SwitchBisection,
    SwitchMoved,
    WrongStretch,
)

RUN_FOLDER = Path(__file__).parents[2] / "docs" / "run-folder.md"


@pytest.mark.parametrize(
    "value", [Bisection, SplicePoint, WrongStretch, PrecisionBisection, SensitiveLayer, SwitchBisection, SwitchMoved]
)
def test_the_page_of_the_run_folder_names_every_field_and_state(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", RUN_FOLDER.read_text("utf-8")))
    assert {field.name for field in dataclasses.fields(value)} <= named
    assert {*get_args(PointState), *get_args(PointOrigin), "point-unusable"} <= named


@pytest.fixture
def filled(page: Any) -> Any:
    """The page with the weights that its port reads."""
    np.savez("weights.npz", **{name: value.numpy() for name, value in page.state_dict().items()})
    return page


@pytest.mark.frameworks
def test_the_page_quotes_what_the_commands_print(filled: Any) -> None:
    assert set(filled.run_commands()) == {1}


@pytest.mark.frameworks
@pytest.mark.usefixtures("filled")
def test_points_can_be_named_and_results_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("points.toml").write_text('"1" = "stages.1"\n', encoding="utf-8")
    sides = ["bisect", "original.py:build", "port.py:build", "--input", "x=float32[4,8]"]
    assert main([*sides, "--points", "points.toml", "--point", "4=stages.4", "--run", "run", "--all"]) == 1
    printed = capsys.readouterr().out
    assert "Right up to 1 -> stages.1, wrong after 4 -> stages.4" in printed
    assert "not needed" in printed
    document = json.loads(Path("run/bisect.json").read_text(encoding="utf-8"))
    assert [point["origin"] for point in document["points"]] == ["given", "given"]
    assert main([*sides, "--point", "nonsense", "--point", "a=b=c"]) == 2
    assert "these points do not name two places (2 faults)\n  nonsense\n  a=b=c" in capsys.readouterr().err
    Path("points.toml").write_text('"1" = 2\n', encoding="utf-8")
    assert main([*sides, "--points", "points.toml"]) == 2
    assert "is no table of points: 1: 2 is no text" in capsys.readouterr().err


def test_options_of_the_other_form_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py", "m.toml", "net.ckpt"):
        Path(name).touch()
    assert main(["bisect", "a.py:f", "b.py:g", "--limit", "1", "--input", "x=float32[2]"]) == 2
    assert "--limit cannot be used here" in capsys.readouterr().err
    assert main(["bisect", "a.py:f", "b.py:g", "--precision", "float16", "--map", "m.toml"]) == 2
    assert "CANDIDATE, --map cannot be used here" in capsys.readouterr().err
    assert main(["bisect", "a.py:f", "--precision", "float16", "--candidate-checkpoint", "net.ckpt"]) == 2
    assert "--candidate-checkpoint cannot be used here" in capsys.readouterr().err


def test_the_page_names_every_option(page: Any) -> None:
    assert page.named_options() == page.known_options()
