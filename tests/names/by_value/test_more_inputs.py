"""Experts that the given inputs do not reach: more are drawn, and what these do not reach either is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from align.core.name_map import NameMap

torch = pytest.importorskip("torch")

WIDTH, EXPERTS = 6, 4


class Expert(torch.nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        names = ("both",) if fused else ("gate", "up")
        for name in names:
            self.add_module(name, torch.nn.Linear(WIDTH, 10 if fused else 5, bias=False))
        self.down = torch.nn.Linear(5, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        gate, up = self.both(x).chunk(2, -1) if hasattr(self, "both") else (self.gate(x), self.up(x))
        return self.down(torch.nn.functional.silu(gate) * up)


class Routed(torch.nn.Module):
    """Each row goes to one of the experts, but never to the last one where that is `closed`."""

    def __init__(self, *, fused: bool = False, closed: bool = False) -> None:
        super().__init__()
        self.closed = closed
        self.router = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = torch.nn.ModuleList(Expert(fused) for _ in range(EXPERTS))

    def forward(self, x: Any) -> Any:
        scores = self.router(x)
        if self.closed:
            scores = scores[:, :-1]
        chosen, out = scores.argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = chosen == number
            if rows.any():
                out[rows] = expert(x[rows])
        return out


def mapped(*, closed: bool = False) -> NameMap:
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((2, WIDTH)).astype(np.float32)
    sides = Routed(closed=closed), Routed(fused=True, closed=closed)
    return align.map_parameters(*sides, trial=True, inputs={"x": x}).name_map


def test_inputs_are_drawn_until_every_expert_is_reached() -> None:
    found = mapped()
    assert found.complete
    assert not [one.note for one in found.pairings if "blind" in one.note]


def test_an_expert_that_no_input_reaches_is_said_to_be_that() -> None:
    found = mapped(closed=True)
    assert {name for group in found.ambiguous for name in group.sources} == {
        "experts.3.gate.weight",
        "experts.3.up.weight",
    }
    assert all("blind" in group.reason for group in found.ambiguous)
