"""Captured training steps of both frameworks: optimizer, loss and lengths of the data are compared by meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import UnreadableSettingsError

if TYPE_CHECKING:
    from pathlib import Path

BATCH = {"x": np.ones((2, 4), np.float32), "target": np.zeros(2, np.int32)}


def of_torch(folder: Path, rows: int) -> Path:
    import torch
    from torch.utils.data import DataLoader

    body, norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    groups: list[Any] = [{"params": norm.parameters(), "weight_decay": 0.0}, {"params": body.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.05)
    batch = {**BATCH, "target": BATCH["target"].astype(np.int64)}
    loader = DataLoader(torch.ones(rows, 4), 2)  # type: ignore[arg-type]
    side = align.Training(torch.nn.Sequential(body, norm), torch.nn.CrossEntropyLoss(), optimizer)
    align.capture_training_step(side, folder, batch=batch, steps=1, data=loader)
    return folder


def of_mindspore(folder: Path, rows: int) -> Path:
    from mindspore import dataset, mint, nn
    from mindspore.experimental import optim

    net = nn.SequentialCell(mint.nn.Linear(4, 4), nn.LayerNorm((4,)))
    optimizer = optim.AdamW(net.trainable_params(), lr=1e-3, weight_decay=0.1)
    data = dataset.NumpySlicesDataset({"x": np.ones((rows, 4))}, shuffle=False).batch(2)
    side = align.Training(net, nn.CrossEntropyLoss(), optimizer)
    align.capture_training_step(side, folder, batch=BATCH, steps=1, data=data)
    return folder


@pytest.mark.frameworks
def test_what_differs_of_two_captured_trainings_is_named_and_no_more(tmp_path: Path) -> None:
    result = align.compare_hyperparameters(of_torch(tmp_path / "a", 10), of_mindspore(tmp_path / "b", 20))
    found = {one.parameter: (one.reference.value, one.candidate.value) for one in result.differences}
    assert found == {
        "weight_decay": ("0.05", "0.1"),
        "samples": ("10", "20"),
        "batches_per_epoch": ("5", "10"),
    }
    equal = {one.parameter for one in result.equal}
    assert {
        "learning_rate",
        "optimizer",
        "beta1",
        "beta2",
        "epsilon",
        "global_batch",
        "loss",
        "label_smoothing",
    } <= equal


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "other/1"}', "[" * 3000])
def test_a_damaged_description_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "steps.json").write_text(text)
    with pytest.raises(UnreadableSettingsError, match="damaged, or of another version"):
        align.compare_hyperparameters(tmp_path, tmp_path)


def test_a_description_with_strange_values_is_refused(tmp_path: Path) -> None:
    group = {"group": {"settings": {"classes": ["x.Adam"], "values": {"lr": "a"}}}}
    other = {"group": {"settings": {"classes": ["x.Adam"], "values": {"lr": 1}}}}
    document = {"schema": "mindalign.training-steps/1", "environment": {}, "groups": [group, other], "loss": None}
    (tmp_path / "steps.json").write_text(json.dumps(document))
    with pytest.raises(UnreadableSettingsError, match="damaged, or of another version"):
        align.compare_hyperparameters(tmp_path, tmp_path)
