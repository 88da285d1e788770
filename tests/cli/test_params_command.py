"""`align params` from the command line: both frameworks, exit codes, JSON, and what a function may return."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

SIDES = """
import numpy as np


def batch():
    return {"x": np.ones((4, 3), np.float32) * np.arange(4, dtype=np.float32)[:, None], "label": np.arange(4) % 2}


def clean(unused=False):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    if unused:
        model.register_module("unused", torch.nn.Identity())
        model.unused.bare = torch.nn.Parameter(torch.ones(2))
    return model, torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())


def unused():
    model, loss, optimizer = clean(unused=True)
    return {"model": model, "loss": loss, "optimizer": optimizer}


def model_alone():
    return clean()[0]
"""


@pytest.fixture(autouse=True)
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def params(*arguments: str) -> int:
    return main(["params", *arguments, "--batch", "train.py:batch"])


def test_a_clean_side_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert params("train.py:clean", "--all") == 0
    shown = capsys.readouterr().out
    assert "one step trains all 4 trainable parameters" in shown
    assert "0.weight" in shown


def test_what_is_not_trained_is_listed_with_its_reason_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert params("train.py:unused", "--run", "run", "--ddp-indices", "4") == 1
    shown = capsys.readouterr().out
    assert "unused.bare" in shown
    assert "the result is not used" in " ".join(shown.split())
    document = json.loads((tmp_path / "run" / "params.json").read_text(encoding="utf-8"))
    assert (document["schema"], document["asked"][0]["name"]) == ("mindalign.params/2", "unused.bare")


def test_two_sides_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert params("train.py:clean", "train.py:unused", "--json") == 0
    assert json.loads(capsys.readouterr().out)["unlike"] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train.py:model_alone"], "not a model with its loss and optimizer"),
        (["train.py:clean", "--ddp-indices", "x"], "which is not a number"),
        (["train.py:nothing"], "does not exist"),
    ],
)
def test_a_wrong_line_ends_in_one_message(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert params(*arguments) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Hint:" in said
