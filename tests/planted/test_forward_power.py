"""Agreement that could not have been otherwise: signals that fade, heads of zeros, and what inputs leave hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

pytestmark = pytest.mark.frameworks

DEPTH, WIDTH = 24, 8


def separable() -> tuple[Any, Any]:
    """Depthwise convolutions with fresh statistics, as in a mobile net: each has 0.4 of the signal before it."""
    from mindspore import nn as mnn
    from torch import nn

    reference: list[Any] = [nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)]
    candidate: list[Any] = [mnn.Conv2d(3, WIDTH, 3, pad_mode="pad", padding=1, has_bias=False)]
    for _ in range(DEPTH):
        reference += [
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU6(),
        ]
        candidate += [
            mnn.Conv2d(WIDTH, WIDTH, 3, pad_mode="pad", padding=1, group=WIDTH, has_bias=False),
            mnn.BatchNorm2d(WIDTH),
            mnn.ReLU6(),
        ]
    reference += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 5)]
    candidate += [mnn.AdaptiveAvgPool2d(1), mnn.Flatten(), mnn.Dense(WIDTH, 5)]
    return nn.Sequential(*reference), mnn.SequentialCell(*candidate)


def compared(pairs: Any, reference: Any, candidate: Any, inputs: Any) -> Any:
    mapped = align.map_parameters(reference, candidate, inputs=inputs)
    assert mapped.name_map.complete, mapped.verdict
    pairs.transfer(reference, candidate, mapped.name_map)
    return align.compare_forward(reference, candidate, inputs=inputs, name_map=mapped.name_map)


def test_a_deep_net_with_fresh_statistics_agrees_without_telling_anything(pairs: Any) -> None:
    import torch

    torch.manual_seed(0)
    reference, candidate = separable()
    result = compared(pairs, reference, candidate, pairs.images())
    assert {layer.outcome for layer in result.layers} == {"aligned"}
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert result.verdict.exit_code == 2
    assert result.verdict.reason.startswith("could not tell: the model's outputs agree")
    assert result.power.inputs["x"] <= 1.0


def test_its_twin_with_calibrated_statistics_is_aligned(pairs: Any) -> None:
    import torch

    torch.manual_seed(0)
    reference, candidate = separable()
    for module in reference:
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches, here of one
    with torch.no_grad():
        reference(torch.from_numpy(pairs.images(batch=8)["x"]))
    result = compared(pairs, reference, candidate, pairs.images(seed=1))
    assert result.verdict.outcome is Outcome.ALIGNED, result.verdict.reason
    assert result.power.inputs["x"] > 100.0


def test_a_fault_in_a_net_whose_signal_fades_stays_a_fault(pairs: Any) -> None:
    import torch
    from mindspore import nn as mnn

    torch.manual_seed(0)
    reference, candidate = separable()
    mapped = align.map_parameters(reference, candidate, inputs=pairs.images())
    pairs.transfer(reference, candidate, mapped.name_map)
    candidate[6] = mnn.LeakyReLU(0.2)
    result = align.compare_forward(reference, candidate, inputs=pairs.images(), name_map=mapped.name_map)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.power is None


def test_a_head_of_zeros_agrees_without_telling_anything(pairs: Any) -> None:
    import torch

    reference, candidate = pairs.torch_mlp(8, 1, 3), pairs.port_mlp(8, 1, 3)
    torch.nn.init.zeros_(reference[-1].weight)
    torch.nn.init.zeros_(reference[-1].bias)
    result = compared(pairs, reference, candidate, pairs.vectors(8, batch=4))
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert "by only 0 times their limit" in result.verdict.reason


def test_hidden_rows_and_heads_are_listed_beside_an_aligned_verdict(pairs: Any) -> None:
    import torch

    torch.manual_seed(0)
    reference, candidate = pairs.TorchEncoder(depth=1), pairs.PortEncoder(depth=1)
    result = compared(pairs, reference, candidate, pairs.tokens())
    found = {one.name: one for one in result.power.parameters}
    unused = pairs.WORDS - len(np.unique(pairs.tokens()["tokens"]))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert (found["words.weight"].state, found["words.weight"].blind) == ("partly blind", 16 * unused)
    assert {name for name, one in found.items() if one.state != "seen"} == {"words.weight"}


def test_a_head_that_no_output_uses_is_counted_in_the_reason(pairs: Any) -> None:
    import torch

    class WithHead(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in [*self][:-1]:
                x = layer(x)
            return x

    torch.manual_seed(0)
    reference, candidate = pairs.torch_mlp(8, 2, 3), pairs.port_mlp(8, 2, 3)
    inputs = pairs.vectors(8, batch=4)
    name_map = pairs.make_alike(reference, candidate, inputs)
    result = align.compare_forward(
        WithHead(*reference, torch.nn.Linear(3, 2)), candidate, inputs=inputs, name_map=name_map
    )
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.reason.endswith("2 parameters of the reference have no effect on them that shows")


def test_power_may_be_left_out(pairs: Any) -> None:
    reference, candidate = pairs.torch_mlp(8, 1, 3), pairs.port_mlp(8, 1, 3)
    name_map = pairs.make_alike(reference, candidate, pairs.vectors(8))
    result = align.compare_forward(reference, candidate, inputs=pairs.vectors(8), name_map=name_map, power=False)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.power is None
