"""Forms that ports are written in by hand: what one side does at once, or never runs, or scales before it divides."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_settle_by_dataflow import ROWS, TOKENS, assert_shown, linear, mapped, net, softmax

from align.words.catalogue import sentence

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def _drawn_apart() -> None:
    """Draw the values of all models of a test one after the other: equal ones would tell which is which."""
    import torch

    torch.manual_seed(0)


BLOCKS = {"work": ((8, 6), (6, 10), (10, 6)), "shift": ((5, 6), (5, 10), (5, 6))}


def shifted_in_each_block() -> Any:
    def forward(own: Any, x: Any) -> Any:
        state = own.enter(x).tanh()
        for work, shift in zip(own.work, own.shift, strict=True):
            x = (work(x) + shift(state)).relu()
        return own.leave(x)

    import torch

    lists = {name: torch.nn.ModuleList(linear(*size) for size in sizes) for name, sizes in BLOCKS.items()}
    return net(forward, enter=linear(8, 5), leave=linear(6, 3), **lists)


def shifted_from_the_start() -> Any:
    def forward(own: Any, x: Any) -> Any:
        second, third, first = own.shifts(own.start(x).tanh()).split([10, 6, 6], -1)
        x = (own.two((own.one(x) + first).relu()) + second).relu()
        return own.end((own.three(x) + third).relu())

    works = {name: linear(*size) for name, size in zip(("one", "two", "three"), BLOCKS["work"], strict=True)}
    return net(forward, start=linear(8, 5), shifts=linear(5, 22), end=linear(6, 3), **works)


def shifted_alike(own: dict[str, np.ndarray], source: str, target: str) -> dict[str, Any]:
    names = {"enter": "start", "work.0": "one", "work.1": "two", "work.2": "three", "leave": "end"}
    roles = ("weight", "bias")
    return {
        **{f"{target}.{b}.{role}": own[f"{source}.{a}.{role}"] for a, b in names.items() for role in roles},
        **{
            f"{target}.shifts.{role}": np.concatenate([own[f"{source}.shift.{at}.{role}"] for at in (1, 2, 0)])
            for role in roles
        },
    }


def test_what_one_side_computes_at_once_for_all_blocks_and_averages_that_never_run_are_paired() -> None:
    source = net(
        lambda own, x: own.live(x), live=shifted_in_each_block(), slow=shifted_in_each_block().requires_grad_(False)
    )
    target = net(
        lambda own, x: own.now(x), mean=shifted_from_the_start().requires_grad_(False), now=shifted_from_the_start()
    )
    result = mapped(source, target, ROWS)
    assert_shown(result, lambda own: shifted_alike(own, "live", "now") | shifted_alike(own, "slow", "mean"))
    notes = {one.source.partition(".")[0]: one.note for one in result.name_map.pairings}
    assert notes == {"live": "", "slow": sentence("pair_note.copy_of_module", module="live")}


def test_of_two_copies_that_never_run_neither_is_paired_or_said_to_be_computed() -> None:
    copies = [shifted_in_each_block().requires_grad_(False) for _ in range(2)]
    source = net(lambda own, x: own.live(x), live=shifted_in_each_block(), slow=copies[0], slower=copies[1])
    old = shifted_from_the_start().requires_grad_(False)
    target = net(lambda own, x: own.now(x), now=shifted_from_the_start(), mean=old)
    name_map = mapped(source, target, ROWS).name_map
    assert {one.source.partition(".")[0] for one in name_map.pairings if one.sure} == {"live"}
    assert name_map.dropped == ()
    assert not name_map.complete


def test_gate_and_up_of_routed_experts_stand_in_one_stack_and_a_norm_may_scale_before_it_divides() -> None:
    import torch

    def root_of_mean_square(x: Any) -> Any:
        return x.square().mean(-1, keepdim=True).add(1e-6).sqrt()

    def routed(own: Any, x: Any) -> Any:
        chosen = own.router(x).argmax(-1)
        made = torch.zeros(len(x), 8)
        for number, (gate, up, down) in enumerate(zip(own.gates, own.ups, own.downs, strict=True)):
            mine = chosen == number
            made[mine] = down(gate(x[mine]).sigmoid() * up(x[mine]))
        y = made / root_of_mean_square(made) * own.gain
        return own.o(softmax(own.q(y), own.k(y)) @ own.v(y))

    def dense(own: Any, x: Any) -> Any:
        chosen = torch.nn.functional.one_hot(own.choice(x).argmax(-1), 4).to(x)
        up, gate = torch.baddbmm(own.wide_bias[:, None], x.expand(4, -1, -1), own.wide).chunk(2, -1)
        every = (up * gate.sigmoid()) @ own.narrow + own.narrow_bias[:, None]
        made = (chosen.T[..., None] * every).sum(0)
        k, q, v = own.all(own.scale * made / root_of_mean_square(made)).chunk(3, -1)
        return own.out(softmax(q, k) @ v)

    sizes = {"gates": (8, 12), "ups": (8, 12), "downs": (12, 8)}
    lists = {name: torch.nn.ModuleList(linear(*size) for _ in range(4)) for name, size in sizes.items()}
    attention = {name: linear(8, 8, bias=False) for name in "qkvo"}
    stacks = {"wide": (4, 8, 24), "wide_bias": (4, 24), "narrow": (4, 12, 8), "narrow_bias": (4, 8), "scale": (8,)}
    more = {"choice": linear(8, 4), "all": linear(8, 24, bias=False), "out": linear(8, 8, bias=False)}

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        both = [[f"{name}.{number}" for name in ("ups", "gates")] for number in range(4)]
        return {
            "choice.weight": own["router.weight"],
            "choice.bias": own["router.bias"],
            "wide": np.stack([np.concatenate([own[f"{name}.weight"] for name in pair]).T for pair in both]),
            "wide_bias": np.stack([np.concatenate([own[f"{name}.bias"] for name in pair]) for pair in both]),
            "narrow": np.stack([own[f"downs.{number}.weight"].T for number in range(4)]),
            "narrow_bias": np.stack([own[f"downs.{number}.bias"] for number in range(4)]),
            "scale": own["gain"],
            "all.weight": np.concatenate([own[f"{name}.weight"] for name in "kqv"]),
            "out.weight": own["o.weight"],
        }

    source, target = net(routed, router=linear(8, 4), gain=(8,), **lists, **attention), net(dense, **stacks, **more)
    inputs = {"x": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)}
    assert_shown(mapped(source, target, inputs), true)


def test_a_product_that_is_cut_behind_its_activation_is_matched_with_those_that_are_as_wide_together() -> None:
    def original(own: Any, x: Any) -> Any:
        return own.wide_end(own.wide(x).tanh()) - own.thin_end(own.thin(x).tanh())

    def port(own: Any, x: Any) -> Any:
        thin, wide = own.both(x).tanh().split([4, 6], -1)
        return own.last(wide) - own.first(thin)

    source = net(original, wide=linear(8, 6), thin=linear(8, 4), wide_end=linear(6, 3), thin_end=linear(4, 3))
    target = net(port, both=linear(8, 10), first=linear(4, 3), last=linear(6, 3))

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        roles, ends = ("weight", "bias"), {"wide_end": "last", "thin_end": "first"}
        both = {f"both.{role}": np.concatenate([own[f"thin.{role}"], own[f"wide.{role}"]]) for role in roles}
        return both | {f"{b}.{role}": own[f"{a}.{role}"] for a, b in ends.items() for role in roles}

    assert_shown(mapped(source, target, ROWS), true)


def gated(own: Any, x: Any, state: Any) -> Any:
    reset = (own.reset_x(x) + own.reset_h(state)).sigmoid()
    keep = (own.keep_x(x) + own.keep_h(state)).sigmoid()
    return keep * state + (1 - keep) * (own.new_x(x) + reset * own.new_h(state)).tanh()


def test_learnt_first_states_of_gates_that_a_loop_computes_are_told_by_the_outputs() -> None:
    import torch

    def original(own: Any, x: Any) -> Any:
        states, made = [row.expand(len(x), -1) for row in own.begin], []
        for step in x.unbind(1):
            for number, cell in enumerate(own.cells):
                states[number] = step = cell(step, states[number])
            made.append(step)
        return own.head(torch.stack(made, 1))

    def port(own: Any, x: Any) -> Any:
        lower, upper, made = own.low.state.expand(len(x), 6), own.high.state.expand(len(x), 6), []
        for step in x.unbind(1):
            lower = gated(own.low, step, lower)
            upper = gated(own.high, lower, upper)
            made.append(upper)
        return own.last(torch.stack(made, 1))

    gates = ("reset", "keep", "new")
    sides = {"ih": "x", "hh": "h"}

    def gated_layer(width: int) -> Any:
        parts = {f"{gate}_{end}": linear(width if end == "x" else 6, 6) for gate in gates for end in "xh"}
        return net(lambda own, x: x, state=(6,), **parts)

    def true(own: dict[str, np.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = {"last.weight": own["head.weight"], "last.bias": own["head.bias"]}
        for number, layer in enumerate(("low", "high")):
            found[f"{layer}.state"] = own["begin"][number]
            for role, end, (at, gate) in product(("weight", "bias"), sides, enumerate(gates)):
                whole = own[f"cells.{number}.{role}_{end}"]
                found[f"{layer}.{gate}_{sides[end]}.{role}"] = whole[6 * at : 6 * at + 6]
        return found

    cells = torch.nn.ModuleList(torch.nn.GRUCell(width, 6) for width in (8, 6))
    source = net(original, begin=(2, 6), cells=cells, head=linear(6, 4))
    target = net(port, high=gated_layer(6), low=gated_layer(8), last=linear(6, 4))
    assert_shown(mapped(source, target, TOKENS), true)
