"""The groups that an optimizer of a port lacks, written where its parameters are listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from align.cli.main import main
from align.fixes.group_parameters import _grouped
from align.runs.run_folder import RunFolder

ORIGINAL = """import torch


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))


def training():
    net = model()
    return net, torch.nn.functional.cross_entropy, {optimizer}
"""
PORT = """from mindspore import nn
from mindspore.experimental import optim


def model():
    return nn.SequentialCell(nn.Dense(4, 8), nn.BatchNorm1d(8), nn.Dense(8, 3))


def training():
    net = model()
    params = net.trainable_params()
    return net, nn.CrossEntropyLoss(), {optimizer}  # as published
"""
PROJECT = """[reference]
model = "original.py:model"
training = "original.py:training"

[candidate]
model = "port.py:model"
training = "port.py:training"

[training]
batch = "batch.npz"

[run]
rungs = ["parameters", "loss", "gradients", "optimizer"]
"""
GROUPS = """torch.optim.AdamW(
        [
            {"params": [one for one in net.parameters() if one.ndim > 1], "weight_decay": 0.5},
            {"params": [one for one in net.parameters() if one.ndim == 1], "weight_decay": 0.0},
        ],
        lr=0.1,
    )"""
UNDECAYED = ("torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)",
             "nn.Momentum(params, 0.1, 0.9, weight_decay=0.5)",
             'nn.Momentum([{"params": params, "weight_decay": 0.5}], 0.1, 0.9, weight_decay=0.5)')  # fmt: skip
UNGROUPED = (GROUPS, "optim.AdamW(net.trainable_params(), lr=0.1, weight_decay=0.5)",
             'optim.AdamW([{"params": [param for param in net.trainable_params() if param.ndim < 2], '
             '"weight_decay": 0.0}, {"params": [param for param in net.trainable_params() if param.ndim >= 2], '
             '"weight_decay": 0.5}], lr=0.1, weight_decay=0.5)')  # fmt: skip


@pytest.mark.frameworks
@pytest.mark.parametrize(("reference", "before", "after"), [UNDECAYED, UNGROUPED], ids=["gamma and beta", "no groups"])
def test_what_a_run_proposes_for_groups_is_written_though_no_forward_pass_was_compared(
    reference, before, after, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("original.py").write_text(ORIGINAL.format(optimizer=reference))
    Path("port.py").write_text(PORT.format(optimizer=before))
    Path("align.toml").write_text(PROJECT)
    generator = np.random.default_rng(0)
    batch = {"x": generator.normal(size=(16, 4)).astype(np.float32), "labels": generator.integers(0, 3, 16)}
    np.savez("batch.npz", **batch)
    assert main(["run"]) == 1
    told = capsys.readouterr().out
    assert "optimizer: another weight decay, at port.py:" in told
    assert "\n    align fix\n" in told
    assert main(["fix"]) == 1
    assert f"+    return net, nn.CrossEntropyLoss(), {after}  # as published" in capsys.readouterr().out
    assert not RunFolder(Path("align-run")).file("forward").is_file()
    assert main(["fix", "--apply"]) == 0
    assert Path("port.py").read_text() == PORT.format(optimizer=after)
    fix = RunFolder(Path("align-run")).read("fix")
    assert [one["state"] for one in fix["after"]["faults"]] == ["gone"]
    assert {one["name"]: one["after"] for one in fix["after"]["rungs"]}["optimizer"] == "passed"


def test_parameters_are_told_by_dimensions_or_the_end_of_their_names_or_not_at_all():
    dimensions = {"a.weight": 2, "a.bias": 1, "n.gamma": 1, "n.beta": 1}
    of_names = 'param.name.endswith((".beta", ".gamma",))'
    assert _grouped("ps", dict.fromkeys(dimensions, 0.1), dimensions) == '[{"params": ps, "weight_decay": 0.1}]'
    some = dict.fromkeys(dimensions, 0.1) | {"n.gamma": 0.0, "n.beta": 0.0}
    assert _grouped("ps", some, dimensions) == (
        f'[{{"params": [param for param in ps if {of_names}], "weight_decay": 0.0}}, '
        f'{{"params": [param for param in ps if not {of_names}], "weight_decay": 0.1}}]'
    )
    assert _grouped("ps", some | {"a.bias": 0.3}, dimensions) == "", "three values"
    assert _grouped("ps", some, {**dimensions, "other.gamma": 1}) == "", "one is not known"
    two = {"b.gamma": 1, **dimensions}
    assert _grouped("ps", {"b.gamma": 0.1, **some}, two) == "", "names end alike"
    of_root = {"scale": 2, "fc.scale": 2, "fc.weight": 2}
    assert _grouped("ps", dict.fromkeys(of_root, 0.1) | {"scale": 0.0}, of_root) == "", "one ends as a whole name"
    assert _grouped("ps", dict.fromkeys(of_root, 0.1) | {"fc.weight": 0.0}, of_root) != ""
