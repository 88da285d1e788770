"""The layer with which a cause is tried, from what lint finds in two real models."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from align.core.parameters import Module, Parameter, ParameterSet
from align.core.piece_transforms import Slice
from align.core.protocols import LayerSettings
from align.forward.settings_to_try import (
    LayerPlan,
    changes_for,
    rebuilt_layer,
    same_kind,
    same_windows,
    sources_of_added,
)
from align.lint.compare_settings import SettingFinding
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


def finding(**arguments: Any) -> SettingFinding:
    return SettingFinding("r", "error", "a", "b", "A", "B", "s", "x", "y", "e", "c", arguments=arguments)


def test_the_arguments_of_all_findings_are_one_change_and_none_if_one_takes_another_layer() -> None:
    assert changes_for(finding(eps=1e-5)) == {"eps": 1e-5}
    assert changes_for(finding(pad_mode="pad", padding=1), finding(pad_mode="pad", ceil_mode=True)) == {
        "pad_mode": "pad",
        "padding": 1,
        "ceil_mode": True,
    }
    assert changes_for(finding(eps=1e-5), finding()) == {}


MAX_POOL = {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 1, "ceil_mode": False}


@pytest.mark.parametrize(
    ("name", "values", "framework", "plan"),
    [
        ("torch.nn.ReLU6", {}, "mindspore", LayerPlan("mindspore.nn.ReLU6", {})),
        (
            "torch.nn.GELU",
            {"approximate": "none"},
            "mindspore",
            LayerPlan("mindspore.nn.GELU", {"approximate": False}),
        ),
        ("mindspore.nn.LeakyReLU", {"alpha": 0.2}, "torch", LayerPlan("torch.nn.LeakyReLU", {"negative_slope": 0.2})),
        (
            "torch.nn.MaxPool2d",
            MAX_POOL,
            "mindspore",
            LayerPlan("mindspore.nn.MaxPool2d", {"kernel_size": 3, "pad_mode": "pad", "padding": 1, "stride": 2}),
        ),
        (
            "torch.nn.MaxPool2d",
            {**MAX_POOL, "padding": 0, "ceil_mode": True},
            "mindspore",
            LayerPlan("mindspore.nn.MaxPool2d", {"kernel_size": 3, "pad_mode": "pad", "stride": 2, "ceil_mode": True}),
        ),
        ("torch.nn.Linear", {}, "mindspore", None),  # it has values of its own
        ("torch.nn.ReLU6", {}, "arrays", None),
        ("my.Activation", {}, "mindspore", None),
    ],
)
def test_a_layer_of_the_references_kind_is_planned_with_its_settings(
    name: str, values: dict[str, Any], framework: str, plan: LayerPlan | None
) -> None:
    assert same_kind(LayerSettings("act", (name,), values), framework) == plan


def side(class_name: str, **shapes: tuple[int, ...]) -> ParameterSet:
    parameters = tuple(Parameter(f"fc.{name}", shape, "float32", "", name) for name, shape in shapes.items())
    return ParameterSet("side", None, parameters, (Module("", (class_name,)),))


def test_parameters_that_a_change_adds_have_the_references_by_role_and_shape() -> None:
    had = side("mindspore.nn.BatchNorm2d", moving_mean=(3,))
    built = side("mindspore.nn.BatchNorm2d", moving_mean=(3,), gamma=(3,), beta=(3,))
    reference = side("torch.nn.BatchNorm2d", weight=(3,), bias=(3,), running_mean=(3,))
    assert sources_of_added(built, had, reference) == {"fc.gamma": "fc.weight", "fc.beta": "fc.bias"}
    assert sources_of_added(built, built, reference) == {}
    assert sources_of_added(built, had, side("torch.nn.BatchNorm2d", weight=(3,))) is None
    assert sources_of_added(built, had, side("torch.nn.BatchNorm2d", weight=(3,), bias=(1,))) is None


def test_the_mean_and_the_largest_of_the_same_windows_stand_for_each_other() -> None:
    mean = LayerSettings("a", ("mindspore.nn.AvgPool2d",), {"kernel_size": 3, "stride": 2, "pad_mode": "SAME"})
    assert [*same_windows(mean)] == [
        LayerPlan("mindspore.nn.MaxPool2d", {"kernel_size": 3, "pad_mode": "same", "stride": 2})
    ]
    largest = LayerSettings("a", ("torch.nn.MaxPool1d",), {"kernel_size": 3, "stride": 1, "padding": 1})
    assert [*same_windows(largest)] == [LayerPlan("torch.nn.AvgPool1d", {"kernel_size": 3, "padding": 1, "stride": 1})]


@pytest.mark.parametrize(
    "name", ["mindspore.nn.ReLU", "mindspore.nn.Conv2d", "mindspore.nn.AdaptiveAvgPool2d", "my.Pool"]
)
def test_a_layer_without_windows_or_with_weights_has_no_rival(name: str) -> None:
    assert [*same_windows(LayerSettings("a", (name,), {"kernel_size": 3, "stride": 1}))] == []


@pytest.mark.parametrize(("stop", "expected"), [(4, {"fc.bias": "fc.bias"}), (3, None), (99, None)])
def test_a_layer_has_a_piece_of_what_the_reference_fuses(stop: int, expected: dict[str, str] | None) -> None:
    built, had = side("mindspore.nn.Dense", weight=(4, 4), bias=(4,)), side("mindspore.nn.Dense", weight=(4, 4))
    fused = side("torch.nn.Linear", weight=(12, 4), bias=(12,))
    assert sources_of_added(built, had, fused, Slice(0, 0, stop)) == expected
