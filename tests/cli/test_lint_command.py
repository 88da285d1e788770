"""`align lint` from the command line, with models of plain arrays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SIDES = """
import numpy as np
from align.models.frameworks.arrays import ArrayLayer, ArrayModel


def model(names, slopes, key, dense):
    layers = []
    for number, (name, slope) in enumerate(zip(names, slopes, strict=True)):
        weights = {"weight": np.ones((number + 2, number + 3), np.float32)}
        bias = {"bias": True, "has_bias": True}
        layers.append(ArrayLayer(f"{name}.fc{number}", dense, lambda x, weight: x, weights, bias))
        layers.append(ArrayLayer(f"{name}.act{number}", key[0], abs, {}, {key[1]: slope}))
    return ArrayModel(tuple(layers))


TORCH = ("torch.nn.LeakyReLU", "negative_slope"), "torch.nn.Linear"
CELL = ("mindspore.nn.LeakyReLU", "alpha"), "mindspore.nn.Dense"


def reference():
    return model(["encoder"] * 4, [0.01] * 4, *TORCH)


def wrong():
    return model(["body"] * 4, [0.2] * 4, *CELL)


def clean():
    return model(["body"] * 4, [0.01] * 4, *CELL)


def other():
    return ArrayModel((ArrayLayer("fc", "mindspore.nn.Dense", abs, {"weight": np.ones((9, 9), np.float32)}),))


def unknown():
    return ArrayModel((ArrayLayer("act", "my.Act", abs, {}),))


def fails():
    raise ValueError("no weights here")
"""


@pytest.fixture(autouse=True)
def _sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sides.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def lint(candidate: str, *options: str, reference: str = "reference") -> int:
    return main(["lint", f"sides.py:{reference}", f"sides.py:{candidate}", *options])


def test_a_clean_port_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("clean") == 0
    out = capsys.readouterr().out
    assert "aligned: 8 known settings are equal" in out
    assert "never run" in out


def test_findings_end_with_1_and_layers_that_differ_in_a_number_are_one_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lint("wrong") == 1
    out = capsys.readouterr().out
    assert "error (4)" in out
    assert "encoder.act{0…3}" in out
    assert "body.act{0…3}" in out
    assert "leaky-relu-slope: negative values" in out
    assert "NOT ALIGNED: 4 settings of 4 layers" in out
    assert max(map(len, out.splitlines())) <= 100


def test_all_gives_every_layer_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("wrong", "--all") == 1
    out = capsys.readouterr().out
    assert all(f"encoder.act{n}" in out for n in range(4))


def test_json_and_the_run_folder_hold_the_same_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("wrong", "--json", "--run", "run") == 1
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "lint.json").read_text(encoding="utf-8"))
    assert printed["findings"] == kept["findings"]
    assert printed["schema"] == "mindalign.lint/2"
    assert printed["findings"][0]["change"] == "nn.LeakyReLU(..., alpha=0.01)"
    assert printed["verdict"]["outcome"] == "not aligned"
    assert printed["made_from"]["reference"]["text"] == "sides.py:reference"
    assert printed["unrun"] < printed["rules"]


def test_a_map_pairs_the_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "\n".join(f'"encoder.fc{n}.weight" = "body.fc{n}.weight"' for n in range(4))
    (tmp_path / "map.toml").write_text(f"[names]\n{names}\n", encoding="utf-8")
    assert lint("wrong", "--map", "map.toml") == 1
    assert "error (4)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("candidate", "said"),
    [("other", "have no parameter in common"), ("fails", "no weights here"), ("missing", "does not exist")],
)
def test_what_cannot_be_compared_ends_with_2(candidate: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(candidate) == 2
    assert said in capsys.readouterr().err


def test_layers_that_no_rule_knows_are_no_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("unknown", reference="unknown") == 2
    assert "COULD NOT COMPARE: no rule knows a setting of any pair of layers" in capsys.readouterr().out
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.frameworks
def test_an_optimizer_against_a_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import torch\n\n\ndef adam():\n    return torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])\n"
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    assert main(["lint", "train.py:adam", "sides.py:clean"]) == 2
    assert "sides.py:clean is no optimizer, and the other side is one" in capsys.readouterr().err
