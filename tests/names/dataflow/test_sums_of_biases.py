"""Recurrent layers that add two biases where the other side adds one, and cells whose gates stand in other orders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_settle_by_dataflow import TOKENS, linear, mapped, net

from align.core.name_map import written_value
from align.core.piece_transforms import Share, Slice, Sum, apart_from_whole, sum_step

pytestmark = pytest.mark.frameworks

INNER, STATE = 8, 6


@pytest.fixture(autouse=True)
def _drawn_apart() -> None:
    import torch

    torch.manual_seed(0)


def library(kind: str, layers: int = 1) -> Any:
    """A recurrent layer of torch, which has two biases."""
    import torch

    rnn = getattr(torch.nn, kind)(INNER, STATE, layers, batch_first=True)
    return net(
        lambda own, x: own.head(own.rnn(own.front(x))[0]), front=linear(8, INNER), rnn=rnn, head=linear(STATE, 3)
    )


def over_time() -> Any:
    """A forward pass that calls each cell step by step."""
    import torch

    def forward(own: Any, x: Any) -> Any:
        y = own.inward(x)
        for cell in own.cells:
            state, rows = (torch.zeros(len(x), STATE), torch.zeros(len(x), STATE)), []
            for step in range(y.shape[1]):
                state = cell((y[:, step], *state))
                rows.append(state[0])
            y = torch.stack(rows, 1)
        return own.outward(y)

    return forward


def lstm_cell(width: int, order: str, biases: int = 1) -> Any:
    def forward(own: Any, given: Any) -> Any:
        x, state, memory = given
        gates = x @ own.kernel + state @ own.recurrent + own.bias
        gates = gates + own.more if biases > 1 else gates
        parts = dict(zip(order, gates.chunk(4, -1), strict=True))
        memory = parts["f"].sigmoid() * memory + parts["i"].sigmoid() * parts["g"].tanh()
        return parts["o"].sigmoid() * memory.tanh(), memory

    shapes = {"kernel": (width, 4 * STATE), "recurrent": (STATE, 4 * STATE), "bias": (4 * STATE,)}
    shapes |= {"more": (4 * STATE,)} if biases > 1 else {}
    return net(forward, **shapes)


def gru_cell(width: int, *_: object) -> Any:
    """One bias for all gates; what the reset gate scales of the new state has a bias of its own."""

    def forward(own: Any, given: Any) -> Any:
        x, state, memory = given
        ahead, back = x @ own.kernel + own.bias, state @ own.recurrent
        (r, z, n), (again, keep, new) = ahead.chunk(3, -1), back.chunk(3, -1)
        z = (z + keep).sigmoid()
        return (1 - z) * (n + (r + again).sigmoid() * (new + own.new)).tanh() + z * state, memory

    shapes = {"kernel": (width, 3 * STATE), "recurrent": (STATE, 3 * STATE), "bias": (3 * STATE,), "new": (STATE,)}
    return net(forward, **shapes)


def by_hand(*cells: Any) -> Any:
    import torch

    return net(over_time(), inward=linear(8, INNER), cells=torch.nn.ModuleList(cells), outward=linear(STATE, 3))


def assert_equal_once_loaded(source: Any, target: Any, result: Any) -> None:
    """The map makes the one model of the other, and is said to be complete and sure."""
    import torch

    assert result.name_map.complete
    assert all(pair.sure for pair in result.name_map.pairings)
    own = {name: value.detach().numpy() for name, value in source.state_dict().items()}
    made = {name: value.detach().numpy().copy() for name, value in target.state_dict().items()}
    for pair in result.name_map.pairings:
        place = apart_from_whole(pair.transform)[1]
        made[pair.target][() if place is None else place.region] = written_value(pair, own)
    target.load_state_dict({name: torch.tensor(value) for name, value in made.items()})
    given = torch.tensor(TOKENS["x"])
    assert torch.allclose(source(given), target(given), atol=1e-5)


def test_the_two_biases_of_an_lstm_are_added_up_for_a_port_with_one() -> None:
    source, target = library("LSTM", 2), by_hand(lstm_cell(INNER, "ifgo"), lstm_cell(STATE, "ifgo"))
    result = mapped(source, target, TOKENS)
    assert_equal_once_loaded(source, target, result)
    sums = {(p.source, p.target): p.transform for p in result.name_map.pairings if "bias_" in p.source}
    assert sums == {
        (f"rnn.bias_{way}_l{at}", f"cells.{at}.bias"): Sum(term, 2)
        for at in range(2)
        for term, way in enumerate(("ih", "hh"))
    }


def test_cells_of_one_class_may_have_their_gates_in_different_orders() -> None:
    source = library("LSTM", 3)
    target = by_hand(*(lstm_cell(width, order) for width, order in ((INNER, "gifo"), (STATE, "ifgo"), (STATE, "ofig"))))
    assert_equal_once_loaded(source, target, mapped(source, target, TOKENS))


def test_of_a_gru_the_bias_that_the_reset_gate_scales_is_added_to_no_other() -> None:
    source, target = library("GRU", 2), by_hand(gru_cell(INNER), gru_cell(STATE))
    result = mapped(source, target, TOKENS)
    assert_equal_once_loaded(source, target, result)
    new = {p.source: p.transform for p in result.name_map.pairings if p.target == "cells.0.new"}
    assert new == {"rnn.bias_hh_l0": Slice(0, 2 * STATE, 3 * STATE)}
    others = [p for p in result.name_map.pairings if p.target == "cells.0.bias"]
    assert {(p.source, sum_step(p.transform)) for p in others} == {
        ("rnn.bias_ih_l0", Sum(0, 2)), ("rnn.bias_hh_l0", Sum(1, 2)), ("rnn.bias_ih_l0", None),
    }  # fmt: skip


def test_one_bias_is_shared_among_the_two_of_a_port() -> None:
    source, target = by_hand(lstm_cell(INNER, "ifgo")), by_hand(lstm_cell(INNER, "ifgo", 2))
    result = mapped(source, target, TOKENS)
    assert_equal_once_loaded(source, target, result)
    shares = {p.target: p.transform for p in result.name_map.pairings if p.source == "cells.0.bias"}
    assert shares == {"cells.0.bias": Share(0, 2), "cells.0.more": Share(1, 2)}


def test_gates_of_a_port_that_computes_otherwise_are_not_surely_paired() -> None:
    def wrong(own: Any, given: Any) -> Any:
        x, state, memory = given
        i, f, g, o = (x @ own.kernel + state @ own.recurrent + own.bias).chunk(4, -1)
        memory = f.tanh() * memory + i.tanh() * g.tanh()  # no gate
        return o.tanh() * memory.tanh(), memory

    shapes = {"kernel": (INNER, 4 * STATE), "recurrent": (STATE, 4 * STATE), "bias": (4 * STATE,)}
    cell = net(wrong, **shapes)
    name_map = mapped(library("LSTM"), by_hand(cell), TOKENS).name_map
    assert not [pair for pair in name_map.pairings if pair.sure and "rnn" in pair.source]
    assert not name_map.complete
