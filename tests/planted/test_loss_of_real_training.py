"""A net trained by torch and by MindSpore on the same data: the clean port aligns, planted changes get their class."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.curves.compare_losses import compare_losses

PORT = Path(__file__).parents[1] / "curves" / "data" / "train_lossmonitor.py"
EPOCHS, STEPS = 4, 5


def _train_original(log: Path) -> None:
    """Train in torch what the port trains, and log every step from 0."""
    import torch

    rng = np.random.default_rng(1)
    net = torch.nn.Linear(4, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(rng.normal(size=(2, 4)).astype(np.float32)))
        net.bias.zero_()
    rows = [(rng.normal(size=4).astype(np.float32), rng.normal(size=2).astype(np.float32)) for _ in range(STEPS * 2)]
    batches = [
        tuple(torch.tensor(np.stack(part)) for part in zip(*rows[i : i + 2], strict=True))
        for i in range(0, len(rows), 2)
    ]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with log.open("w", encoding="utf-8") as stream:
        for step in range(EPOCHS * STEPS):
            inputs, targets = batches[step % STEPS]
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            stream.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("original") / "torch.jsonl"
    _train_original(log)
    return log


# One after the other in one process: MindSpore's import takes longer than all of them.
PORTS = ("1", "2", "1 lr=0.2", "1 shift=0.2")
TRAIN_ALL = """
import contextlib, runpy, sys
script, folder, epochs, steps, *ports = sys.argv[1:]
for port in ports:
    sys.argv = [script, epochs, steps, *port.split()]
    with open(f"{folder}/{port}.log", "w") as log, contextlib.redirect_stdout(log):
        runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each port prints, in a file with the name of its arguments: how often it prints, and what is planted."""
    folder = tmp_path_factory.mktemp("ports")
    command = [sys.executable, "-c", TRAIN_ALL, PORT, folder, str(EPOCHS), str(STEPS), *PORTS]
    subprocess.run(command, capture_output=True, timeout=300, check=True)
    return folder


@pytest.mark.frameworks
@pytest.mark.parametrize("interval", [1, 2])
def test_a_clean_port_stays_with_its_original(interval: int, original: Path, ports: Path) -> None:
    comparison = compare_losses(original, ports / f"{interval}.log")
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert comparison.verdict.coverage.compared == EPOCHS * STEPS // interval
    assert np.abs(comparison.points.difference).max() < 1e-5


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("planted", "trouble", "step"),
    [("lr=0.2", "differs from the second step", 3), ("shift=0.2", "first loss differs", 1)],
)
def test_a_planted_change_gets_its_class_and_its_step(
    planted: str, trouble: str, step: int, original: Path, ports: Path
) -> None:
    comparison = compare_losses(original, ports / f"1 {planted}.log")
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    between = comparison.divergent_steps
    assert comparison.trouble == trouble
    assert between is not None
    assert between.first <= step <= between.last <= between.first + 2
    # A rate shows in the second step, within the limit; in the third it is far beyond.
    assert step - 1 <= between.most_likely <= step
