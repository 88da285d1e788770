"""Experts that the given inputs do not reach: more are drawn, and what these do not reach either is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.names.equal_values import TrialSide

if TYPE_CHECKING:
    from align.core.name_map import NameMap

torch = pytest.importorskip("torch")

WIDTH, EXPERTS = 6, 4


class Expert(torch.nn.Module):
    """Gate and up by layers of these names: two, or one for both."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, torch.nn.Linear(WIDTH, 10 // len(names), bias=False))
        self.names, self.down = names, torch.nn.Linear(5, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        gate, up = torch.cat([getattr(self, name)(x) for name in self.names], -1).chunk(2, -1)
        return self.down(torch.nn.functional.silu(gate) * up)


class Routed(torch.nn.Module):
    """Each row goes to one of the experts, but never to the last one where that is `closed`."""

    def __init__(self, *names: str, closed: bool = False) -> None:
        super().__init__()
        self.closed = closed
        self.router = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = torch.nn.ModuleList(Expert(names) for _ in range(EXPERTS))

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


STRANGE, USUAL = ("gate", "up", "both"), ("gate_proj", "up_proj", "gate_up_proj")


def mapped(gate: str, up: str, both: str, *, closed: bool = False, seed: int = 0) -> NameMap:
    torch.manual_seed(seed)
    x = np.random.default_rng(0).standard_normal((2, WIDTH)).astype(np.float32)
    sides = Routed(gate, up, closed=closed), Routed(both, closed=closed)
    return align.map_parameters(*sides, trial=True, inputs={"x": x}).name_map


@pytest.fixture(params=["forth", "back"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which side is the slower one, and runs once: the trial takes what its clock says."""
    seconds, measured = iter(range(100)) if request.param == "back" else iter(range(100, 0, -1)), TrialSide.seconds

    def told(side: TrialSide, inputs: Any) -> float:
        measured(side, inputs)
        return next(seconds)

    monkeypatch.setattr(TrialSide, "seconds", told)
    return str(request.param)


@pytest.mark.parametrize("names", [STRANGE, USUAL])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.usefixtures("way")
def test_inputs_are_drawn_until_every_expert_is_reached(names: tuple[str, str, str], seed: int) -> None:
    found = mapped(*names, seed=seed)
    assert found.complete
    assert all(one.sure for one in found.pairings)
    assert not [one.note for one in found.pairings if "depends on it" in one.note]


def test_an_expert_that_no_input_reaches_is_said_to_be_that() -> None:
    found = mapped(*STRANGE, closed=True)
    assert {name for group in found.ambiguous for name in group.sources} == {
        "experts.3.gate.weight",
        "experts.3.up.weight",
    }
    assert all("depends on" in group.reason for group in found.ambiguous)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.usefixtures("way")
def test_what_names_alone_say_of_an_expert_that_is_not_reached_stays_unsure(seed: int) -> None:
    found = mapped(*USUAL, closed=True, seed=seed)
    unsure = [one for one in found.pairings if not one.sure]
    assert {one.source for one in unsure} == {"experts.3.gate_proj.weight", "experts.3.up_proj.weight"}
    assert all("depends on it" in one.note for one in unsure)


class OfTwo(torch.nn.Module):
    """Two experts a row; all of them compute all rows where it is `dense`, and else their own rows."""

    def __init__(self, gate: str, up: str, *, dense: bool = False) -> None:
        super().__init__()
        self.dense = dense
        self.router = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = torch.nn.ModuleList(Expert((gate, up)) for _ in range(EXPERTS))

    def forward(self, x: Any) -> Any:
        weights, chosen = torch.softmax(self.router(x), -1).topk(2, -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            if self.dense:
                out = out + expert(x) * (weights * (chosen == number)).sum(-1, keepdim=True)
                continue
            rows, places = torch.where(chosen == number)
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, places, None])
        return out


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_experts_of_few_rows_are_never_paired_with_those_of_another_block(seed: int) -> None:
    torch.manual_seed(seed)
    sides = OfTwo("w1", "w3"), OfTwo("act", "up", dense=True)
    x = np.random.default_rng(seed).standard_normal((3 + seed % 3, WIDTH)).astype(np.float32)
    found = align.map_parameters(*sides, inputs={"x": x}, trial=True).name_map
    meant = {"w1": "act", "w3": "up", "down": "down"}
    for one in found.pairings:
        path = one.source.split(".")
        path[-2] = meant.get(path[-2], path[-2])
        assert one.target == ".".join(path)
    assert len(found.pairings) == 3 * EXPERTS + 1
