"""Captures of real models: where calls come from, functional calls, gradients, the same tensor in several modules."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from pathlib import Path

TORCH = """
import torch
from torch import nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.fc(x)
        y = self.act(y)
        return F.gelu(x) + y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.blocks(x)

def build():
    torch.manual_seed(0)
    return Net()
"""
MINDSPORE = """
import mindspore
from mindspore import nn, ops

class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)
        self.act = nn.ReLU()

    def construct(self, x):
        y = self.fc(x)
        y = self.act(y)
        return ops.tanh(x) + y

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.blocks = nn.SequentialCell(Block(), Block())

    def construct(self, x):
        return self.blocks(x)

def build():
    return Net()
"""
X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    (folder / "net.py").write_text(text)
    return "net.py:build"


def line_of(text: str, part: str) -> int:
    return 1 + next(place for place, line in enumerate(text.splitlines()) if part in line)


@pytest.mark.frameworks
@pytest.mark.parametrize("text", [TORCH, MINDSPORE])
def test_a_call_names_the_line_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    trace = align.capture_trace(written(tmp_path, monkeypatch, text), "trace", inputs={"x": X}, noise=False)
    places = {call.module: call.place for call in trace.calls}
    assert places[""] == ""
    assert places["blocks.1.act"] == f"net.py:{line_of(text, 'self.act(y)')}"
    assert places["blocks.1"] == f"net.py:{line_of(text, 'return self.blocks(x)')}"
    assert [call.module for call in trace.calls] == [
        "", "blocks", "blocks.0", "blocks.0.fc", "blocks.0.act", "blocks.1", "blocks.1.fc", "blocks.1.act",
    ]  # fmt: skip
    assert {call.class_name for call in trace.calls} >= {"Net", "Block"}
    assert trace.calls[3].inputs["0"].shape == (2, 4)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("text", "names"), [(TORCH, ["gelu", "add"]), (MINDSPORE, ["Tanh", "AddExt"])], ids=["torch", "mindspore"]
)
def test_functional_calls_are_captured_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, names: list[str]
) -> None:
    side = written(tmp_path, monkeypatch, text)
    trace = align.capture_trace(side, "trace", inputs={"x": X}, noise=False, functions=True)
    functions = [call for call in trace.calls if "/" in call.module]
    assert [call.module for call in functions] == [f"blocks.{n}/{name}" for n in (0, 1) for name in names]
    assert {call.depth for call in functions} == {3}
    assert functions[0].place == f"net.py:{line_of(text, 'return')}"
    folder = TraceFolder(tmp_path / "trace")
    values = {one.module: folder.value(one) for one in folder.captures}
    assert np.array_equal(values[f"blocks.1/{names[1]}"], values["blocks.1"])
    assert np.allclose(values[f"blocks.0/{names[1]}"], values[f"blocks.0/{names[0]}"] + values["blocks.0.act"])


@pytest.mark.frameworks
def test_noise_of_functional_calls_is_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side = written(tmp_path, monkeypatch, TORCH)
    trace = align.capture_trace(side, "trace", inputs={"x": X}, functions=True)
    assert trace.noise == trace.tensors == 12


@pytest.mark.frameworks
def test_what_an_operation_in_place_overwrites_keeps_its_own_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = align.capture_trace(written(tmp_path, monkeypatch, TORCH), "trace", inputs={"x": X}, noise=False)
    figures = {call.module: call.outputs[0].statistics for call in trace.calls}
    assert figures["blocks.0.fc"].min < 0 == figures["blocks.0.act"].min
    assert figures[""] == figures["blocks"] == figures["blocks.1"] != figures["blocks.0"]


@pytest.mark.frameworks
@pytest.mark.parametrize("text", [TORCH, MINDSPORE])
def test_gradients_of_a_fixed_mix_arrive_at_every_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    side = align.open_side(written(tmp_path, monkeypatch, text))
    align.capture_trace(side, "trace", inputs={"x": X}, noise=False, backward=True)
    trace = TraceFolder(tmp_path / "trace" / "backward")
    assert trace.complete
    assert trace.manifest.head is not None
    assert trace.manifest.head.direction == "backward"
    found: dict[str, Any] = {one.module: trace.value(one) for one in trace.captures}
    mix = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    assert np.array_equal(found[""], mix)
    assert {"", "blocks", "blocks.0", "blocks.0.fc", "blocks.1", "blocks.1.fc", "blocks.1.act"} <= found.keys()
    forward = TraceFolder(tmp_path / "trace")
    passed = next(forward.value(one) for one in forward.captures if one.module == "blocks.1.act") > 0
    assert np.array_equal(found["blocks.1.fc"], mix * passed)


@pytest.mark.frameworks
def test_a_backward_capture_leaves_the_models_own_gradients_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = align.open_side(written(tmp_path, monkeypatch, TORCH))
    side.model.train()
    align.capture_trace(side, "trace", inputs={"x": X}, noise=False, backward=True)
    assert [parameter.grad for parameter in side.model.parameters()] == [None] * 4
    assert side.model.training
    assert not any(module._forward_hooks for module in side.model.modules())
