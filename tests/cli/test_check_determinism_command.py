"""`align check-determinism` from the command line: both frameworks, exit codes, JSON, and wrong lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.frameworks

SIDES = """
import numpy as np

RNG = np.random.default_rng(0)


def batch():
    return {"x": np.ones((4, 3), np.float32), "label": np.arange(4) % 2}


def reference():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    return model, torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())


def port():
    from mindspore import nn

    model = nn.SequentialCell(nn.Dense(3, 4), nn.Dropout(p=0.5), nn.Dense(4, 2))
    return model, nn.CrossEntropyLoss(), nn.Adam(model.trainable_params())


def faulty():
    model, loss, optimizer = reference()
    return model, lambda outputs, label: loss(outputs, label) * RNG.uniform(1, 2), optimizer


def model_alone():
    return reference()[0]
"""


@pytest.fixture(autouse=True)
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import mindspore
    import torch

    (tmp_path / "train.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    seed = mindspore.dataset.config.get_seed()
    yield
    torch.use_deterministic_algorithms(mode=False)
    mindspore.dataset.config.set_seed(seed)
    mindspore.set_context(deterministic="OFF")


def check(*arguments: str) -> int:
    return main(["check-determinism", *arguments, "--batch", "train.py:batch"])


def test_two_clean_sides_end_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("train.py:reference", "train.py:port", "--seed", "5") == 0
    assert "both sides give the same twice, bit for bit" in capsys.readouterr().out


def test_a_side_that_differs_from_itself_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("train.py:port", "train.py:faulty", "--run", "run", "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    document = json.loads((tmp_path / "run" / "determinism.json").read_text(encoding="utf-8"))
    assert (document["schema"], document["sides"]) == ("mindalign.determinism/2", printed["sides"])
    assert [side["cause"] for side in document["sides"]] == ["", "own generator"]
    assert document["sides"][1]["first"]["part"] == "loss"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train.py:model_alone"], "not a model with its loss and optimizer"),
        (["train.py:reference", "--threads", "0"], "no number of threads"),
        (["train.py:nothing"], "does not exist"),
    ],
)
def test_a_wrong_line_ends_in_one_message(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*arguments) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Hint:" in said
