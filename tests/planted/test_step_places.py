"""What looks like a fault and is none: square tensors that are turned, layers in place, like layers in another order.

Each beside a fault of the same make, which is named at its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.name_map import NameMap, Pairing
from align.core.transforms import Permute

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

SAMPLES = 6


def batch(*, positions: int = 0) -> dict[str, Any]:
    shape = (SAMPLES, positions, 8) if positions else (SAMPLES, 8)
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return {"x": values, "label": np.arange(SAMPLES) % 3}


def side(forward: Callable[[Any, Any], Any], seed: int = 0) -> align.Training:
    """Three square layers, three activations and a head, which `forward` calls."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            self.act1, self.act2, self.act3 = nn.GELU(), nn.GELU(), nn.GELU()
            self.inplace, self.softmax, self.head = nn.ReLU(inplace=True), nn.Softmax(1), nn.Linear(8, 3)
            self.square = nn.Parameter(torch.randn(8, 8) * 0.3)
            self.norm = nn.LayerNorm(8)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    torch.manual_seed(seed)
    model = Net()
    return align.Training(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))


def places(reference: Any, candidate: Any, **options: Any) -> list[tuple[str, str, str]]:
    sides = (side(one) for one in (reference, candidate))
    result = align.compare_training_step(*sides, **{"batch": batch(), "steps": 1, **options})
    return [(one.kind, one.part, one.candidate) for one in result.culprits]


def branches(net: Any, x: Any, order: str = "123", swapped: bool = False) -> Any:
    found = {}
    for number in order:
        layer, act = {"1": (net.one, net.act1), "2": (net.two, net.act2), "3": (net.three, net.act3)}[number]
        found[number] = act(layer(x))
    first, second = ("2", "1") if swapped else ("1", "2")
    return net.head(found[first] + 2 * found[second] - found["3"])


def shared(net: Any, x: Any, *, second_first: bool = False, sign: float = 1.0) -> Any:
    pair = (x, -0.5 * x)
    made = [net.act1(net.one(one)) for one in (pair[::-1] if second_first else pair)]
    first, second = made[::-1] if second_first else made
    return net.head(first - 2 * sign * second)


def test_like_layers_in_another_order_are_no_fault() -> None:
    for order in ("321", "231"):
        assert places(branches, lambda net, x, order=order: branches(net, x, order)) == []
    assert places(shared, lambda net, x: shared(net, x, second_first=True)) == []
    wrong = places(branches, lambda net, x: branches(net, x, "321", swapped=True))
    assert wrong == [("forward", "code", "")]
    assert places(shared, lambda net, x: shared(net, x, second_first=True, sign=-1.0)) == [("forward", "code", "")]


def turned(net: Any, x: Any, *, first: bool = False, axis: int = 1) -> Any:
    """Positions first or samples first, as many of each; then a softmax over the positions."""
    hidden = net.norm(net.one(x.transpose(0, 1) if first else x))
    values = net.two(hidden)
    values = values.transpose(0, 1) if first else values
    return net.head(net.softmax(values).amax(axis))


def test_square_tensors_that_are_turned_are_no_fault() -> None:
    given = {"batch": batch(positions=SAMPLES)}
    assert places(turned, lambda net, x: turned(net, x, first=True), **given) == []
    found = places(turned, lambda net, x: turned(net, x, first=True, axis=0), **given)
    assert found == [("forward", "code", "")]


def weighed(net: Any, x: Any, *, turn: bool = False) -> Any:
    return net.head(net.act1(net.one(x)) @ (net.square.T if turn else net.square))


def test_a_square_weight_is_turned_where_the_map_says_so() -> None:
    names = [name for name, _ in side(weighed).model.named_parameters()]
    pairs = tuple(Pairing(name, name, "user", 1.0) for name in names)
    turning = tuple(replace(one, transform=Permute((1, 0))) if one.source == "square" else one for one in pairs)
    for turn, given, expected in ((True, turning, False), (False, turning, True), (True, pairs, True)):
        found = places(weighed, lambda net, x, turn=turn: weighed(net, x, turn=turn), name_map=NameMap("a", "b", given))
        assert found == ([("forward", "code", "")] if expected else [])


def in_place(net: Any, x: Any, *, used: bool = False, stopped: bool = False) -> Any:
    hidden = net.norm(net.one(x))
    returned = net.inplace(hidden)
    hidden = returned if used else hidden
    return net.head(hidden.detach() if stopped else hidden)


def test_a_layer_in_place_may_leave_its_return_value_unused() -> None:
    for used in (False, True):
        assert places(lambda net, x, used=used: in_place(net, x, used=used), in_place) == []
        found = places(
            lambda net, x, used=used: in_place(net, x, used=used), lambda net, x: in_place(net, x, stopped=True)
        )
        assert found == [("backward", "code", "")]
