"""A port that raises: what ran before is compared and shown, the place is named, and the verdict is neither of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import CannotRunError, ModelFailedError
from align.forward.compare_forward import compare_forward
from align.forward.export_repro import choose_pair
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
NAMES = ("first", "second", "third", "fourth")


def dense(x: Any, weight: Any) -> Any:
    return x @ weight.T


def raising(x: Any, weight: Any) -> Any:
    raise ValueError("no such thing here")


def off(x: Any, weight: Any) -> Any:
    return x @ weight.T * 1.5


def chain(family: str, **functions: Callable[..., Any]) -> ArrayModel:
    rng = np.random.default_rng(1)
    kind = {"torch": "torch.nn.Linear", "mindspore": "mindspore.nn.Dense"}[family]
    weights = [rng.normal(size=(4, 4)).astype(np.float32) for _ in NAMES]
    layers = [
        ArrayLayer(name, kind, functions.get(name, dense), {"weight": weight})
        for name, weight in zip(NAMES, weights, strict=True)
    ]
    return ArrayModel(tuple(layers))


def compared(**functions: Callable[..., Any]) -> Any:
    return compare_forward(chain("torch"), chain("mindspore", **functions), inputs={"x": X})


def test_what_ran_before_is_compared_and_the_place_is_named() -> None:
    result = compared(third=raising)
    assert [(row.candidate, row.outcome) for row in result.layers] == [("first", "aligned"), ("second", "aligned")]
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert (
        "in layer 'third' (Dense) after layer 'second' at tests/forward/test_port_failure.py:" in result.verdict.reason
    )
    assert "ValueError: no such thing here; 2 layer outputs before that agree" in result.verdict.reason
    failure = result.failure
    assert (failure.layer, failure.class_name, failure.after, failure.kind) == ("third", "Dense", "second", "other")
    line = int(failure.line.rpartition(":")[2])
    assert "raise ValueError" in Path(__file__).read_text(encoding="utf-8").splitlines()[line - 1]
    assert [one.subject for one in result.findings if one.code == "candidate-failed"] == ["third"]
    assert result.unpaired == ()  # what the port did not come to is no layer without a counterpart


def test_a_difference_before_the_failure_shows_and_decides_nothing() -> None:
    result = compared(first=off, third=raising)
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.layers[result.first_divergent].candidate == "first"
    assert "2 of 2 layer outputs before that differ already, first at first (Dense)" in result.verdict.reason


def test_the_clean_twin_has_no_failure() -> None:
    result = compared()
    assert (result.failure, result.verdict.outcome) == (None, Outcome.ALIGNED)


def test_a_port_that_raises_before_any_layer_and_a_reference_that_raises_are_errors() -> None:
    with pytest.raises(ModelFailedError, match="in layer 'first'"):
        compared(first=raising)
    with pytest.raises(ModelFailedError, match="in layer 'third'"):
        compare_forward(chain("torch", third=raising), chain("mindspore"), inputs={"x": X})


def test_the_command_shows_the_rows_and_ends_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = "def original(): return chain('torch')\ndef port(): return chain('mindspore', third=raising)\n"
    Path("raising_port.py").write_text(f"{Path(__file__).read_text(encoding='utf-8')}\n{made}", encoding="utf-8")
    sides = ["forward", "raising_port.py:original", "raising_port.py:port", "--input", "x=float32[5,4]"]
    assert main([*sides, "--run", "run"]) == 2
    shown = capsys.readouterr().out
    assert "COULD NOT COMPARE: the port failed in layer 'third'" in shown
    assert "second" in shown
    assert main([*sides, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["failure"]["line"].startswith("raising_port.py:")
    assert [row["candidate"] for row in document["layers"]] == ["first", "second"]
    assert json.loads(Path("run/forward.json").read_text(encoding="utf-8"))["failure"]["layer"] == "third"


def test_a_port_that_failed_is_not_said_to_have_no_layer_that_differs() -> None:
    with pytest.raises(CannotRunError, match="the port failed in layer 'third'"):
        choose_pair((), compared(third=raising), None)
    with pytest.raises(CannotRunError, match="no layer differs"):
        choose_pair((), compared(), None)
