"""Faults of several branches: behind points that depend on no input, in them, and before a branch that is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from align.forward.bisect_precision import Bisection

WIDTH = 6
INPUTS = {"x": np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)}

pytestmark = pytest.mark.frameworks


def branched(**scales: float) -> Any:
    """Two layers, a table that depends on no input, two layers that take it in; what is named is scaled."""
    import torch
    from torch import nn

    class Scaled(nn.Linear):
        def __init__(self, name: str) -> None:
            super().__init__(WIDTH, WIDTH)
            self.scale = scales.get(name, 1.0)

        def forward(self, x: Any) -> Any:
            return torch.tanh(super().forward(x)) * self.scale

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = Scaled("first"), Scaled("second")
            self.table = Scaled("table")
            self.third, self.fourth = Scaled("third"), Scaled("fourth")
            self.positions = nn.Parameter(torch.randn(1, WIDTH))

        def forward(self, x: Any) -> Any:
            before = self.second(self.first(x))
            table = self.table(self.positions).expand(4, WIDTH)
            return self.fourth(self.third(before) + table)

    return Net()


def wrong(found: Bisection) -> list[str]:
    """The modules behind each stretch that goes wrong, as its last point names them."""
    return [found.points[one.before].candidate if one.before is not None else "" for one in found.stretches]


@pytest.mark.parametrize(
    "faults",
    [("second",), ("table",), ("first", "fourth"), ("table", "first"), ("second", "table", "fourth")],
)
def test_each_fault_is_found_whatever_branch_it_is_in(faults: tuple[str, ...]) -> None:
    port = branched(**dict.fromkeys(faults, 1.3))
    found = align.bisect_port(branched(), port, inputs=INPUTS)
    order = ["first", "second", "table", "third", "fourth"]
    assert wrong(found) == [f"{name}#0" for name in sorted(faults, key=order.index)]


def test_a_clean_port_has_no_wrong_stretch() -> None:
    found = align.bisect_port(branched(), branched(), inputs=INPUTS)
    assert (found.stretches, found.verdict.exit_code) == ((), 0)


def test_a_fault_before_a_branch_that_is_right_is_not_hidden_by_the_one_behind_it() -> None:
    """`second` is wrong, and so is `third`, which ran after the table: the search goes on behind what is right."""
    found = align.bisect_port(branched(), branched(second=1.2, third=0.8), inputs=INPUTS)
    assert wrong(found) == ["second#0", "third#0"]
    assert found.stretches[1].modules == ("table", "third")
