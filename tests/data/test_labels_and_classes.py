"""Labels are held against the classes that a training's loss takes: what is too large is named, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from align.cli.main import main

SIDES = """
import numpy as np

X = np.random.default_rng(0).standard_normal((48, 4)).astype(np.float32)
Y = np.arange(48) % 3
LABELS = {
    "clean": Y,
    "planted": np.where(np.arange(48) == 40, 3, Y),
    "ignored": np.where(np.arange(48) % 7 == 0, 255, Y),
    "left_out": np.where(np.arange(48) % 7 == 0, -100, Y),
}


def torch_data(name):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    return DataLoader(TensorDataset(torch.tensor(X), torch.tensor(LABELS[name])), batch_size=8)


def mindspore_data(name):
    from mindspore.dataset import NumpySlicesDataset

    return NumpySlicesDataset({"x": X, "label": LABELS[name].astype(np.int32)}, shuffle=False).batch(8)


def torch_training(loss=None, outputs=3, step=None, **options):
    import torch

    model = torch.nn.Linear(4, outputs)
    loss = loss or torch.nn.CrossEntropyLoss(**options)
    return model, loss, torch.optim.SGD(model.parameters(), 0.1), step and step(model, loss)


def mindspore_training(**options):
    from mindspore import nn

    model = nn.Dense(4, 3)
    return model, nn.CrossEntropyLoss(**options), nn.SGD(model.trainable_params(), 0.1)


def torch_255():
    return torch_training(ignore_index=255)


def mindspore_255():
    return mindspore_training(ignore_index=255)


def regression():
    return torch_training(lambda outputs, label: ((outputs[:, 0] - label) ** 2).mean(), 1)


def embedding():
    return torch_training(lambda outputs, label: (outputs[label == 0] - outputs[label == 1].mean(0)).norm(), 2)


def masking():
    def step(model, loss):
        return lambda batch: loss(model(batch["x"])[batch["label"] < 3], batch["label"][batch["label"] < 3])

    return torch_training(step=step)


def broken():
    raise RuntimeError("no weights here")
"""
for side in ("torch", "mindspore"):
    for name in ("clean", "planted", "ignored", "left_out"):
        SIDES += f"\n\ndef {side}_{name}():\n    return {side}_data({name!r})\n"


@pytest.fixture
def found(tmp_path, monkeypatch, capsys):
    """What `align data` finds of the labels: side, severity and message of each finding; the caveats; the exit code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sides.py").write_text(SIDES)
    x, label = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32), np.arange(8) % 3
    np.savez(tmp_path / "batch.npz", x=x, label=label)
    np.savez(tmp_path / "from_one.npz", x=x, label=label + 1)

    def find(labels, *options, batch="batch.npz"):
        given = [f"sides.py:torch_{labels}", f"sides.py:mindspore_{labels}", *options, "--batch", batch, "--json"]
        code = main(["data", *given])
        document = json.loads(capsys.readouterr().out)
        outside = [finding for finding in document["findings"] if finding["code"] == "labels-outside"]
        return [(one["severity"], one["message"]) for one in outside], document["verdict"]["caveats"], code

    return find


BOTH = ("--training", "sides.py:torch_training", "--candidate-training", "sides.py:mindspore_training")


@pytest.mark.frameworks
def test_a_label_too_large_is_named_with_the_loss_that_says_so(found):
    findings, _, code = found("planted", *BOTH)
    assert code == 1
    assert [severity for severity, _ in findings] == ["error", "error"]
    for (_, message), side, framework in zip(findings, ("reference", "candidate"), ("torch", "mindspore"), strict=True):
        assert message.startswith(f"the {side} has 1 label outside of 0 to 3 - 1 (from 0 to 3): ")
        assert f"the loss of sides.py:{framework}_training takes 3 classes and leaves -100 out" in message
        assert "`CUDA error: device-side assert triggered`" in message


@pytest.mark.frameworks
def test_a_batch_whose_own_labels_are_no_class_tells_the_classes_all_the_same(found):
    findings, caveats, _ = found("planted", *BOTH[:2], batch="from_one.npz")
    assert (len(findings), caveats) == (1, [])


@pytest.mark.frameworks
def test_clean_labels_and_those_that_a_loss_leaves_out_raise_no_alarm(found):
    assert found("clean", *BOTH) == ([], [], 0)
    assert found("left_out", *BOTH) == ([], [], 0)
    assert len(found("ignored", *BOTH)[0]) == 2
    ignoring = ("--training", "sides.py:torch_255", "--candidate-training", "sides.py:mindspore_255")
    assert found("ignored", *ignoring) == ([], [], 0)
    assert len(found("left_out", *ignoring)[0]) == 2


@pytest.mark.frameworks
def test_outputs_of_no_class_loss_say_nothing_of_labels(found):
    for training in ("regression", "embedding"):
        assert found("planted", "--training", f"sides.py:{training}") == ([], [], 0)


@pytest.mark.frameworks
def test_a_step_that_may_leave_labels_out_gives_a_warning_and_no_difference(found):
    ((severity, message),), _, code = found("planted", "--training", "sides.py:masking")
    assert (severity, code) == ("warning", 0)
    assert "unless the step leaves them out itself" in message


@pytest.mark.frameworks
def test_a_training_that_fails_leaves_the_data_compared_and_is_said(found):
    findings, (caveat,), code = found("planted", "--training", "sides.py:broken")
    assert (findings, code) == ([], 0)
    assert "labels were not held against the classes of sides.py:broken" in caveat
    assert "no weights here" in caveat


@pytest.mark.frameworks
def test_the_rung_of_the_data_asks_the_trainings_of_the_project(found, tmp_path, capsys):
    (tmp_path / "align.toml").write_text(
        '[reference]\ndata = "sides.py:torch_planted"\ntraining = "sides.py:torch_training"\n'
        '[candidate]\ndata = "sides.py:mindspore_planted"\ntraining = "sides.py:mindspore_training"\n'
        '[training]\nbatch = "batch.npz"\n'
    )
    assert main(["run", "--only", "data"]) == 1
    capsys.readouterr()
    rungs = {rung["name"]: rung for rung in json.loads((tmp_path / "align-run" / "ladder.json").read_text())["rungs"]}
    assert [culprit["place"] for culprit in rungs["data"]["culprits"]] == ["1", "label"]
    assert {"training", "candidate-training", "batch"} <= rungs["data"]["made_from"].keys()


def test_options_that_need_each_other_are_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    (tmp_path / "b.npz").touch()
    assert main(["data", "a.py:a", "a.py:b", "--training", "a.py:t"]) == 2
    assert main(["data", "a.py:a", "a.py:b", "--batch", "b.npz"]) == 2
    assert main(["data", "a.py:a", "a.py:b", "--training", "a.py:t", "--batch", "b.npz", "--classes", "3"]) == 2
    assert "--classes gives the number of classes" in capsys.readouterr().err
