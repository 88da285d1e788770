"""`align step` from the command line: exit codes, JSON, the run folder, and what cannot be compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main
from align.report.show_result import result_blocks
from align.words.catalogue import say

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

SIDES = """
import numpy as np
import torch


def batch():
    return {"x": np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32), "label": np.arange(6) % 2}


def other_batch():
    return {"x": np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32), "label": np.arange(4) % 2}


def clean(loss=None, frozen=False, betas=(0.9, 0.999)):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    optimizer = torch.optim.Adam(model.parameters(), betas=betas)
    if frozen:
        model.requires_grad_(False)
    return model, loss or torch.nn.CrossEntropyLoss(), optimizer


def summed():
    return clean(torch.nn.CrossEntropyLoss(reduction="sum"))


def forgetful():
    return clean(betas=(0.8, 0.999))


def unreduced():
    return clean(torch.nn.CrossEntropyLoss(reduction="none"))


def bare():
    return torch.nn.Sequential(torch.nn.ReLU()), torch.nn.CrossEntropyLoss(), None



def cut():
    return clean(lambda outputs, label: torch.nn.functional.cross_entropy(outputs.detach(), label))


def tied():
    model, loss, _ = clean()
    model[2] = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 5), torch.nn.Linear(5, 2))
    model[2][1].weight = model[2][0].weight
    return model, loss, torch.optim.Adam(model.parameters())


def frozen():
    return clean(frozen=True)


def raises():
    def loss(outputs, label):
        raise ValueError("not so")

    return clean(loss)
"""


@pytest.fixture(autouse=True)
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SIDES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def step(candidate: str, *options: str) -> int:
    return main(["step", "train.py:clean", f"train.py:{candidate}", "--batch", "train.py:batch", *options])


def test_the_same_side_twice_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    assert step("clean", "--all") == 0
    shown = capsys.readouterr().out
    assert "4 gradients of parameters agree" in shown
    assert ".bias" in shown
    assert "Both sides trained on their own" in shown
    assert "exp_avg_sq" in shown


def test_a_fault_ends_with_1_and_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert step("summed", "--json", "--run", "run", "--steps", "1") == 1
    document = json.loads(capsys.readouterr().out)
    assert [(one["part"], one["cause"], one["sureness"]) for one in document["culprits"]] == [
        ("loss", "loss-reduction", "confirmed")
    ]
    assert len(document["losses"]) == document["steps"] == 1
    assert json.loads((tmp_path / "run" / "step.json").read_text("utf-8"))["culprits"] == document["culprits"]
    (table,) = [
        one for one in result_blocks(document, show_all=True) if getattr(one, "title", "") == say("step.parted")
    ]
    names, gradients, optimizer, both, *still = zip(*(row.cells for row in table.rows), strict=True)
    assert names == ("all parameters", *(one["candidate"] for one in document["apart"]))
    assert gradients == both
    assert 0 < float(both[0]) < 1e-4  # the sum over the samples changes the gradients, and Adam's first step hardly
    assert set(optimizer) | set(still[0]) | set(still[1]) == {"0"}


def test_batches_are_taken_one_after_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = "--batch", "train.py:other_batch", "--json"
    assert step("clean", *batches, "--steps", "3", "--run", "run") == 0
    losses = json.loads(capsys.readouterr().out)["losses"]
    assert [one["reference"] for one in losses] == [one["candidate"] for one in losses]
    assert (
        abs(losses[0]["reference"] - losses[2]["reference"])
        < 0.01
        < abs(losses[0]["reference"] - losses[1]["reference"])
    )
    assert "batch 2" in json.loads((tmp_path / "run" / "step.json").read_text("utf-8"))["made_from"]
    assert step("forgetful", "--steps", "1") == 0  # the first step of Adam is the same for all of its betas
    capsys.readouterr()
    assert step("forgetful", *batches, "--steps", "1") == 1
    assert [one["cause"] for one in json.loads(capsys.readouterr().out)["culprits"]] == ["beta1"]


@pytest.mark.parametrize(
    ("candidate", "options", "told"),
    [
        ("unreduced", (), "no single number"),
        ("frozen", (), "no trainable parameter"),
        ("bare", (), "no trainable parameter"),
        ("raises", (), "not so"),
        ("nothing", (), "nothing"),
        ("clean", ("--steps", "0"), "0 is no number of steps"),
        ("clean", ("--map", "none.toml"), "none.toml"),
    ],
)
def test_what_cannot_be_compared_ends_with_2_and_a_hint(
    candidate: str, options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert step(candidate, *(options or ("--steps", "1"))) == 2
    shown = capsys.readouterr().err
    assert told in " ".join(shown.split())
    assert "Hint:" in shown
    assert "Traceback" not in shown


def test_gradients_that_neither_side_has_are_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["step", "train.py:cut", "train.py:cut", "--batch", "train.py:batch", "--steps", "1"]) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "no gradient of a parameter could be compared; align params gives the reason for each" in shown


def test_gradients_that_one_side_lacks_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert step("cut", "--json", "--steps", "1") == 1
    document = json.loads(capsys.readouterr().out)
    assert "no-gradient" in {one["cause"] for one in document["culprits"]}


def test_a_tied_weight_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    sides = "train.py:tied", "train.py:tied", "--batch", "train.py:batch"
    assert main(["step", *sides, "--steps", "1", "--json"]) == 0
    names = [one["reference"] for one in json.loads(capsys.readouterr().out)["gradients"]]
    assert len(names) == len(set(names)) == 7
