"""The layer with which a cause is tried, from what lint finds in two real models."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from align.forward.causes.rebuild_layer import rebuilt_layer
from align.lint.lint_models import lint_models
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.open_side import open_side


@pytest.fixture(scope="module")
def rebuilt() -> tuple[Any, Any, dict[str, Any]]:
    import mindspore.nn as mnn
    import torch
    from torch import nn

    original = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.ReLU6(),
        nn.GRU(5, 4),
        nn.MultiheadAttention(4, 2),
    )
    with torch.no_grad():  # attention starts with biases of zeros
        for value in original[8].parameters():
            value.uniform_()
    port = mnn.SequentialCell(
        mnn.Conv2d(3, 4, 3, stride=2),
        mnn.BatchNorm2d(4, eps=1e-3),
        mnn.FastGelu(),
        mnn.AvgPool2d(2, 2),
        mnn.Flatten(),
        mnn.Dense(16, 5, has_bias=False),
        mnn.ReLU(),
        mnn.GRU(5, 4, has_bias=False),
        mnn.MultiheadAttention(4, 2, has_bias=False),
    )
    sides = open_side(original), open_side(port)
    findings = defaultdict(list)
    for finding in lint_models(*sides).findings:
        findings[finding.candidate].append(finding)
    return original, port, {path: rebuilt_layer(*sides, *own) for path, own in findings.items()}


@pytest.mark.frameworks
def test_each_layer_with_findings_is_rebuilt(rebuilt: tuple[Any, Any, dict[str, Any]]) -> None:
    _, port, layers = rebuilt
    assert {path: type(layer).__name__ for path, layer in layers.items()} == {
        "0": "Conv2d",
        "1": "BatchNorm2d",
        "2": "GELU",
        "3": "MaxPool2d",
        "5": "Dense",
        "6": "ReLU6",
        "7": "GRU",
        "8": "MultiheadAttention",
        "8.out_proj": "Dense",
    }
    assert type(port[2]).__name__ == "FastGelu"


@pytest.mark.frameworks
def test_a_parameter_that_the_layer_had_not_holds_the_references_values(
    rebuilt: tuple[Any, Any, dict[str, Any]],
) -> None:
    original, port, layers = rebuilt
    for path in ("0", "5"):
        assert np.array_equal(layers[path].bias.asnumpy(), original[int(path)].bias.detach().numpy())
        assert np.array_equal(layers[path].weight.asnumpy(), port[int(path)].weight.asnumpy())
    assert np.array_equal(layers["7"].b_hh_list[0].asnumpy(), original[7].bias_hh_l0.detach().numpy())
    assert np.array_equal(layers["8"].in_proj_bias.asnumpy(), original[8].in_proj_bias.detach().numpy())
    assert np.array_equal(layers["8"].out_proj.bias.asnumpy(), original[8].out_proj.bias.detach().numpy())


@pytest.mark.frameworks
def test_a_layer_of_the_references_kind_has_its_settings(rebuilt: tuple[Any, Any, dict[str, Any]]) -> None:
    import mindspore
    import torch

    original, _, layers = rebuilt
    x = np.random.default_rng(0).normal(size=(2, 3, 7, 7)).astype(np.float32)
    for path in ("2", "3", "6"):
        mine, theirs = original[int(path)](torch.from_numpy(x)).numpy(), layers[path](mindspore.Tensor(x)).asnumpy()
        np.testing.assert_allclose(theirs, mine, atol=1e-6)


def test_a_framework_that_rebuilds_nothing_has_no_layer_to_try() -> None:
    def model(name: str, **settings: Any) -> ArrayModel:
        return ArrayModel((ArrayLayer("act", name, abs, {}, settings),))

    sides = open_side(model("torch.nn.ELU", alpha=1.0)), open_side(model("torch.nn.ELU", alpha=0.5))
    assert rebuilt_layer(*sides, *lint_models(*sides).findings) is None
