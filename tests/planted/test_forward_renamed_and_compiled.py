"""Ports whose names change in a run, that are compiled, or whose layers return no finite value: all are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}
TWINS = [(1.0, Outcome.ALIGNED), (1.001, Outcome.NOT_ALIGNED)]


def torch_model(*, scale: float = 1.0, power: float = 1.0) -> Any:
    """Three linear layers, the last of a scaled input; what they are given is a `power` of ten larger."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Any) -> Any:
            x = torch.tanh(self.items[1](torch.tanh(self.items[0](x * power))))
            return self.items[2](x * scale)

    torch.manual_seed(0)
    return Net()


def sliced_port(scale: float) -> Any:
    """Its list of cells is taken in slices, which gives two cells' parameters one name."""
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.items = nn.CellList([nn.Dense(8, 8) for _ in range(3)])

        def construct(self, x: Any) -> Any:
            for cell in self.items[:2]:
                x = ops.tanh(cell(x))
            for cell in self.items[2:]:
                x = cell(x * scale)
            return x

    return Net()


def compare(reference: Any, port: Any, factor: float = 1.0) -> ForwardComparison:
    side = align.open_side(port)
    values = [value.numpy() for value in reference.state_dict().values()]
    side.reader.load_values(port, dict(zip(side.reader.read_values(port), values, strict=True)))
    return align.compare_forward(reference, side, inputs={"x": X["x"] * np.float32(factor)})


@pytest.mark.parametrize(("scale", "outcome"), TWINS)
def test_a_list_of_cells_in_slices_keeps_its_names(scale: float, outcome: Outcome) -> None:
    port = sliced_port(scale)
    names = [one.name for one in port.get_parameters()]
    result = compare(torch_model(), port)
    assert result.verdict.outcome is outcome
    assert {row.candidate for row in result.layers} >= {"items.0", "items.1", "items.2"}
    assert [one.name for one in port.get_parameters()] == names


@pytest.mark.parametrize(("scale", "outcome"), TWINS)
def test_what_torch_compiles_is_run_layer_by_layer(scale: float, outcome: Outcome) -> None:
    import torch

    result = compare(torch_model(), torch.compile(torch_model(scale=scale), backend="eager", fullgraph=True))
    assert result.verdict.outcome is outcome
    assert ("items.1", "_orig_mod.items.1") in [(row.reference, row.candidate) for row in result.layers]
    assert result.unseen == ()


def test_layers_that_return_no_finite_value_are_seen() -> None:
    result = compare(torch_model(power=3e38), torch_model(power=3e38), 1e3)
    assert result.unseen == ()
    assert result.verdict.outcome is not Outcome.ALIGNED
    assert "no call was seen" not in result.verdict.reason
