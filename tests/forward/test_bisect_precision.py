"""One layer of a real model that float16 is too narrow for, found among others that bear it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UsageError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel

if TYPE_CHECKING:
    from align.core.parameters import Array

WIDTH = 8
INPUTS = {"x": np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)}


def torch_model(large: float) -> Any:
    """What `wide` computes inside leaves the range of float16 where `large` is 1000; what it returns does not."""
    import torch
    from torch import nn

    class Wide(nn.Module):
        def forward(self, x: Any) -> Any:
            return ((x + 1) * large) ** 2 / large**2

    torch.manual_seed(0)
    layers = {
        "first": nn.Linear(WIDTH, WIDTH), "act": nn.GELU(), "wide": Wide(), "norm": nn.LayerNorm(WIDTH),
        "tail": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)),
    }  # fmt: skip
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def network(large: float) -> Any:
    from mindspore import nn

    class Wide(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ((x + 1) * large) ** 2 / large**2

    cells = [nn.Dense(WIDTH, WIDTH), nn.GELU(), Wide(), nn.LayerNorm((WIDTH,)), nn.Dense(WIDTH, 3)]
    return nn.SequentialCell(cells)


@pytest.mark.frameworks
def test_the_layer_that_float16_is_too_narrow_for_is_found_and_the_rest_bears_it() -> None:
    found = align.bisect_precision(torch_model(1000.0), inputs=INPUTS, precision="float16")
    assert [(row.module, row.class_name, row.group) for row in found.layers] == [("wide", "Wide", 0)]
    assert found.layers[0].alone_factor == found.all_factor == float("inf")
    assert found.rest_factor <= 1.0
    assert found.complete
    assert (found.tried, found.not_run) == (7, {})
    assert found.runs < 12
    assert found.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.frameworks
def test_a_model_that_bears_the_precision_is_aligned_after_one_run_and_left_as_it_was() -> None:
    model = torch_model(1.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = align.bisect_precision(model, inputs=INPUTS, precision="bfloat16")
    assert found.verdict.outcome is Outcome.ALIGNED
    assert (found.layers, found.runs) == ((), 1)
    assert 0.0 < found.all_moved < 0.05
    assert all(bool((before[name] == value).all()) for name, value in model.state_dict().items())
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.frameworks
def test_layers_that_pass_a_limit_together_only_are_found_together() -> None:
    model = torch_model(1.0)
    first = align.bisect_precision(model, inputs=INPUTS, precision="bfloat16", layers="first", limit=1.0)
    found = align.bisect_precision(model, inputs=INPUTS, precision="bfloat16", limit=1.1 * first.all_moved)
    (group, *_) = [[row for row in found.layers if row.group == number] for number in range(1)]
    assert len(group) > 1
    assert group[-1].cumulative_factor > 1.0
    assert all(row.alone_factor <= 1.0 for row in group)
    assert [row.alone for row in group] == sorted((row.alone for row in group), reverse=True)


@pytest.mark.frameworks
def test_a_loss_is_the_judge_where_one_is_given() -> None:
    def loss(outputs: Array) -> float:
        return float((outputs**2).mean())

    found = align.bisect_precision(torch_model(1000.0), inputs=INPUTS, precision="float16", loss=loss, layers="*i*")
    assert found.judged == "loss"
    assert [row.module for row in found.layers] == ["wide"]
    assert found.tried == 5  # first, wide, tail.0, tail.1 and tail.2


@pytest.mark.frameworks
def test_cells_of_mindspore_are_tried_in_the_same_way() -> None:
    found = align.bisect_precision(network(1000.0), inputs=INPUTS, precision="float16")
    assert [row.module for row in found.layers] == ["2"]
    assert found.rest_factor <= 1.0
    clean = align.bisect_precision(network(1.0), inputs=INPUTS, precision="float16")
    assert clean.verdict.outcome is Outcome.ALIGNED
    assert clean.all_moved > 0.0


@pytest.mark.frameworks
def test_layers_without_a_kernel_are_left_out_and_said() -> None:
    import torch
    from torch import nn

    class Picky(nn.Module):
        def forward(self, x: Any) -> Any:
            if x.dtype != torch.float32:
                msg = "not implemented for 'Half'"
                raise RuntimeError(msg)
            return x

    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Picky())
    found = align.bisect_precision(model, inputs=INPUTS, precision="float16")
    assert set(found.not_run) == {"1"}
    assert "not implemented for 'Half'" in found.not_run["1"]
    assert found.verdict.coverage.excluded == 1
    with pytest.raises(CannotRunError, match="no layer can run there"):
        align.bisect_precision(model, inputs=INPUTS, precision="float16", layers="1")


@pytest.mark.frameworks
def test_what_cannot_be_asked_for_is_said() -> None:
    model = torch_model(1.0)
    with pytest.raises(UsageError, match="no model computes in 'float17'\nHint: give one of: float16, bfloat16"):
        align.bisect_precision(model, inputs=INPUTS, precision="float17")
    with pytest.raises(UsageError, match="one precision or one device"):
        align.bisect_precision(model, inputs=INPUTS, precision="float16", device="cpu")
    with pytest.raises(UsageError, match="no called layer matches 'encoder"):
        align.bisect_precision(model, inputs=INPUTS, precision="float16", layers="encoder.*")
    with pytest.raises(CannotRunError, match="MindSpore cannot run single layers"):
        align.bisect_precision(network(1.0), inputs=INPUTS, device="cpu")


def test_models_of_plain_functions_cannot_be_moved() -> None:
    model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    with pytest.raises(CannotRunError, match="layers of arrays models cannot run alone in another precision"):
        align.bisect_precision(model, inputs=INPUTS, precision="float16")
