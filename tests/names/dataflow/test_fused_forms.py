"""Several layers of one side that are one of the other: towers, heads, groups of channels, gates in another order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_settle_by_dataflow import PIXELS, TOKENS, assert_shown, linear, mapped, net, numbers, softmax, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.names.map_result import MapResult

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def _drawn_apart() -> None:
    """Draw the values of all models of a test one after the other: equal ones would tell which is which."""
    import torch

    torch.manual_seed(0)


def assert_no_sure_pair_is_wrong(result: MapResult, true: Callable[[dict[str, np.ndarray]], dict[str, Any]]) -> None:
    """What is sure of a port with a defect is right, element by element."""
    own, first = {}, 1
    for name, value in numbers(result.source_parameters).items():
        own[name] = value + first - 1
        first += value.size
    wanted = true(own)
    sure = tuple(one for one in result.name_map.pairings if one.sure)
    for target, parts in written(sure, own).items():
        made = sum(parts.values())
        assert np.array_equal(np.where(made == 0, 0, wanted[target]), made)


def filters(*sizes: int, width: int = 3, groups: int = 1) -> Any:
    import torch

    return torch.nn.Conv2d(*sizes, width, padding=width // 2, groups=groups)


def towers(own: Any, x: Any) -> Any:
    import torch

    kinds, boxes = own.kinds(x), own.boxes(x)
    return torch.cat([own.kind(kinds), own.box(boxes).exp(), own.centre(boxes)], 1)


def tower(channels: int) -> Any:
    import torch

    norm = torch.nn.GroupNorm(2, channels)
    thin = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
    parts = (filters(3, channels), norm, torch.nn.ReLU(), filters(channels, channels), thin, torch.nn.PReLU(channels))
    return torch.nn.Sequential(*parts)


def separate_towers() -> Any:
    heads = {"kind": filters(8, 5), "box": filters(8, 4), "centre": filters(8, 1)}
    return net(towers, kinds=tower(8), boxes=tower(8), **heads)


def joined_towers(*, swapped: bool = False) -> Any:
    import torch

    def forward(own: Any, x: Any) -> Any:
        both = own.thin(own.deep(torch.relu(own.norm(own.wide(x)))))
        both = own.slope(both)
        kinds, boxes = (both[:, 8:], both[:, :8])
        centre, box = own.sides(kinds if swapped else boxes).split([1, 4], 1)
        return torch.cat([own.kind(kinds), box.exp(), centre], 1)

    parts = {
        "wide": filters(3, 16),
        "norm": torch.nn.GroupNorm(4, 16),
        "deep": filters(16, 16, groups=2),
        "thin": filters(16, 16, groups=16),
        "slope": torch.nn.PReLU(16),
        "sides": filters(8, 5),
        "kind": filters(8, 5),
    }
    return net(forward, **parts)


def joined(own: dict[str, np.ndarray]) -> dict[str, Any]:
    names = {"wide": 0, "norm": 1, "deep": 3, "thin": 4}
    roles = ("weight", "bias")
    found = {
        f"{name}.{role}": np.concatenate([own[f"{tower}.{at}.{role}"] for tower in ("boxes", "kinds")])
        for name, at in names.items()
        for role in roles
    }
    found["slope.weight"] = np.concatenate([own["boxes.5.weight"], own["kinds.5.weight"]])
    found |= {f"sides.{role}": np.concatenate([own[f"centre.{role}"], own[f"box.{role}"]]) for role in roles}
    return found | {f"kind.{role}": own[f"kind.{role}"] for role in roles}


def test_towers_are_joined_in_one_convolution_and_go_on_in_groups() -> None:
    assert_shown(mapped(separate_towers(), joined_towers(), PIXELS), joined)


def cut(own: dict[str, np.ndarray]) -> dict[str, Any]:
    names = {0: "wide", 1: "norm", 3: "deep", 4: "thin"}
    roles = ("weight", "bias")
    halves = {"boxes": slice(0, 8), "kinds": slice(8, 16)}
    found = {
        f"{tower}.{at}.{role}": own[f"{name}.{role}"][half]
        for tower, half in halves.items()
        for at, name in names.items()
        for role in roles
    }
    found |= {f"{tower}.5.weight": own["slope.weight"][half] for tower, half in halves.items()}
    for role in roles:
        sides = own[f"sides.{role}"]
        found |= {f"kind.{role}": own[f"kind.{role}"], f"centre.{role}": sides[:1], f"box.{role}": sides[1:]}
    return found


def test_a_convolution_of_both_towers_is_cut_in_two() -> None:
    assert_shown(mapped(joined_towers(), separate_towers(), PIXELS), cut)


def test_nothing_is_proven_of_towers_of_which_one_feeds_the_head_of_the_other() -> None:
    result = mapped(separate_towers(), joined_towers(swapped=True), PIXELS)
    assert_no_sure_pair_is_wrong(result, joined)


def lstm_step(gates: tuple[Any, Any, Any, Any], state: Any) -> tuple[Any, Any]:
    enter, forget, offer, leave = gates
    kept = forget.sigmoid() * state + enter.sigmoid() * offer.tanh()
    return leave.sigmoid() * kept.tanh(), kept


def over_steps(x: Any, width: int, step: Callable[[Any, Any, Any], tuple[Any, Any]]) -> Any:
    """All states of a cell over the steps of a sequence, from zeros."""
    import torch

    state = kept = torch.zeros(len(x), width)
    made = []
    for now in x.unbind(1):
        state, kept = step(now, state, kept)
        made.append(state)
    return torch.stack(made, 1)


def two_lstms() -> Any:
    import torch

    cells = torch.nn.LSTM(8, 6, num_layers=2, batch_first=True)
    return net(lambda own, x: own.head(own.cells(x)[0]), cells=cells, head=linear(6, 4))


def reordered_lstms(*, planted: bool = False) -> Any:
    """Cells whose gates stand in the order f, o, g, i, with one matrix for what goes in and one for the state."""
    import torch

    def layer(own: Any, x: Any) -> Any:
        drive = x @ own.kernel + own.offset.sum(0)

        def step(now: Any, state: Any, kept: Any) -> tuple[Any, Any]:
            forget, leave, offer, enter = (now + state @ own.recurrent).chunk(4, -1)
            return lstm_step((enter, forget, offer, leave.square() if planted else leave), kept)

        return over_steps(drive, 6, step)

    layers = (net(layer, kernel=(n, 24), recurrent=(6, 24), offset=(2, 24)) for n in (8, 6))
    return net(lambda own, x: own.last(own.layers(x)), layers=torch.nn.Sequential(*layers), last=linear(6, 4))


def in_order(value: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    blocks = np.split(value, len(order))
    return np.concatenate([blocks[at] for at in order])


def reordered(own: dict[str, np.ndarray]) -> dict[str, Any]:
    found: dict[str, Any] = {f"last.{role}": own[f"head.{role}"] for role in ("weight", "bias")}
    for layer in (0, 1):
        ordered = {role: in_order(own[f"cells.{role}_l{layer}"], (1, 3, 2, 0)) for role in LSTM_ROLES}
        found[f"layers.{layer}.kernel"] = ordered["weight_ih"].T
        found[f"layers.{layer}.recurrent"] = ordered["weight_hh"].T
        found[f"layers.{layer}.offset"] = np.stack([ordered["bias_ih"], ordered["bias_hh"]])
    return found


LSTM_ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def test_gates_of_an_lstm_stand_in_another_order() -> None:
    assert_shown(mapped(two_lstms(), reordered_lstms(), TOKENS), reordered)


def test_gates_of_a_cell_that_does_something_else_are_not_sure() -> None:
    result = mapped(two_lstms(), reordered_lstms(planted=True), TOKENS)
    assert_no_sure_pair_is_wrong(result, reordered)
    assert not any(one.sure for one in result.name_map.pairings if one.source.startswith("cells.weight_hh"))


def test_each_gate_of_an_lstm_has_matrices_of_its_own() -> None:
    import torch

    gates = ("put", "keep", "new", "out")  # registered in another order than they are computed in

    def layer(own: Any, x: Any) -> Any:
        def step(now: Any, state: Any, kept: Any) -> tuple[Any, Any]:
            made = {name: own.x[name](now) + own.h[name](state) for name in gates[::-1]}
            return lstm_step((made["put"], made["keep"], made["new"], made["out"]), kept)

        return over_steps(x, 6, step)

    def parts(width: int) -> Any:
        return torch.nn.ModuleDict({name: linear(width, 6) for name in gates})

    layers = torch.nn.Sequential(*(net(layer, x=parts(width), h=parts(6)) for width in (8, 6)))
    target = net(lambda own, x: own.last(own.layers(x)), layers=layers, last=linear(6, 4))

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {f"last.{role}": own[f"head.{role}"] for role in ("weight", "bias")}
        for at in (0, 1):
            for side, end in (("x", "ih"), ("h", "hh")):
                for role in ("weight", "bias"):
                    blocks = np.split(own[f"cells.{role}_{end}_l{at}"], 4)
                    found |= {f"layers.{at}.{side}.{n}.{role}": one for n, one in zip(gates, blocks, strict=True)}
        return found

    assert_shown(mapped(two_lstms(), target, TOKENS), true)


def test_gates_of_a_gru_stand_in_another_order() -> None:
    import torch

    def forward(own: Any, x: Any) -> Any:
        def step(now: Any, state: Any, kept: Any) -> tuple[Any, Any]:
            keep_x, reset_x, new_x = own.enter(now).chunk(3, -1)
            keep_h, reset_h, new_h = own.again(state).chunk(3, -1)
            keep = (keep_x + keep_h).sigmoid()
            offer = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
            return offer + keep * (state - offer), kept

        return own.last(over_steps(x, 6, step))

    cells = torch.nn.GRU(8, 6, batch_first=True)
    source = net(lambda own, x: own.head(own.cells(x)[0]), cells=cells, head=linear(6, 4))
    target = net(forward, enter=linear(8, 18), again=linear(6, 18), last=linear(6, 4))

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {f"last.{role}": own[f"head.{role}"] for role in ("weight", "bias")}
        for name, end in (("enter", "ih"), ("again", "hh")):
            found |= {
                f"{name}.{role}": in_order(own[f"cells.{role}_{end}_l0"], (1, 0, 2)) for role in ("weight", "bias")
            }
        return found

    assert_shown(mapped(source, target, TOKENS), true)


def test_parts_that_both_sides_join_stand_in_another_order() -> None:
    def attention(order: str) -> Callable[[Any, Any], Any]:
        def forward(own: Any, x: Any) -> Any:
            for block in own.blocks:
                made = dict(zip(order, block[0](x).chunk(3, -1), strict=True))
                x = x + block[1](softmax(made["q"], made["k"]) @ made["v"])
                gate, up = block[2](x).chunk(2, -1)[:: 1 if order == "qkv" else -1]
                x = x + block[3](gate.sigmoid() * up)
            return own.head(x)

        return forward

    import torch

    def blocks() -> Any:
        sizes = ((8, 24), (8, 8), (8, 20), (10, 8))
        return torch.nn.ModuleList(torch.nn.ModuleList(linear(*size, bias=False) for size in sizes) for _ in range(3))

    source, target = (net(attention(order), blocks=blocks(), head=linear(8, 5)) for order in ("qkv", "vqk"))

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        orders = {"0": (2, 0, 1), "2": (1, 0)}
        return {
            name: in_order(value, orders[layer]) if (layer := name.split(".")[-2]) in orders else value
            for name, value in own.items()
        }

    assert_shown(mapped(source, target, TOKENS), true)


def cell_of_two_matrices() -> Any:
    def forward(own: Any, x: Any) -> Any:
        def step(now: Any, state: Any, kept: Any) -> tuple[Any, Any]:
            enter, forget, offer, leave = (own.enter(now) + own.again(state)).chunk(4, -1)
            return lstm_step((enter, forget, offer, leave), kept)

        return own.head(over_steps(x, 6, step))

    return net(forward, enter=linear(8, 24), again=linear(6, 24, bias=False), head=linear(6, 4))


def cell_of_one_matrix(*, planted: bool = False) -> Any:
    """A cell that joins its state with what goes in, with its gates in the order o, i, f, g."""
    import torch

    def forward(own: Any, x: Any) -> Any:
        def step(now: Any, state: Any, kept: Any) -> tuple[Any, Any]:
            leave, enter, forget, offer = own.both(torch.cat([state, now], -1)).chunk(4, -1)
            state, kept = lstm_step((enter, forget, offer, leave), kept)
            return state, kept.tanh() if planted else kept

        return own.last(over_steps(x, 6, step))

    return net(forward, both=linear(14, 24), last=linear(6, 4))


def in_one(own: dict[str, np.ndarray]) -> dict[str, Any]:
    order = (3, 0, 1, 2)
    both = np.concatenate([in_order(own["again.weight"], order), in_order(own["enter.weight"], order)], 1)
    last = {f"last.{role}": own[f"head.{role}"] for role in ("weight", "bias")}
    return {"both.weight": both, "both.bias": in_order(own["enter.bias"], order), **last}


def test_one_matrix_multiplies_what_goes_in_and_the_state() -> None:
    assert_shown(mapped(cell_of_two_matrices(), cell_of_one_matrix(), TOKENS), in_one)


def test_one_matrix_is_cut_for_what_goes_in_and_the_state() -> None:
    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        both, bias = (in_order(own[f"both.{role}"], (1, 2, 3, 0)) for role in ("weight", "bias"))
        head = {f"head.{role}": own[f"last.{role}"] for role in ("weight", "bias")}
        return {"again.weight": both[:, :6], "enter.weight": both[:, 6:], "enter.bias": bias, **head}

    assert_shown(mapped(cell_of_one_matrix(), cell_of_two_matrices(), TOKENS), true)


def test_of_a_cell_that_keeps_something_else_no_sure_pair_is_wrong() -> None:
    assert_no_sure_pair_is_wrong(mapped(cell_of_two_matrices(), cell_of_one_matrix(planted=True), TOKENS), in_one)


def weighed(*sizes: int) -> Any:
    """A model that trains numbers by which its losses are weighed: no output depends on them."""
    return net(lambda own, x: own.head(x), head=linear(8, 4), **{f"doubt_{at}": (n,) for at, n in enumerate(sizes)})


def test_numbers_that_no_output_depends_on_are_paired_in_order_and_not_sure() -> None:
    source, target = net(lambda own, x: own.end(x), end=linear(8, 4), log_vars=(3,)), weighed(1, 1, 1)
    for sides in ((source, target), (target, source)):
        name_map = mapped(*sides, TOKENS).name_map
        assert name_map.complete
        order = [(one.source, one.target) for one in name_map.pairings if not one.sure]
        numbers_of = [name for pair in order for name in pair if name.startswith("doubt")]
        assert numbers_of == ["doubt_0", "doubt_1", "doubt_2"]
        made = [one.transform.apply(np.arange(3.0)) for one in name_map.pairings if one.source == "log_vars"]
        assert [float(one.sum()) for one in made] == [0, 1, 2] or sides[0] is target


def test_numbers_that_are_not_as_many_on_both_sides_stay_unpaired() -> None:
    source = net(lambda own, x: own.end(x), end=linear(8, 4), log_vars=(3,))
    name_map = mapped(source, weighed(1, 1), TOKENS).name_map
    assert {one.name for one in name_map.unmatched} == {"log_vars", "doubt_0", "doubt_1"}


def test_the_orders_of_all_blocks_of_a_deep_model_are_tried_at_once() -> None:
    import torch

    def apart(own: Any, x: Any) -> Any:
        for q, k, v, out in own.blocks:
            x = x + out(softmax(q(x), k(x)) @ v(x))
        return own.head(x)

    def joined_up(own: Any, x: Any) -> Any:
        for both, out in own.blocks:
            v, q, k = both(x).chunk(3, -1)
            x = x + out(softmax(q, k) @ v)
        return own.head(x)

    def blocks(*widths: int) -> Any:
        return torch.nn.ModuleList(torch.nn.ModuleList(linear(8, n, bias=False) for n in widths) for _ in range(6))

    source, target = (
        net(apart, blocks=blocks(8, 8, 8, 8), head=linear(8, 5)),
        net(joined_up, blocks=blocks(24, 8), head=linear(8, 5)),
    )

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {f"head.{role}": own[f"head.{role}"] for role in ("weight", "bias")}
        for at in range(6):
            found[f"blocks.{at}.0.weight"] = np.concatenate([own[f"blocks.{at}.{part}.weight"] for part in (2, 0, 1)])
            found[f"blocks.{at}.1.weight"] = own[f"blocks.{at}.3.weight"]
        return found

    assert_shown(mapped(source, target, TOKENS), true)
