"""What a trial finds in pairs that names make sure: crossed layers, and parameters that nothing shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.models.open_side import open_side
from align.names.matching.match_names import match_names
from align.names.settle_by_trial import UNSEEN, settle_by_trial
from align.names.user_rules import NameRules

if TYPE_CHECKING:
    from align.core.name_map import NameMap

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)}


def net(layers: str, forward: Any, **others: Any) -> Any:
    """A torch model of square linear layers, and other layers, with a forward written below."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in layers.split():
                setattr(self, name, torch.nn.Linear(8, 8))
            for name, layer in others.items():
                setattr(self, name, layer())

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Net()


def tried(source: Any, target: Any) -> NameMap:
    sides = open_side(source), open_side(target)
    parameters = [side.reader.read_parameters(side.model, label) for side, label in zip(sides, "ab", strict=True)]
    name_map = match_names(*parameters, NameRules())
    assert name_map.complete
    return settle_by_trial(*sides, name_map, X)


def crossed(name_map: NameMap) -> dict[str, str]:
    return {p.source: p.target for p in name_map.pairings if p.source != p.target}


def blind(name_map: NameMap) -> set[str]:
    return {p.source for p in name_map.pairings if UNSEEN in p.note}


def attending(q: str, k: str) -> Any:
    def forward(self: Any, x: Any) -> Any:
        import torch

        weights = torch.softmax(getattr(self, q)(x) @ getattr(self, k)(x).transpose(1, 2) / 2, -1)
        return self.out(weights @ self.v(x))

    return forward


def normed(first: str, second: str) -> Any:
    def forward(self: Any, x: Any) -> Any:
        y = x + self.fc(getattr(self, first)(x))
        return y + self.mlp(getattr(self, second)(y)).relu()

    return forward


def norm() -> Any:
    import torch

    return torch.nn.LayerNorm(8)


def test_norms_of_equal_names_that_the_port_calls_crosswise_are_exchanged_and_that_is_said() -> None:
    layers = {"norm1": norm, "norm2": norm}
    settled = tried(
        net("fc mlp", normed("norm1", "norm2"), **layers), net("fc mlp", normed("norm2", "norm1"), **layers)
    )
    names = {f"norm{i}.{role}": f"norm{3 - i}.{role}" for i in (1, 2) for role in ("weight", "bias")}
    assert crossed(settled) == names
    assert {p.evidence for p in settled.pairings if p.source in names} == {"trial"}
    assert all(f"the names say {p.source}" in p.note for p in settled.pairings if p.source in names)


def test_a_query_that_the_port_calls_key_is_found_where_the_scores_are_used() -> None:
    settled = tried(net("q k v out", attending("q", "k")), net("q k v out", attending("k", "q")))
    assert crossed(settled) == {"q.weight": "k.weight", "k.weight": "q.weight", "q.bias": "k.bias", "k.bias": "q.bias"}
    assert all(
        f"the names say {source}" in p.note for p in settled.pairings if (source := p.source) in crossed(settled)
    )
    assert blind(settled) == {"k.bias"}  # the port's q.bias


def test_a_port_that_names_alike_and_computes_alike_keeps_its_names() -> None:
    settled = tried(net("q k v out", attending("q", "k")), net("q k v out", attending("q", "k")))
    assert not crossed(settled)
    assert settled.complete


def test_a_port_that_computes_something_else_keeps_its_names() -> None:
    def other(self: Any, x: Any) -> Any:
        import torch

        scores = self.q(x) @ self.k(x).transpose(1, 2)  # not scaled
        return self.out(torch.tanh(scores) @ self.v(x))

    settled = tried(net("q k v out", attending("q", "k")), net("q k v out", other))
    assert not crossed(settled)
    assert settled.complete


def test_the_key_bias_and_an_unused_head_are_said_to_be_blind_and_no_other() -> None:
    settled = tried(net("q k v out head", attending("q", "k")), net("q k v out head", attending("q", "k")))
    assert blind(settled) == {"k.bias", "head.weight", "head.bias"}


def test_what_only_chooses_has_no_gradient_and_is_not_blind() -> None:
    def routed(self: Any, x: Any) -> Any:
        import torch

        chosen = torch.nn.functional.one_hot(self.router(x).argmax(-1), 8).to(x)
        return self.out(chosen * x)

    assert blind(tried(net("router out", routed), net("router out", routed))) == set()


