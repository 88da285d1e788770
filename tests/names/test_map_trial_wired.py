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


def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str = PAIR) -> list[str]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.py").write_text(text, encoding="utf-8")
    return ["map", "pair.py:original", "pair.py:port"]


@pytest.mark.frameworks
def test_what_a_pair_rests_on_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [*_folder(tmp_path, monkeypatch), "--inputs", "pair.py:x", "--trial", "--explain"]
    assert main([*sides, "b.weight"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("left.weight = b.weight\n")
    assert "The same 4 rows of 8 numbers go into both" in told
    assert main([*sides, "fc.wight"]) == 2
    assert "did you mean fc.weight" in capsys.readouterr().err


@pytest.mark.frameworks
def test_models_run_only_where_names_leave_something_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = _folder(tmp_path, monkeypatch)
    given = ["--inputs", "pair.py:x", "--trial-if-open", "--json"]
    assert main([*sides, *given]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("4 pairs by the flow of the data" in one for one in told["warnings"])
    assert main(["map", "pair.py:original", "pair.py:original", *given]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not told["warnings"]
    assert {one["evidence"] for one in told["name_map"]["pairings"]} == {"name"}


@pytest.mark.frameworks
def test_a_model_that_cannot_run_keeps_the_map_of_names_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = _folder(tmp_path, monkeypatch, PAIR.replace("taken = self.a(x)", "raise RuntimeError('no such card')"))
    given = ["--inputs", "pair.py:x", "--json"]
    assert main([*sides, *given, "--trial-if-open"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert any("no such card" in one and one.startswith("names alone decide") for one in told["warnings"])
    assert len(told["name_map"]["ambiguous"]) == 2
    assert main([*sides, *given, "--trial"]) == 2


@pytest.mark.frameworks
def test_a_model_that_draws_random_numbers_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAIR.replace("self.left(x).relu()", "(self.left(x) + __import__('torch').rand(8)).relu()")
    sides = _folder(tmp_path, monkeypatch, text)
    main([*sides, "--inputs", "pair.py:x", "--trial-if-open", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert any("pair.py:original draws random numbers" in one for one in told["warnings"])
    assert "dataflow" not in {one["evidence"] for one in told["name_map"]["pairings"]}


@pytest.mark.frameworks
def test_an_interrupted_run_keeps_what_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from align.names.dataflow.settle_by_dataflow import Dataflow

    follow, runs = Dataflow.follow, []

    def interrupted(self: Dataflow, orders: object) -> object:
        runs.append(orders)
        if len(runs) > 1:
            raise KeyboardInterrupt
        return follow(self, orders)  # type: ignore[arg-type]

    monkeypatch.setattr(Dataflow, "follow", interrupted)
    sides = _folder(tmp_path, monkeypatch)
    code = main([*sides, "--inputs", "pair.py:x", "--trial-if-open", "--out", "map.toml", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 1
    assert any(one.startswith("interrupted: what was settled so far is kept") for one in told["warnings"])
    assert (tmp_path / "map.toml").is_file()


@pytest.mark.frameworks
def test_a_trial_says_how_the_weights_of_two_checkpoints_hang_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pair.py").write_text(PAIR, encoding="utf-8")
    torch.manual_seed(0)
    weights = {name: torch.randn(3 if name == "fc" else 8, 8) for name in ("left", "right", "fc")}
    biases = {name: torch.randn(len(weight)) for name, weight in weights.items()}
    names = {"left": "b", "right": "a", "fc": "head"}
    port = {names[name]: weight.clone() for name, weight in weights.items()}
    port["head"], port["a"] = 8 * port["head"], port["a"].T.contiguous()
    for path, values, own in (("a.pth", weights, {}), ("b.pth", port, names)):
        held = {f"{name}.weight": value for name, value in values.items()}
        torch.save({**held, **{f"{own.get(name, name)}.bias": bias for name, bias in biases.items()}}, path)
    files = ["--reference-checkpoint", "a.pth", "--candidate-checkpoint", "b.pth"]
    main(["map", "pair.py:original", "pair.py:port", *files, "--inputs", "pair.py:x", "--trial", "--json"])
    document = json.loads(capsys.readouterr().out)
    said = [text for text in document["warnings"] if "makes both equal" in text]
    assert len(said) == 2, document["warnings"]
    assert '"fc.weight" = { to = "head.weight", op = "scale", factor = 8.0 }' in " ".join(said)
    assert '"right.weight" = { to = "a.weight", op = "permute", axes = [1, 0] }' in " ".join(said)
