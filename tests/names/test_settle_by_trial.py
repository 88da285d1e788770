"""What values tell where names and shapes do not, and what they must not pretend to tell."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

from align.core.name_map import Ambiguity, NameMap, Pairing
from align.core.piece_transforms import Slice
from align.errors import UserCodeError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.open_side import open_side
from align.names.choose_partners import ALIKE, BLIND, UNLIKE
from align.names.settle_by_trial import UNSEEN, settle_by_trial

X = {"x": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}


def linear(x: Any, weight: Any) -> Any:
    return np.maximum(x @ weight.T, 0.1 * x)


def broken(x: Any, weight: Any) -> Any:
    msg = "no kernel"
    raise RuntimeError(msg)


def chain(names: str, kind: str = "torch.nn.Linear", **functions: Any) -> ArrayModel:
    return ArrayModel(
        tuple(
            ArrayLayer(name, kind, functions.get(name, linear), {"weight": np.ones((4, 4), np.float32)})
            for name in names
        )
    )


def ambiguous(sources: list[str], targets: list[str], *pairings: Pairing) -> NameMap:
    return NameMap("source", "target", pairings, ambiguous=(Ambiguity(tuple(sources), tuple(targets), "alike"),))


def weights(names: str) -> list[str]:
    return [f"{name}.weight" for name in names]


def settle(source: Any, target: Any, name_map: NameMap, inputs: Any = X) -> NameMap:
    return settle_by_trial(open_side(source), open_side(target), name_map, inputs)


def pairs(name_map: NameMap) -> dict[str, str]:
    return {pairing.source: pairing.target for pairing in name_map.pairings}


def test_layers_of_one_shape_pair_by_what_they_are_given() -> None:
    name_map = ambiguous(weights("abc"), weights("pqr"))
    settled = settle(chain("abc"), chain("rqp", "mindspore.nn.Dense"), name_map)
    assert pairs(settled) == {"a.weight": "r.weight", "b.weight": "q.weight", "c.weight": "p.weight"}
    assert {(one.evidence, one.confidence) for one in settled.pairings} == {("trial", 1.0)}
    assert settled.complete


def test_layers_that_change_nothing_stay_open_and_are_called_blind() -> None:
    def idle(x: Any, weight: Any) -> Any:
        return x

    name_map = ambiguous(weights("ab"), weights("pq"))
    settled = settle(chain("abc", a=idle, b=idle), chain("pqr", p=idle, q=idle), name_map)
    assert not settled.pairings
    assert [group.reason for group in settled.ambiguous] == [BLIND]


def test_a_port_that_computes_something_else_settles_nothing_behind_it() -> None:
    def shifted(x: Any, weight: Any) -> Any:
        return linear(x, weight) + 1.0

    name_map = ambiguous(weights("bc"), weights("qr"), Pairing("a.weight", "p.weight", "name", 1.0))
    settled = settle(chain("abc"), chain("pqr", q=shifted), name_map)
    assert pairs(settled) == {"a.weight": "p.weight", "b.weight": "q.weight", "c.weight": "r.weight"}
    other = settle(chain("abc"), chain("pqr", p=shifted), ambiguous(weights("abc"), weights("pqr")))
    assert set(pairs(other).items()) <= {("a.weight", "p.weight"), ("b.weight", "q.weight"), ("c.weight", "r.weight")}


def test_both_models_have_their_own_values_back() -> None:
    models = chain("ab"), chain("pq")
    before = [open_side(model).reader.read_values(model) for model in models]
    settle(*models, ambiguous(weights("ab"), weights("pq")))
    for model, values in zip(models, before, strict=True):
        assert all(np.array_equal(value, values[name]) for name, value in model.values().items())


def test_both_models_have_their_own_values_back_after_a_failure() -> None:
    models = chain("ab"), chain("pq", q=broken)
    for layer in models[0].layers:
        layer.parameters["weight"][...] = 3.0
    with pytest.raises(UserCodeError, match="no kernel"):
        settle(*models, ambiguous(weights("ab"), weights("pq")))
    assert all((value == 3.0).all() for value in models[0].values().values())
    assert all((value == 1.0).all() for value in models[1].values().values())


def test_layers_that_hold_the_same_values_are_settled_even_where_no_run_shows_them() -> None:
    def idle(x: Any, weight: Any) -> Any:
        return x

    source, target = chain("ab", a=idle, b=idle), chain("pq", p=idle, q=idle)
    for (one, other), seed in zip(((0, 1), (1, 0)), (1, 2), strict=True):
        drawn = np.random.default_rng(seed).standard_normal((4, 4))
        source.layers[one].parameters["weight"][...] = target.layers[other].parameters["weight"][...] = drawn
    settled = settle(source, target, ambiguous(weights("ab"), weights("pq")))
    assert pairs(settled) == {"a.weight": "q.weight", "b.weight": "p.weight"}


def attention(names: tuple[str, ...]) -> Any:
    """An attention of torch whose four equal matrices have these names, in the order query, key, value, output."""
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in sorted(names):
                self.add_module(name, torch.nn.Linear(4, 4))
            self.norm = torch.nn.LayerNorm(4)

        def forward(self, x: Any) -> Any:
            q, k, v, o = (getattr(self, name) for name in names)
            y = self.norm(x)
            return o(torch.softmax(q(y) @ k(y).transpose(-1, -2), -1) @ v(y))

    return Attention()


def attention_map(names: str, others: str) -> NameMap:
    norm = [Pairing(f"norm.{a}", f"norm.{b}", "structure", 1.0) for a, b in (("weight", "gamma"), ("bias", "beta"))]
    groups = tuple(
        Ambiguity(tuple(f"{n}.{role}" for n in names), tuple(f"{n}.{role}" for n in others), "alike")
        for role in ("weight", "bias")
    )
    return NameMap("source", "target", tuple(norm), ambiguous=groups)


TOKENS = {"x": np.random.default_rng(2).standard_normal((2, 5, 4)).astype(np.float32)}


@pytest.mark.frameworks
def test_query_key_and_value_are_told_by_what_comes_of_them() -> None:
    from mindspore import nn, ops

    class Port(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Dense(4, 4) for _ in range(4))
            self.norm = nn.LayerNorm((4,), epsilon=1e-5)

        def construct(self, x: Any) -> Any:
            y = self.norm(x)
            query, key, value = self.c(y), self.a(y), self.d(y)
            return self.b(ops.softmax(ops.matmul(query, key.swapaxes(-1, -2)), -1) @ value)

    model, net = attention(("q", "k", "v", "o")), Port()
    settled = settle(model, net, attention_map("qkvo", "abcd"), TOKENS)
    expected = {"q": "c", "k": "a", "v": "d", "o": "b", "norm": "norm"}
    assert {s.partition(".")[0]: t.partition(".")[0] for s, t in pairs(settled).items()} == expected
    assert settled.complete


def torch_map(pairings: dict[str, str], *groups: tuple[str, str]) -> NameMap:
    known = tuple(Pairing(a, b, "structure", 1.0) for a, b in pairings.items())
    opened = tuple(Ambiguity(tuple(a.split()), tuple(b.split()), "alike") for a, b in groups)
    return NameMap("source", "target", known, ambiguous=opened)


def branches(order: str, weights: tuple[float, float] = (1.0, -2.0)) -> Any:
    import torch

    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.third, self.fourth = torch.nn.LayerNorm(4), torch.nn.LayerNorm(4)

        def forward(self, x: Any) -> Any:
            calls = {"a": lambda: self.third(self.first(x)), "b": lambda: self.fourth(self.second(x))}
            outputs = {name: calls[name]() for name in order}
            return weights[0] * outputs["a"] + weights[1] * outputs["b"]

    return Branches()


BRANCHES = (
    ("first.weight second.weight", "first.weight second.weight"),
    ("first.bias second.bias", "first.bias second.bias"),
    ("third.weight fourth.weight", "third.weight fourth.weight"),
    ("third.bias fourth.bias", "third.bias fourth.bias"),
)


@pytest.mark.frameworks
def test_two_branches_are_told_where_they_meet_whatever_is_called_first() -> None:
    settled = settle(branches("ab"), branches("ba"), torch_map({}, *BRANCHES), {"x": X["x"]})
    assert settled.complete
    assert all(pairing.source == pairing.target for pairing in settled.pairings)


@pytest.mark.frameworks
def test_branches_that_are_added_alike_are_left_open() -> None:
    settled = settle(branches("ab", (1.0, 1.0)), branches("ba", (1.0, 1.0)), torch_map({}, *BRANCHES), {"x": X["x"]})
    assert not settled.pairings
    assert ALIKE in {group.reason for group in settled.ambiguous}


@pytest.mark.frameworks
def test_branches_that_the_port_joins_otherwise_are_left_open() -> None:
    settled = settle(branches("ab"), branches("ba", (0.5, 3.0)), torch_map({}, *BRANCHES), {"x": X["x"]})
    assert not settled.pairings
    assert {group.reason for group in settled.ambiguous} & {ALIKE, UNLIKE}


def fused_attention(heads: int) -> tuple[Any, Any]:
    """One head of key and value for all of the query, as in grouped-query attention: fused, and as three layers."""
    import torch

    widths = (4 * heads, 4, 4)

    class Attention(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            query, key, value = self.projected(x)
            query = query.unflatten(-1, (heads, 4)).movedim(-2, -3)
            key, value = key.unsqueeze(-3), value.unsqueeze(-3)
            attended = torch.softmax(query @ key.transpose(-1, -2), -1) @ value
            return self.o(attended.movedim(-3, -2).flatten(-2))

    class Fused(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.o = torch.nn.Linear(4, sum(widths)), torch.nn.Linear(4 * heads, 4)

        def projected(self, x: Any) -> Any:
            return self.qkv(x).split(widths, -1)

    class Split(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(4, width) for width in widths)
            self.o = torch.nn.Linear(4 * heads, 4)

        def projected(self, x: Any) -> Any:
            return self.q(x), self.k(x), self.v(x)

    return Fused(), Split()


@pytest.mark.frameworks
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("guess", ["qkv", "kvq", "vqk"])
def test_pieces_of_a_fused_matrix_get_the_order_that_the_values_show(guess: str, heads: int) -> None:
    def cut(order: str) -> dict[str, Slice]:
        ends = list(accumulate((4 * heads if name == "q" else 4 for name in order), initial=0))
        return {name: Slice(0, *span) for name, span in zip(order, pairwise(ends), strict=True)}

    known = [Pairing(f"o.{role}", f"o.{role}", "name", 1.0) for role in ("weight", "bias")]
    pieces = [
        Pairing(f"qkv.{role}", f"{name}.{role}", "structure", 0.6, piece, "the order is not sure")
        for role in ("weight", "bias")
        for name, piece in cut(guess).items()
    ]
    settled = settle(*fused_attention(heads), NameMap("s", "t", (*known, *pieces)), TOKENS)
    order = {p.target: p.transform for p in settled.pairings if p.source == "qkv.weight"}
    assert order == {f"{name}.weight": piece for name, piece in cut("qkv").items()}
    assert all((p.evidence, p.confidence) == ("trial", 1.0) for p in settled.pairings if p.source.startswith("qkv"))


@pytest.mark.frameworks
@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("widths", [(2, 6), (6, 2), (4, 4)])
def test_pieces_that_no_name_puts_in_order_are_tried_in_every_order(widths: tuple[int, int], cut: bool) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self, *, fused: bool) -> None:
            super().__init__()
            if fused:
                self.both = torch.nn.Linear(4, sum(widths))
            else:
                self.one, self.other = (torch.nn.Linear(4, width) for width in widths)
            self.fused = fused

        def forward(self, x: Any) -> Any:
            one, other = self.both(x).split(widths, -1) if self.fused else (self.one(x), self.other(x))
            return torch.cat([torch.relu(other), torch.tanh(one) * 2], -1)

    groups = [(f"both.{role}", f"one.{role} other.{role}")[:: 1 if cut else -1] for role in ("bias", "weight")]
    settled = settle(Net(fused=cut), Net(fused=not cut), torch_map({}, *groups), X)
    assert settled.complete
    pieces = {(p.target if cut else p.source): p.transform for p in settled.pairings}
    starts = {name: transform.start for name, transform in pieces.items()}
    assert starts == {"one.weight": 0, "one.bias": 0, "other.weight": widths[0], "other.bias": widths[0]}


@pytest.mark.frameworks
def test_unsure_pairs_are_confirmed_or_exchanged_where_that_makes_all_agree_and_else_left() -> None:
    def unsure(names: dict[str, str]) -> NameMap:
        layers = {f"{a}.{role}": f"{b}.{role}" for a, b in names.items() for role in ("weight", "bias")}
        return NameMap("s", "t", tuple(Pairing(a, b, "structure", 0.6) for a, b in layers.items()))

    straight = {name: name for name in ("first", "second", "third", "fourth")}
    right = settle(branches("ab"), branches("ba"), unsure(straight), {"x": X["x"]})
    assert {pairing.confidence for pairing in right.pairings} == {1.0}
    crossed = dict(zip(straight, ("second", "first", "fourth", "third"), strict=True))
    corrected = settle(branches("ab"), branches("ba"), unsure(crossed), {"x": X["x"]})
    assert all(pairing.confidence == 1.0 and pairing.source == pairing.target for pairing in corrected.pairings)
    open_still = settle(branches("ab"), branches("ba", (0.5, 3.0)), unsure(crossed), {"x": X["x"]})
    assert {(pairing.source, pairing.target, pairing.confidence) for pairing in open_still.pairings} == {
        (pairing.source, pairing.target, 0.6) for pairing in unsure(crossed).pairings
    }


@pytest.mark.frameworks
def test_running_statistics_and_modes_of_live_models_are_left_as_they_were() -> None:
    import torch

    def net() -> Any:
        return torch.nn.Sequential(
            *(m for _ in range(2) for m in (torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.BatchNorm2d(3)))
        )

    models = net(), net()
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    names = [("weight", "0 2"), ("bias", "0 2"), ("weight", "1 3"), ("bias", "1 3")]
    names += [("running_mean", "1 3"), ("running_var", "1 3")]
    groups = [" ".join(f"{layer}.{role}" for layer in layers.split()) for role, layers in names]
    image = {"x": np.random.default_rng(3).standard_normal((2, 3, 6, 6)).astype(np.float32)}
    settled = settle(*models, torch_map({}, *((group, group) for group in groups)), image)
    assert len(settled.pairings) == 12
    assert all(pairing.source == pairing.target for pairing in settled.pairings)
    for model, values in zip(models, before, strict=True):
        assert model.training
        assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())


@pytest.mark.frameworks
def test_what_no_run_uses_is_said_to_be_blind_and_what_is_used_past_its_module_is_not() -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
            self.auxiliary, self.functional = torch.nn.Linear(4, 7), torch.nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            used = self.functional
            return torch.nn.functional.linear(torch.relu(self.second(self.first(x))), used.weight, used.bias)

    names = [f"{layer}.{role}" for layer in ("auxiliary", "functional") for role in ("weight", "bias")]
    groups = [(f"first.{role} second.{role}",) * 2 for role in ("weight", "bias")]
    settled = settle(Net(), Net(), torch_map({name: name for name in names}, *groups), X)
    assert {p.source for p in settled.pairings if p.note == UNSEEN} == {"auxiliary.weight", "auxiliary.bias"}
    assert settled.complete
