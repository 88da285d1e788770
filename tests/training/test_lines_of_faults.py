"""The line of the port that makes a wrong loss or a wrong optimizer, and the optimizer to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.training.compare_training_step import compare_training_step

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

SIDE = """
import torch
from torch import nn
{head}
def training():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    return net, {loss}, optimizer
"""
PORT = """
from mindspore import nn, experimental
def training():
    net = nn.SequentialCell(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 4))
    optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01, weight_decay=0.1)
    return net, nn.CrossEntropyLoss(), optimizer
"""
OWN_LOSS = """
def own_loss(outputs, label):
    return nn.functional.cross_entropy(outputs, label, reduction="sum")
"""
BATCH = {"input": np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32), "label": np.arange(5) % 4}


def side(folder: Path, name: str, source: str) -> str:
    (folder / name).write_text(source)
    return f"{folder / name}:training"


@pytest.mark.parametrize(
    ("head", "loss", "line"),
    [("", "nn.CrossEntropyLoss(label_smoothing=0.1)", "other.py:9"), (OWN_LOSS, "own_loss", "other.py:5")],
    ids=["a class", "a function of the user's own"],
)
def test_a_wrong_loss_has_the_line_that_makes_it(tmp_path: Path, head: str, loss: str, line: str) -> None:
    reference = side(tmp_path, "one.py", SIDE.format(head="", loss="nn.CrossEntropyLoss()"))
    candidate = side(tmp_path, "other.py", SIDE.format(head=head, loss=loss))
    result = compare_training_step(reference, candidate, batch=BATCH, steps=1)
    assert [(one.part, one.line) for one in result.culprits if one.kind == "loss"] == [("loss", line)]


def test_an_optimizer_of_another_rule_is_told_what_to_write_instead(tmp_path: Path) -> None:
    adam_w = SIDE.replace(
        "torch.optim.SGD(net.parameters(), 0.1)", "torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.1)"
    )
    reference = side(tmp_path, "one.py", adam_w.format(head="", loss="nn.CrossEntropyLoss()"))
    result = compare_training_step(reference, side(tmp_path, "port.py", PORT), batch=BATCH, steps=2)
    told = {(one.line, one.change) for one in result.culprits if "decay_form" in one.facts}
    assert told == {("port.py:5", "mindspore.experimental.optim.AdamW(...)")}