def test_the_statistics_of_a_norm_that_is_not_used_are_blind_too() -> None:
    import torch

    def unused(self: Any, x: Any) -> Any:
        return self.out(self.bn(x.transpose(1, 2)).transpose(1, 2))

    layers = {"bn": lambda: torch.nn.BatchNorm1d(8), "spare": lambda: torch.nn.BatchNorm1d(8)}
    found = blind(tried(net("out", unused, **layers), net("out", unused, **layers)))
    assert {f"spare.{name}" for name in ("weight", "bias", "running_mean", "running_var")} <= found
    assert not [name for name in found if not name.startswith("spare.")]


def test_a_tied_matrix_is_not_blind() -> None:
    def tied(self: Any, x: Any) -> Any:
        return self.b(self.a(x)).relu()

    def model() -> Any:
        made = net("a b", tied)
        made.b.weight = made.a.weight
        return made

    assert blind(tried(model(), model())) == set()


def in_turn(*names: str) -> Any:
    """A forward that calls these layers one after the other, some of them maybe twice."""

    def forward(self: Any, x: Any) -> Any:
        for name in names:
            x = getattr(self, name)(x).tanh()
        return x

    return forward


def of(name_map: NameMap, role: str = "weight") -> dict[str, str]:
    ends = f".{role}"
    return {p.source.removesuffix(ends): p.target.removesuffix(ends) for p in name_map.pairings if ends in p.source}


def settled(source: Any, target: Any) -> NameMap:
    """The map by names and a trial, whatever names leave open."""
    sides = open_side(source), open_side(target)
    parameters = [side.reader.read_parameters(side.model, label) for side, label in zip(sides, "ab", strict=True)]
    return settle_by_trial(*sides, match_names(*parameters, NameRules()), X)


def test_blocks_that_the_port_runs_in_another_order_are_exchanged_along_the_whole_chain() -> None:
    names = ("a1", "a2", "a3", "a4", "a5")
    source, target = net(" ".join(names), in_turn(*names)), net(" ".join(names), in_turn("a2", "a4", "a3", "a1", "a5"))
    assert of(tried(source, target)) == {"a1": "a2", "a2": "a4", "a3": "a3", "a4": "a1", "a5": "a5"}


def test_an_exchange_before_something_that_the_port_computes_otherwise_keeps_the_other_names() -> None:
    def wrong(self: Any, x: Any) -> Any:
        x = in_turn("a2", "a1", "a3")(self, x) * 2 - 1
        return in_turn("a4", "a5")(self, x)

    found = of(tried(net("a1 a2 a3 a4 a5", in_turn("a1", "a2", "a3", "a4", "a5")), net("a1 a2 a3 a4 a5", wrong)))
    assert found == {"a1": "a2", "a2": "a1", "a3": "a3", "a4": "a4", "a5": "a5"}


def test_a_layer_that_is_called_twice_is_not_one_that_is_called_once() -> None:
    found = settled(net("p q", in_turn("p", "q", "p")), net("i j", in_turn("j", "i", "j")))
    assert of(found) == {"p": "j", "q": "i"}


def test_a_layer_whose_weight_is_used_past_its_module_is_found_by_what_comes_of_it() -> None:
    import torch

    def gated(called: str, past: str, *, swapped: bool) -> Any:
        def forward(self: Any, x: Any) -> Any:
            layer = getattr(self, past)
            one, other = getattr(self, called)(x), torch.nn.functional.linear(x, layer.weight, layer.bias)
            return torch.tanh(other) * torch.sigmoid(one) if swapped else torch.tanh(one) * torch.sigmoid(other)

        return forward

    found = settled(net("p q", gated("p", "q", swapped=False)), net("i j", gated("j", "i", swapped=True)))
    assert of(found) == {"p": "i", "q": "j"}


def test_two_layers_of_which_either_may_be_either_do_not_hide_what_comes_behind_them() -> None:
    def joined(one: str, other: str, then: str, last: str) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = getattr(self, then)(getattr(self, one)(x) + getattr(self, other)(x)).tanh()
            return y * getattr(self, last)(y).sigmoid()

        return forward

    source = net("xenon grove zinc nadir", joined("xenon", "grove", "zinc", "nadir"))
    found = settled(source, net("ridge cedar ember quartz", joined("cedar", "quartz", "ember", "ridge")))
    assert of(found) == {"zinc": "ember", "nadir": "ridge"}
    assert {name for group in found.ambiguous for name in group.sources if "weight" in name} == {
        "xenon.weight",
        "grove.weight",
    }
