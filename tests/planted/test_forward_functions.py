"""Functions whose kernels are off by more than rounding are no fault of a port, and no excuse for one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks
LARGE = {"x": np.linspace(-9, 9, 96, dtype=np.float32).reshape(12, 8)}
SMALL = {"x": LARGE["x"] / 9}


def pair(name: str, factor: float = 1.0) -> tuple[Any, Any]:
    """Two dense layers with a function between them that the model's code calls; `factor` scales the port's."""
    import mindspore
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.b(getattr(torch, name)(self.a(x)))

    class Port(mindspore.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = mindspore.nn.Dense(8, 8), mindspore.nn.Dense(8, 8)

        def construct(self, x: Any) -> Any:
            return self.b(getattr(mindspore.ops, name)(self.a(x)) * factor)

    torch.manual_seed(0)
    model, port = Net(), Port()
    with torch.no_grad():
        model.a.weight.copy_(torch.eye(8))
        model.a.bias.zero_()
    for mine, theirs in ((model.a, port.a), (model.b, port.b)):
        theirs.weight.set_data(mindspore.Tensor(mine.weight.detach().numpy()))
        theirs.bias.set_data(mindspore.Tensor(mine.bias.detach().numpy()))
    return model, port


def told(result: ForwardComparison) -> list[str]:
    return [one.message for one in result.findings if one.code == "functions-inexact"]


def test_a_tanh_that_is_off_is_counted_and_told() -> None:
    clean = compare_forward(*pair("tanh"), inputs=LARGE, power=False)
    assert clean.verdict.outcome is Outcome.ALIGNED
    (message,) = told(clean)
    assert re.search(r": tanh by up to [\d.]+e-05 of its largest value\. ", message)
    assert {one.limit.source for one in clean.layers if one.reference == "b" and one.limit} == {"functions"}


def test_a_fault_of_that_size_shows_beside_it() -> None:
    wrong = compare_forward(*pair("tanh", 1.003), inputs=LARGE, power=False)
    assert wrong.verdict.outcome is Outcome.NOT_ALIGNED
    assert [one.candidate for one in wrong.culprits] == ["b"]  # what it is given


def test_where_the_function_is_exact_its_limit_is_as_ever() -> None:
    clean = compare_forward(*pair("tanh"), inputs=SMALL, power=False)
    wrong = compare_forward(*pair("tanh", 1.0001), inputs=SMALL, power=False)
    assert clean.verdict.outcome is Outcome.ALIGNED
    assert wrong.verdict.outcome is Outcome.NOT_ALIGNED
    assert told(clean) == told(wrong) == []


def test_large_values_of_exp_are_no_alarm() -> None:
    clean = compare_forward(*pair("exp"), inputs=LARGE, power=False)
    wrong = compare_forward(*pair("exp", 1.0005), inputs=LARGE, power=False)
    assert clean.verdict.outcome is Outcome.ALIGNED
    assert wrong.verdict.outcome is Outcome.NOT_ALIGNED
