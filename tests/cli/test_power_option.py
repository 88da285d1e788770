"""`align forward` with and without the power of its inputs, as typed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

MODELS = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def chain(name, layer, bias):
    weights = {"weight": np.eye(4, dtype=np.float32), "bias": np.float32([bias] * 4)}
    return ArrayModel((ArrayLayer(name, layer, lambda x, weight, bias: x @ weight.T + bias, weights),))


def reference():
    return chain("fc", "torch.nn.Linear", 1.0)


def port():
    return chain("dense", "mindspore.nn.Dense", 1.0)


def drowned():
    return chain("fc", "torch.nn.Linear", 1e12)


def drowned_port():
    return chain("dense", "mindspore.nn.Dense", 1e12)
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / f"power_{tmp_path.name.replace('-', '_')}.py"
    path.write_text(MODELS, encoding="utf-8")
    return path.name


def forward(models: str, *options: str, sides: tuple[str, str] = ("reference", "port")) -> int:
    places = [f"{models}:{side}" for side in sides]
    return main(["forward", *places, "--input", "x=float32[3,4]", *options])


def test_a_result_says_what_its_inputs_could_have_shown(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert forward(models) == 0
    text = capsys.readouterr().out
    assert "What these inputs can show of the reference" in text
    assert "parameters: not measured: arrays models can only run forward" in text


def test_a_result_without_power_says_that_nobody_knows(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert forward(models, "--no-power") == 0
    assert "Not measured: whether a fault could have been seen is not known." in capsys.readouterr().out


def test_power_is_part_of_the_document(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert forward(models, "--json") == 0
    power = json.loads(capsys.readouterr().out)["power"]
    assert power["inputs"]["x"] > 1e3
    assert [one["module"] for one in power["outputs"]] == ["fc", ""]


def test_agreement_that_could_not_have_been_otherwise_ends_in_exit_code_2(
    models: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ("drowned", "drowned_port")
    assert forward(models, sides=sides) == 2
    assert "could not tell" in capsys.readouterr().out
    assert forward(models, "--no-power", sides=sides) == 0
