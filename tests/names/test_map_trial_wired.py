"""`align map --trial`: what names leave open, and the order of calls would settle wrongly, distinct values settle."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

# The port calls first what the original calls second.
PAIR = """
def original():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.fc = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.fc(self.left(x).relu() - self.right(x))

    return Net()


def port():
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 3)

        def construct(self, x):
            taken = self.a(x)
            return self.head(ops.relu(self.b(x)) - taken)

    return Net()


def x():
    import numpy

    return {"x": numpy.random.default_rng(0).normal(size=(4, 8)).astype("float32")}
"""


@pytest.mark.frameworks
def test_a_trial_settles_what_the_names_leave_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.py").write_text(PAIR, encoding="utf-8")
    sides = ["map", "pair.py:original", "pair.py:port"]
    assert main(sides) == 1
    capsys.readouterr()
    assert main([*sides, "--inputs", "pair.py:x", "--trial", "--out", "map.toml", "--json"]) == 0
    pairs = json.loads(capsys.readouterr().out)["name_map"]["pairings"]
    assert {p["source"]: p["target"] for p in pairs if p["source"].endswith("weight")} == {
        "left.weight": "b.weight",
        "right.weight": "a.weight",
        "fc.weight": "head.weight",
    }
    assert [p["source"] for p in pairs][:2] == ["left.weight", "left.bias"]
    assert "#= dataflow 1.00" in (tmp_path / "map.toml").read_text(encoding="utf-8")
    assert main([*sides, "--trial"]) == 2
    assert "a trial needs inputs" in capsys.readouterr().err
