"""What stands beside a trace comes back as it was: the model's tables and values, and the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.protocols import LayerSettings
from align.errors import DestinationError, RunFolderError
from align.measure.measure_arrays import measure
from align.traces.manifest import MODEL_FILE, VALUES, read_model, write_model, write_values
from align.traces.open_trace import NOISE_FILE, read_noise, write_noise

if TYPE_CHECKING:
    from pathlib import Path

PARAMETERS = ParameterSet(
    "net.py:build",
    "mindspore",
    (
        Parameter("fc.weight", (2, 3), "float32", "fc", "weight", trainable=True),
        Parameter("norm.mean", (), "float16", "norm", "moving_mean", trainable=False, buffer=True, tied_to="fc.weight"),
    ),
    (Module("", ("Net",)), Module("fc", ("mindspore.nn.Dense", "Base"), ("fc.weight",), inputs_first=False)),
    shared=(("head.weight", "fc.weight"),),
)
SETTINGS = [
    LayerSettings("fc", ("mindspore.nn.Dense",), {"axes": (1, (2, 3)), "bias": None, "eps": 1e-5, "mode": "NaN-free"}),
    LayerSettings("norm", (), {"low": float("-inf"), "has": True, "none": ()}),
]


def test_the_tables_of_a_model_come_back(tmp_path: Path) -> None:
    write_model(tmp_path, PARAMETERS, SETTINGS)
    assert read_model(tmp_path) == (PARAMETERS, SETTINGS)


def test_a_folder_without_tables_tells_nothing(tmp_path: Path) -> None:
    assert read_model(tmp_path) is None
    assert read_noise(tmp_path) == (None, "it was not measured")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "mindalign.model/99"}', '{"schema": "mindalign.model/1"}']
)
def test_damaged_tables_are_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / MODEL_FILE).write_text(text)
    with pytest.raises(RunFolderError, match=r"model\.json"):
        read_model(tmp_path)


def test_values_are_a_checkpoint_that_every_command_reads(tmp_path: Path) -> None:
    values = {"a": np.ones((2, 3), ml_dtypes.bfloat16), "b": np.arange(4), "c": np.float64(3)[...]}
    write_values(tmp_path, values)
    tensors = open_checkpoint(tmp_path / VALUES).tensors
    assert {name: tensor.load().tolist() for name, tensor in tensors.items()} == {
        n: v.tolist() for n, v in values.items()
    }
    assert tensors["a"].dtype == "bfloat16"


def test_values_without_a_form_say_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"complex128.*\n.*--no-values"):
        write_values(tmp_path, {"a": np.ones(2, np.complex128)})


def test_noise_comes_back_with_all_figures(tmp_path: Path) -> None:
    found = {
        "fc#0": measure(np.array([1.0, np.inf, 0.0]), np.array([1.5, 2.0, 1e-30])),
        "": measure(np.ones(()), np.ones(())),
    }
    write_noise(tmp_path, found)
    assert read_noise(tmp_path) == (found, "")


def test_the_reason_for_no_noise_comes_back(tmp_path: Path) -> None:
    write_noise(tmp_path, None, "no float64 there")
    assert read_noise(tmp_path) == (None, "no float64 there")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "mindalign.noise/99"}', '{"schema": "mindalign.noise/1", "noise": {"a": {}}}']
)
def test_damaged_noise_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / NOISE_FILE).write_text(text)
    with pytest.raises(RunFolderError, match=r"noise\.json"):
        read_noise(tmp_path)
