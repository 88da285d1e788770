"""The layer that moves a training's loss, found among others that do not, in both frameworks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import CannotRunError, SideError, UsageError

GENERATOR = np.random.default_rng(0)
BATCH = {
    "x": GENERATOR.standard_normal((16, 8)).astype(np.float32),
    "target": GENERATOR.integers(0, 3, 16),
}


def torch_training(large: float = 1000.0, *, evaluates: bool = False) -> align.Training:
    """What `Wide` computes inside leaves the range of float16 where `large` is 1000."""
    import torch
    from torch import nn

    class Wide(nn.Module):
        def forward(self, x: Any) -> Any:
            return ((x + 1) * large) ** 2 / large**2

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), Wide(), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))
    model.train(not evaluates)
    return align.Training(model, nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), 1e-2))


def network_training(large: float = 1000.0) -> align.Training:
    import mindspore
    from mindspore import nn

    class Wide(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ((x + 1) * large) ** 2 / large**2

    mindspore.set_seed(0)
    model = nn.SequentialCell(nn.Dense(8, 16), nn.GELU(), Wide(), nn.BatchNorm1d(16), nn.Dense(16, 3))
    return align.Training(model, nn.CrossEntropyLoss(), nn.Adam(model.trainable_params(), 1e-2))


@pytest.mark.frameworks
def test_the_layer_of_a_torch_training_that_float16_is_too_narrow_for_is_found() -> None:
    training = torch_training()
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    found = align.bisect_training(training, batch=BATCH, steps=4, precision="float16")
    assert [(one.module, one.class_name) for one in found.layers] == [("2", "Wide")]
    assert (found.tried, found.not_run, found.complete) == (6, {}, True)
    assert (found.all_factor, found.rest_factor <= 1.0) == (float("inf"), True)
    assert found.noise < 1e-5 < found.limit
    assert found.verdict.outcome is Outcome.NOT_ALIGNED
    clean = align.bisect_training(torch_training(1.0), batch=BATCH, steps=4, precision="float16")
    assert (clean.layers, clean.verdict.outcome, clean.runs) == ((), Outcome.ALIGNED, 5)
    assert 0.0 < clean.all_moved < clean.limit
    assert all(bool((before[name] == value).all()) for name, value in training.model.state_dict().items())
    assert not any("forward" in vars(module) for module in training.model.modules())


@pytest.mark.frameworks
def test_gradients_and_statistics_reach_the_layers_own_tensors() -> None:
    wide = align.bisect_training(torch_training(1.0), batch=BATCH, steps=6, precision="float64")
    assert wide.all_moved < 1e-5
    assert wide.tried == 6


@pytest.mark.frameworks
def test_the_cell_of_a_mindspore_training_is_found_and_cells_without_a_kernel_are_named() -> None:
    found = align.bisect_training(network_training(), batch=BATCH, steps=2, precision="float16")
    assert [(one.module, one.class_name) for one in found.layers] == [("2", "Wide")]
    assert list(found.not_run) == ["3"]
    assert found.verdict.coverage.excluded == 1
    clean = align.bisect_training(network_training(1.0), batch=BATCH, steps=2, precision="float16", limit=0.01)
    assert (clean.layers, clean.limit) == ((), 0.01)
    with pytest.raises(CannotRunError, match="MindSpore cannot run single layers on another device"):
        align.bisect_training(network_training(), batch=BATCH, steps=1, device="CPU")


@pytest.mark.frameworks
@pytest.mark.parametrize("make", [torch_training, network_training])
def test_another_implementation_of_a_layer_is_found_and_the_same_one_moves_nothing(make: Any) -> None:
    def flat(path: str, layer: Any) -> Any:
        return (lambda x: layer(x) * 3.0) if path == "3" else layer

    def only_norms(_path: str, layer: Any) -> Any:
        return layer if type(layer).__name__ == "BatchNorm1d" else None

    found = align.bisect_training(make(1.0), batch=BATCH, steps=2, implementation=flat)
    assert [one.module for one in found.layers] == ["3"]
    assert found.implementation == "flat"
    same = align.bisect_training(make(1.0), batch=BATCH, steps=3, implementation=only_norms)
    assert (same.all_moved, same.tried) == (0.0, 1)


@pytest.mark.frameworks
def test_a_twin_is_in_the_mode_of_its_layer_also_where_training_begins_in_evaluation() -> None:
    training = torch_training(1.0, evaluates=True)
    found = align.bisect_training(training, batch=BATCH, steps=2, implementation=lambda _path, layer: layer)
    assert found.all_moved == 0.0
    assert not training.model.training


@pytest.mark.frameworks
def test_a_device_is_a_change_too_and_one_that_is_not_there_is_refused() -> None:
    same = align.bisect_training(torch_training(1.0), batch=BATCH, steps=1, device="cpu")
    assert (same.all_moved, same.device) == (0.0, "cpu")
    with pytest.raises(CannotRunError, match="no device 'npu'"):
        align.bisect_training(torch_training(1.0), batch=BATCH, steps=1, device="npu")


@pytest.mark.frameworks
def test_what_cannot_be_bisected_is_said() -> None:
    with pytest.raises(UsageError, match="one of a precision, a device and an implementation"):
        align.bisect_training(torch_training(), batch=BATCH, steps=1)
    with pytest.raises(UsageError, match="0 is no number of steps"):
        align.bisect_training(torch_training(), batch=BATCH, steps=0, precision="float16")
    with pytest.raises(UsageError, match="no model computes in 'int8'"):
        align.bisect_training(torch_training(), batch=BATCH, steps=1, precision="int8")
    with pytest.raises(UsageError, match="is no limit"):
        align.bisect_training(torch_training(), batch=BATCH, steps=1, precision="float16", limit=0.0)
    with pytest.raises(UsageError, match="'none'"):
        align.bisect_training(torch_training(), batch=BATCH, steps=1, precision="float16", layers="none")
    with pytest.raises(UsageError, match="returned an object of type int for 0"):
        align.bisect_training(torch_training(), batch=BATCH, steps=1, implementation=lambda *_: 3)
    lost = torch_training(float("inf"))
    with pytest.raises(CannotRunError, match="ends at nan"):
        align.bisect_training(lost, batch=BATCH, steps=1, precision="float16")
    training = torch_training(1.0)
    silent = align.Training(training.model, None, training.optimizer, lambda batch: training.model(batch["x"]) and None)
    with pytest.raises((CannotRunError, SideError)):
        align.bisect_training(silent, batch=BATCH, steps=1, precision="float16")


@pytest.mark.frameworks
def test_the_command_keeps_its_result_and_refuses_options_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import torch\n\ndef build():\n    torch.manual_seed(0)\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(8, 3))\n"
        "    return model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)\n\n"
        "def none():\n    return 3\n",
        encoding="utf-8",
    )
    np.savez("batch.npz", **BATCH)
    command = ["bisect", "--train", "train.py:build", "--batch", "batch.npz", "--steps", "2"]
    assert main([*command, "--precision", "bfloat16", "--run", "run"]) == 0
    assert "aligned: with all 1 layer in bfloat16 the loss stays within the limit" in capsys.readouterr().out
    document = json.loads(Path("run/training.json").read_text(encoding="utf-8"))
    assert (document["schema"], document["steps"]) == ("mindalign.training/2", 2)
    assert main([*command, "--precision", "bfloat16", "--input", "x=float32[2]", "--loss", "a:b"]) == 2
    assert "--input, --loss cannot be used here" in capsys.readouterr().err
    assert main([*command[:3], "--precision", "float16"]) == 2
    assert "no batch is given" in capsys.readouterr().err
    assert main(["bisect", "--train", "train.py:none", *command[3:], "--precision", "float16"]) == 2
    assert "it returned an object of type int, not a model with its loss and optimizer" in capsys.readouterr().err
    assert (
        main(["bisect", "train.py:build", "--precision", "float16", "--steps", "3", "--input", "x=float32[2,8]"]) == 2
    )
    assert "--steps cannot be used here" in capsys.readouterr().err
