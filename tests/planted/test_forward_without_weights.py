"""A port that nobody filled: one line instead of a culprit for each layer; what else is wrong is still told."""

from __future__ import annotations

import mindspore
import numpy as np
import pytest
import torch
from mindspore import nn as mnn
from torch import nn

import align
from align.core.verdicts import Outcome
from align.report.show_result import blocks_as_text, result_blocks
from align.runs.run_folder import as_document

X = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}


def original() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 8))


def port(epsilon: float = 1e-5) -> mnn.Cell:
    layers = mnn.Dense(16, 24), mnn.LayerNorm((24,), epsilon=epsilon), mnn.GELU(approximate=False), mnn.Dense(24, 16)
    return mnn.SequentialCell(*layers, mnn.ReLU(), mnn.Dense(16, 8))


def filled(cell: mnn.Cell, model: nn.Module) -> mnn.Cell:
    values = [value.numpy() for value in model.state_dict().values()]
    for parameter, value in zip(cell.get_parameters(), values, strict=True):
        parameter.set_data(mindspore.Tensor(value))
    return cell


def text(result: align.ForwardComparison) -> str:
    return blocks_as_text(tuple(result_blocks(as_document(result, {}))))


def test_a_port_without_its_weights_is_one_line_and_no_culprit() -> None:
    result = align.compare_forward(original(), port(), inputs=X)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.culprits == ()
    assert [finding.code for finding in result.findings if finding.severity == "error"] == ["weights-never-given"]
    assert result.verdict.reason.startswith("the port was never given weights: ")
    shown = text(result)
    assert shown.startswith("WEIGHTS ARE MISSING\n")
    assert "First divergent" not in shown
    assert "no part is at fault by itself" not in shown


@pytest.mark.parametrize("is_filled", [False, True])
def test_another_fault_of_the_port_is_named_with_its_weights_and_without(is_filled: bool) -> None:
    model, cell = original(), port(epsilon=0.1)
    result = align.compare_forward(model, filled(cell, model) if is_filled else cell, inputs=X)
    assert [(one.candidate, one.cause) for one in result.culprits] == [("1", "layer-norm-epsilon")]
    assert ("WEIGHTS ARE MISSING" in text(result)) is not is_filled


def test_the_twin_with_its_weights_is_aligned() -> None:
    model = original()
    result = align.compare_forward(model, filled(port(), model), inputs=X)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert "never given" not in text(result)
