"""The scripts of a reproducer are run as their reader runs them: by Python, without mindalign."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import CannotRunError, DestinationError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.open_side import Side, open_side

if TYPE_CHECKING:
    from pathlib import Path

ORIGINAL = """
import torch
from torch import nn

class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.fc = nn.Linear(6, 6)
    def forward(self, pair, scale=1.0, *, mask=None, shift):
        x = self.fc(self.norm(pair[0])) * scale + pair[1]
        return {"out": x if mask is None else x * mask, "rest": (shift, 2)}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.act = nn.GELU()
        self.lstm = nn.LSTM(6, 4, batch_first=True)
    def forward(self, x):
        x = self.act(self.gate((x, x * 2), 0.5, shift=x)["out"])
        x = self.gate((x, x), shift=x)["out"]
        return self.lstm(x)[0]

def build():
    torch.manual_seed(0)
    return Net()
"""
PORT = """
from mindspore import nn, ops

class Gate(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((6,), epsilon=1e-5)
        self.fc = nn.Dense(6, 6)
    def construct(self, pair, scale=1.0, *, mask=None, shift):
        x = self.fc(self.norm(pair[0])) * scale + pair[1] * FACTOR
        return {"out": x, "rest": (shift, 2)}

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.act = nn.GELU(approximate=APPROXIMATE)
        self.lstm = nn.LSTM(6, 4, batch_first=True)
    def construct(self, x):
        x = self.act(self.gate((x, x * 2), 0.5, shift=x)["out"])
        x = self.gate((x, x), shift=x)["out"]
        return self.lstm(x)[0]

def build():
    return Net()
"""
INPUTS = {"x": np.random.default_rng(0).standard_normal((2, 3, 6)).astype(np.float32)}
FOUND = re.compile(r"(\S+): largest difference from the (\w+): (.*)")


def filled_pair(folder: Path, **planted: object) -> tuple[Side, Side]:
    source = f"{PORT}\nFACTOR = {planted.get('factor', 1.0)}\nAPPROXIMATE = {planted.get('approximate', False)}\n"
    (folder / "original.py").write_text(ORIGINAL, encoding="utf-8")
    (folder / "port.py").write_text(source, encoding="utf-8")
    reference, candidate = (open_side(f"{folder / name}:build") for name in ("original.py", "port.py"))
    values = reference.reader.read_values(reference.model)
    names = {"gate.norm.weight": "gate.norm.gamma", "gate.norm.bias": "gate.norm.beta"}
    candidate.reader.load_values(candidate.model, {names.get(name, name): value for name, value in values.items()})
    return reference, candidate


def told(*folders: Path) -> list[dict[tuple[str, str], str]]:
    """Run the scripts of the folders at once, and return what they print by output and side."""
    scripts = [folder / f"{side}_layer.py" for folder in folders for side in ("reference", "candidate")]
    command = [sys.executable, "-W", "ignore"]
    running = [subprocess.Popen([*command, str(one)], stdout=subprocess.PIPE, text=True) for one in scripts]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return [{(name, side): figure for name, side, figure in FOUND.findall(text)} for text in printed]


@pytest.mark.frameworks
def test_both_scripts_print_what_the_comparison_says_of_the_culprit(tmp_path: Path) -> None:
    pair = filled_pair(tmp_path, approximate=True)
    repro = align.export_repro(*pair, tmp_path / "act", inputs=INPUTS)
    layer = next(one for one in align.compare_forward(*pair, inputs=INPUTS).layers if one.reference == "act")
    assert (repro.reference.layer, repro.candidate.layer) == ("act", "act")
    assert (repro.reference.built_by, repro.candidate.built_by) == ("constructor", "constructor")
    text = (tmp_path / "act" / "candidate_layer.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 22
    assert "align" not in text
    assert "mindspore.nn.GELU()" in text
    mine, theirs = told(tmp_path / "act")
    assert layer.isolated is not None
    assert layer.isolated.measurement is not None
    assert float(theirs["output", "reference"]) == pytest.approx(layer.isolated.measurement.max_abs, rel=1e-6)
    assert float(mine["output", "candidate"]) == pytest.approx(layer.isolated.measurement.max_abs, rel=1e-6)
    assert float(mine["output", "reference"]) == float(theirs["output", "candidate"]) == 0.0


@pytest.mark.frameworks
def test_a_users_own_class_and_one_that_no_arguments_build_come_out_of_the_users_model(tmp_path: Path) -> None:
    pair = filled_pair(tmp_path, factor=1.5)
    gate = align.export_repro(*pair, tmp_path / "gate", inputs=INPUTS, layer="gate#1")
    align.export_repro(*pair, tmp_path / "lstm", inputs=INPUTS, layer="lstm")
    assert (gate.reference.built_by, gate.candidate.built_by, gate.candidate.call) == ("factory", "factory", 1)
    (out,) = (one for one in gate.outputs if one.name == "out")
    assert out.measurement is not None
    assert out.measurement.max_abs > 0.1
    mine, theirs, lstm, cell = told(tmp_path / "gate", tmp_path / "lstm")
    assert float(mine["out", "candidate"]) == pytest.approx(out.measurement.max_abs, rel=1e-6)
    assert float(theirs["out", "reference"]) == pytest.approx(out.measurement.max_abs, rel=1e-6)
    assert float(mine["out", "reference"]) == float(mine["rest.0", "candidate"]) == 0.0
    assert {name for name, _ in lstm} == {"0", "1.0", "1.1"}
    assert max(float(figure) for figure in [*lstm.values(), *cell.values()]) < 1e-6


@pytest.mark.frameworks
def test_a_clean_port_has_no_layer_to_show_until_one_is_named(tmp_path: Path) -> None:
    pair = filled_pair(tmp_path)
    with pytest.raises(CannotRunError, match="no layer differs"):
        align.export_repro(*pair, tmp_path / "out", inputs=INPUTS)
    with pytest.raises(CannotRunError, match=r"no paired call is named 'gate\.norn'") as raised:
        align.export_repro(*pair, tmp_path / "out", inputs=INPUTS, layer="gate.norn")
    assert "gate.norm" in raised.value.hint
    assert not (tmp_path / "out").exists()
    repro = align.export_repro(*pair, tmp_path / "out", inputs=INPUTS, layer="gate.norm")
    again = align.export_repro(*pair, tmp_path / "out", inputs=INPUTS, layer="act")
    assert set(again.files) < set(repro.files)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(again.files)
    (output,) = repro.outputs
    assert output.measurement is not None
    assert output.measurement.max_abs < 1e-5


@pytest.mark.frameworks
def test_nothing_is_written_where_a_script_cannot_be(tmp_path: Path) -> None:
    reference, candidate = filled_pair(tmp_path, factor=1.5)
    live: tuple[Any, Any] = reference.model, candidate.model
    with pytest.raises(CannotRunError, match="given as a live model") as raised:
        align.export_repro(*live, tmp_path / "out", inputs=INPUTS, layer="gate")
    assert "module:function" in raised.value.hint
    assert sorted(path.name for path in tmp_path.glob("*out*")) == []
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(DestinationError, match=r"notes\.txt"):
        align.export_repro(reference, candidate, tmp_path / "mine", inputs=INPUTS, layer="act")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_models_of_plain_functions_have_no_scripts(tmp_path: Path) -> None:
    sides = [ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),)) for _ in range(2)]
    with pytest.raises(CannotRunError, match="no script can run arrays models"):
        align.export_repro(*sides, tmp_path / "out", inputs=INPUTS, layer="act")
