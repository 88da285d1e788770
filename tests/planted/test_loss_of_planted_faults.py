"""A classifier trained by torch and by MindSpore: faults of the training get their class, the clean port gets none."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.compare_losses import compare_losses

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]
PORT = Path(__file__).with_name("train_port.py")
port = SimpleNamespace(**runpy.run_path(str(PORT)))
ROWS, EPOCHS = 640, 20
ORIGINALS = {"original": port.Training(), "Adam": port.ADAM, "dropout": port.Training(dropout=0.3)}


def _data() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 20)).astype(np.float32)
    scores = x @ rng.normal(size=(20, 10)) + 1.5 * rng.normal(size=(ROWS, 10))
    return {
        "x": x,
        "y": np.argmax(scores, axis=1).astype(np.int32),
        "w1": (rng.normal(size=(64, 20)) / 4.5).astype(np.float32),
        "w2": (rng.normal(size=(10, 64)) / 8.0).astype(np.float32),
        "order": np.stack([rng.permutation(ROWS) for _ in range(EPOCHS)]),
    }


def _train_original(training: Any, data: dict[str, Any]) -> list[float]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    first, last = (nn.Linear(w.shape[1], w.shape[0]) for w in (data["w1"], data["w2"]))
    for layer, weight in ((first, data["w1"]), (last, data["w2"])):
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.zero_()
    net = nn.Sequential(first, nn.ReLU(), nn.Dropout(training.dropout), last)
    optimizer: torch.optim.Optimizer
    if training.optimizer == "sgd":
        optimizer = torch.optim.SGD(net.parameters(), 1.0, port.MOMENTUM, weight_decay=training.weight_decay)
    else:
        optimizer = torch.optim.Adam(net.parameters(), 1.0, eps=training.epsilon)
    losses = []
    for rate, x, y in training.batches(data):
        optimizer.param_groups[0]["lr"] = rate
        loss = nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y, dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both sides' logs, by their names."""
    folder, data = tmp_path_factory.mktemp("logs"), _data()
    np.savez(folder / "data.npz", **data)
    for name, training in ORIGINALS.items():
        port.write_log(folder / f"{name}.jsonl", _train_original(training, data), training)
    subprocess.run(
        [sys.executable, "-W", "ignore", PORT, folder / "data.npz", folder, *port.FAULTS], check=True, timeout=300
    )
    return folder


@pytest.mark.parametrize(("original", "candidate"), [("original", "clean"), ("Adam", "clean Adam")])
def test_a_clean_port_trains_as_its_original(original: str, candidate: str, logs: Path) -> None:
    comparison = compare_losses(logs / f"{original}.jsonl", logs / f"{candidate}.jsonl")
    assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.ALIGNED, "")
    assert comparison.verdict.coverage.compared == ROWS // port.BATCH * EPOCHS
    assert [(event.kind, event.step) for event in comparison.events] == [("schedule boundary", 201)] * 2


@pytest.mark.parametrize(
    ("original", "candidate", "trouble", "said"),
    [
        ("original", "lr", "differs from the second step", "--metric lr # they differ from step 1 on"),
        ("Adam", "epsilon", "differs from the second step", "(epsilon, "),
        ("original", "first layer frozen", "differs from the second step", "the optimizer"),
        ("original", "all frozen", "not descending", "lists those that never move"),
        ("original", "weight decay", "stays below the reference", "(weight decay)"),
        ("dropout", "clean", "first loss differs", "dropout"),
        ("original", "shuffling", "noise of its own", "the order of the batches"),
        ("original", "early decay", "differs from a change of the learning rate", "--metric lr # around step 151"),
        ("original", "odd batch", "spike", "with the weights after step 120 on both sides, and the batch of step 121"),
        ("original", "huge lr", "NaN", "--metric lr # they differ from step 1 on; then align nonfinite"),
    ],
)
def test_a_planted_fault_gets_its_class_and_a_command_that_names_it(
    original: str, candidate: str, trouble: str, said: str, logs: Path
) -> None:
    comparison = compare_losses(logs / f"{original}.jsonl", logs / f"{candidate}.jsonl")
    assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, trouble)
    assert said in comparison.next_command
