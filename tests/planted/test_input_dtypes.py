"""Inputs of every dtype: taken by both sides, or refused in one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import InputsError
from align.models.inputs import read_inputs, save_inputs

if TYPE_CHECKING:
    from pathlib import Path

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
FLOATS = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16, np.float16, np.float64, np.dtype(">f4")]


def both(factor: float = 1.0) -> tuple[Any, Any]:
    import mindspore
    import torch

    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(6, 3))
    candidate = mindspore.nn.SequentialCell(mindspore.nn.Dense(6, 3))
    weights = reference.state_dict()
    candidate[0].weight.set_data(mindspore.Tensor(weights["0.weight"].numpy() * np.float32(factor)))
    candidate[0].bias.set_data(mindspore.Tensor(weights["0.bias"].numpy()))
    return reference, candidate


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_of_every_width_reach_both_sides_as_the_same_numbers(dtype: Any) -> None:
    result = align.compare_forward(*both(), inputs={"x": X.astype(dtype)})
    assert result.verdict.outcome is Outcome.ALIGNED


@pytest.mark.frameworks
def test_a_fault_shows_in_float8_inputs_too() -> None:
    result = align.compare_forward(*both(1.1), inputs={"x": X.astype(ml_dtypes.float8_e4m3fn)})
    assert [culprit.candidate for culprit in result.culprits] == ["0"]


@pytest.mark.frameworks
def test_tensors_of_torch_that_numpy_cannot_hold_are_refused_with_their_dtype() -> None:
    import torch

    made = {
        "x": torch.ones(2).to(torch.float8_e5m2fnuz),
        "y": torch.ones(2).to(torch.float8_e4m3fnuz),
        "good": torch.ones(2),
    }
    with pytest.raises(InputsError) as caught:
        read_inputs(made)
    assert "x (torch.float8_e5m2fnuz), y (torch.float8_e4m3fnuz)" in str(caught.value)
    assert "good" not in str(caught.value)
    assert "cast" in caught.value.hint


def test_dtypes_that_no_framework_takes_are_refused_by_name() -> None:
    with pytest.raises(InputsError, match=r"known dtype: x \((float128|longdouble)\), n \(int4\)"):
        read_inputs({"x": np.ones(2, np.longdouble), "n": np.ones(2, ml_dtypes.int4), "good": np.ones(2)})


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16])
def test_what_npz_cannot_hold_is_kept_as_float32(tmp_path: Path, dtype: Any) -> None:
    narrow = X.astype(dtype)
    save_inputs(tmp_path / "in.npz", {"x": narrow})
    again = read_inputs(tmp_path / "in.npz")["x"]
    assert again.dtype == np.float32
    assert np.array_equal(again, narrow.astype(np.float32))
