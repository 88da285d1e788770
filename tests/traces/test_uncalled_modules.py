"""Modules that a run passes by are told when a model is captured, and no module that was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.frameworks
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def captured(folder: Path, build: Callable[[], Any], **options: Any) -> Any:
    return align.capture_trace(build(), folder, inputs={"x": X}, **options)


def test_modules_that_torch_code_runs_past_their_hooks_are_told(tmp_path: Path, assert_each: Any) -> None:
    import torch
    import torch.nn.functional as functions
    from torch import nn

    class Net(nn.Module):
        def __init__(self, run: Callable[[Any, Any], Any]) -> None:
            super().__init__()
            self.first, self.second, self.unused = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(3, 3)
            self.tied = nn.Linear(8, 3)
            self.tied.weight, self.tied.bias = self.second.weight, self.second.bias
            self.bn = nn.BatchNorm1d(3, affine=False)
            self.run = run

        def forward(self, x: Any) -> Any:
            return self.run(self, x)

    def forwards(net: Any, x: Any) -> Any:
        return net.second.forward(torch.relu(net.first.forward(x)))

    def weights(net: Any, x: Any) -> Any:
        return net.second(functions.linear(x, net.first.weight, net.first.bias))

    def unused(net: Any, x: Any) -> Any:
        return net.second(torch.relu(net.first(x)))

    def all_called(net: Any, x: Any) -> Any:
        return net.unused(net.second(net.first(x)))

    def check(run: Callable[[Any, Any], Any], names: list[str], share: float) -> None:
        trace = captured(tmp_path / run.__name__, lambda: Net(run))
        assert trace.complete
        assert [one.partition(" ")[0] for one in trace.uncalled] == names
        assert trace.uncalled_share == pytest.approx(share, abs=0.005)
        assert align.show_trace(tmp_path / run.__name__).uncalled == trace.uncalled

    total = 6 * 8 + 8 + 8 * 3 + 3 + 3 * 3 + 3
    examples: list[tuple[Callable[[Any, Any], Any], list[str], float]] = [
        (forwards, ["first", "second", "unused"], 1.0),
        (weights, ["first", "unused"], (56 + 12) / total),
        (unused, ["unused"], 12 / total),
        (all_called, [], 0.0),
    ]
    assert_each(check, examples)


def test_modules_that_mindspore_code_runs_past_their_hooks_are_told(tmp_path: Path, assert_each: Any) -> None:
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self, past: bool) -> None:
            super().__init__()
            self.first, self.second, self.past = nn.Dense(6, 8), nn.Dense(8, 3), past

        def construct(self, x: Any) -> Any:
            if self.past:
                return self.second.construct(ops.relu(self.first.construct(x)))
            return self.second(ops.relu(self.first(x)))

    def check(past: bool) -> None:
        trace = captured(tmp_path / str(past), lambda: Net(past))
        assert trace.uncalled == (("first (Dense)", "second (Dense)") if past else ())

    assert_each(check, [True, False])


def test_layers_that_use_what_is_inside_of_them_are_called(tmp_path: Path, assert_each: Any) -> None:
    import torch
    from torch import nn

    class Parameters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.ones(6)) for _ in range(2)])
            self.own = nn.Parameter(torch.ones(6))

        def forward(self, x: Any) -> Any:
            return x * self.weights[0] * self.weights[1] * self.own

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.attention(x[None], x[None], x[None])[0]

    def check(build: Callable[[], Any]) -> None:
        assert captured(tmp_path / "trace", build).uncalled == ()

    assert_each(check, [Parameters, Attention, lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU())])


NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 3)

    def forward(self, x):
        return torch.relu(self.fc.forward(x))
"""


def test_the_last_line_says_what_was_not_seen_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    assert main(["capture", f"{tmp_path}/net.py:Net", "--input", "x=float32[2,6]", "--out", f"{tmp_path}/trace"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no call was seen of 1 module with parameters, which holds 100% of them all: fc (Linear)" in shown
    assert "write `layer(x)`, and capture again" in shown
    assert "Complete: every call returned" not in shown
