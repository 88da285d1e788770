"""What the flow of the data shows of two models, and what it must not pretend to show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.name_map import NameMap
from align.core.transforms import IDENTITY
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.models.open_side import open_side
from align.names.dataflow.settle_by_dataflow import map_by_dataflow
from align.names.equal_values import TrialSide
from align.names.map_parameters import map_parameters
from align.names.user_rules import NameRules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.name_map import Pairing
    from align.core.parameters import Parameter
    from align.names.map_result import MapResult

frameworks = pytest.mark.frameworks

Truth = dict[str, dict[str, Any]]  # for each target and source, what the target's elements are, and -1 elsewhere
TOKENS = {"x": np.random.default_rng(0).normal(size=(3, 6, 8)).astype(np.float32)}
ROWS = {"x": np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)}
PIXELS = {"x": np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)}


@pytest.fixture(autouse=True)
def _drawn_apart(request: pytest.FixtureRequest) -> None:
    """Draw the values of all models of a test one after the other: equal ones would tell which is which."""
    if request.node.get_closest_marker("frameworks"):
        import torch

        torch.manual_seed(0)


def net(forward: Callable[..., Any], **parts: Any) -> Any:
    """A model of torch with these parts: modules, tensors that are buffers, shapes that are parameters."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, torch.Tensor):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, torch.nn.Parameter(torch.randn(part)) if isinstance(part, tuple) else part)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Net()


def linear(*sizes: int, bias: bool = True) -> Any:
    import torch

    return torch.nn.Linear(*sizes, bias=bias)


def mapped(source: Any, target: Any, inputs: Mapping[str, np.ndarray], **asked: Any) -> MapResult:
    return map_parameters(source, target, inputs=inputs, trial=True, **asked)


def numbers(parameters: tuple[Parameter, ...]) -> dict[str, np.ndarray]:
    """For each parameter a number for each of its elements, from 1 on."""
    return {one.name: np.arange(1, one.count + 1).reshape(one.shape) for one in parameters}


def written(pairings: tuple[Pairing, ...], own: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """For each target and source, the numbers of the source's elements that the target's are, 0 for others."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for one in pairings:
        made = one.transform.apply(own[one.source])
        beside = found.setdefault(one.target, {})
        beside[one.source] = beside[one.source] + made if one.source in beside else made
    return found


def assert_shown(result: MapResult, true: Callable[[dict[str, np.ndarray]], dict[str, Any]]) -> None:
    """The map is complete and sure, and each target is element by element what it truly is.

    `true` makes of the sources, and of the numbers of their elements, each target: a source, or several that it is
    joined of. No number of one source is another's, so that joined ones can be told apart.
    """
    own, first = {}, 1
    for name, value in numbers(result.source_parameters).items():
        own[name] = value + first - 1
        first += value.size
    found = {target: sum(parts.values()) for target, parts in written(result.name_map.pairings, own).items()}
    wanted = true(own)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not np.array_equal(found[name], wanted[name])] == []
    assert [f"{one.source} = {one.target}" for one in result.name_map.pairings if not one.sure] == []
    assert result.name_map.complete


def evidence(name_map: NameMap) -> dict[str, str]:
    return {one.source: one.evidence for one in name_map.pairings}


def softmax(q: Any, k: Any) -> Any:
    import torch

    return torch.softmax(q @ k.transpose(-1, -2) / 3, -1)


@frameworks
def test_query_key_and_value_of_one_shape_are_told_by_what_becomes_of_them() -> None:
    source = net(
        lambda own, x: own.o(softmax(own.q(x), own.k(x)) @ own.v(x)), **{name: linear(8, 8) for name in "qkvo"}
    )
    target = net(
        lambda own, x: own.a(softmax(own.d(x), own.b(x)) @ own.c(x)), **{name: linear(8, 8) for name in "abcd"}
    )
    result = mapped(source, target, TOKENS)
    # a bias of the keys moves all scores of a query alike: no run shows it but beside its matrix
    names = {"q": "d", "k": "b", "v": "c", "o": "a"}
    assert_shown(
        result,
        lambda own: {f"{b}.{role}": own[f"{a}.{role}"] for a, b in names.items() for role in ("weight", "bias")},
    )
    assert set(evidence(result.name_map).values()) == {"dataflow"}


@frameworks
def test_gate_and_up_are_told_in_the_ports_order() -> None:
    import torch

    def original(own: Any, x: Any) -> Any:
        return own.down(torch.nn.functional.silu(own.gate(x)) * own.up(x))

    def port(own: Any, x: Any) -> Any:
        up, gate = own.both(x).chunk(2, -1)
        return own.out(up * torch.sigmoid(gate) * gate)

    source = net(original, gate=linear(8, 12), up=linear(8, 12), down=linear(12, 8))
    target = net(port, both=linear(8, 24), out=linear(12, 8))
    assert_shown(
        mapped(source, target, ROWS),
        lambda own: {
            "both.weight": np.concatenate([own["up.weight"], own["gate.weight"]]),
            "both.bias": np.concatenate([own["up.bias"], own["gate.bias"]]),
            "out.weight": own["down.weight"],
            "out.bias": own["down.bias"],
        },
    )


@frameworks
def test_gate_and_up_of_mindspore_are_told_in_the_ports_order() -> None:
    import torch
    from mindspore import nn, ops

    class Port(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.out = nn.Dense(8, 24, has_bias=False), nn.Dense(12, 8, has_bias=False)

        def construct(self, x: Any) -> Any:
            both = self.both(x)
            return self.out(both[..., :12] * ops.silu(both[..., 12:]))

    def original(own: Any, x: Any) -> Any:
        return own.down(torch.nn.functional.silu(own.gate(x)) * own.up(x))

    sizes = {"gate": (8, 12), "up": (8, 12), "down": (12, 8)}
    parts = {name: linear(*size, bias=False) for name, size in sizes.items()}
    assert_shown(
        mapped(net(original, **parts), Port(), ROWS),
        lambda own: {
            "both.weight": np.concatenate([own["up.weight"], own["gate.weight"]]),
            "out.weight": own["down.weight"],
        },
    )


def added_up(own: Any, x: Any) -> Any:
    """Two branches of one shape that may be exchanged."""
    first, second, last = list(own.children())
    return last(first(x).relu() + second(x).relu())


@frameworks
def test_branches_whose_sum_is_the_same_either_way_are_paired_with_a_note() -> None:
    parts = [linear(8, 6, bias=False) for _ in range(4)]
    source = net(added_up, left=parts[0], right=parts[1], fc=linear(6, 3))
    target = net(added_up, a=parts[2], b=parts[3], head=linear(6, 3))
    name_map = mapped(source, target, ROWS).name_map
    pairs = {one.source: one.target for one in name_map.pairings}
    assert {pairs["left.weight"], pairs["right.weight"]} == {"a.weight", "b.weight"}
    assert (pairs["fc.weight"], pairs["fc.bias"]) == ("head.weight", "head.bias")
    noted = {one.source: one.note for one in name_map.pairings if one.note}
    assert noted.keys() & {"left.weight", "right.weight"}
    assert set(noted.values()) == {sentence("pair_note.either_is_right")}
    assert name_map.complete
    assert all(one.sure for one in name_map.pairings)


@frameworks
def test_of_branches_that_may_be_exchanged_a_bias_goes_with_its_matrix() -> None:
    source = net(added_up, left=linear(8, 6), right=linear(8, 6), fc=linear(6, 3))
    target = net(added_up, a=linear(8, 6), b=linear(8, 6), head=linear(6, 3))
    name_map = mapped(source, target, ROWS).name_map
    owners = {(one.source.rpartition(".")[0], one.target.rpartition(".")[0]) for one in name_map.pairings}
    assert owners in (
        {("left", "a"), ("right", "b"), ("fc", "head")},
        {("left", "b"), ("right", "a"), ("fc", "head")},
    )
    assert len(name_map.pairings) == 6
    assert name_map.complete


@frameworks
def test_a_list_of_routed_experts_is_a_stack_of_which_all_compute() -> None:
    import torch

    def routed(own: Any, x: Any) -> Any:
        chosen = own.router(x).argmax(-1)
        made = torch.zeros(len(x), 8)
        for number, (up, down) in enumerate(zip(own.ups, own.downs, strict=True)):
            mine = chosen == number
            if mine.any():
                made[mine] = down(up(x[mine]).relu())
        return made

    def dense(own: Any, x: Any) -> Any:
        chosen = torch.nn.functional.one_hot((x @ own.choice).argmax(-1), 3).to(x)
        every = (x[None] @ own.wide).relu() @ own.narrow
        return (chosen.T[..., None] * every).sum(0)

    lists = {
        name: torch.nn.ModuleList(linear(*sizes, bias=False) for _ in range(3))
        for name, sizes in {"ups": (8, 12), "downs": (12, 8)}.items()
    }
    source = net(routed, router=linear(8, 3, bias=False), **lists)
    target = net(dense, choice=(8, 3), wide=(3, 8, 12), narrow=(3, 12, 8))
    inputs = {"x": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)}
    assert_shown(
        mapped(source, target, inputs),
        lambda own: {
            "choice": own["router.weight"].T,
            "wide": np.stack([own[f"ups.{number}.weight"].T for number in range(3)]),
            "narrow": np.stack([own[f"downs.{number}.weight"].T for number in range(3)]),
        },
    )


@frameworks
def test_convolutions_whose_windows_do_not_overlap_are_dense_layers() -> None:
    import torch

    def original(own: Any, x: Any) -> Any:
        y = own.patches(x)  # 4 by 4 windows: 2 by 2 positions of 10 channels
        return own.mix(y.relu()).flatten(2).transpose(1, 2)

    def port(own: Any, x: Any) -> Any:
        windows = torch.nn.functional.unfold(x, 4, stride=4).transpose(1, 2)
        return own.second(own.first(windows).relu())

    source = net(original, patches=torch.nn.Conv2d(3, 10, 4, 4), mix=torch.nn.Conv2d(10, 10, 1))
    target = net(port, first=linear(48, 10), second=linear(10, 10))
    assert_shown(
        mapped(source, target, PIXELS),
        lambda own: {
            "first.weight": own["patches.weight"].reshape(10, 48),
            "first.bias": own["patches.bias"],
            "second.weight": own["mix.weight"].reshape(10, 10),
            "second.bias": own["mix.bias"],
        },
    )


@frameworks
def test_patches_whose_channels_come_last_have_their_columns_turned() -> None:
    import torch

    def port(own: Any, x: Any) -> Any:
        windows = x.reshape(4, 3, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(4, 4, 48)
        return own.rows(windows)

    source = net(lambda own, x: own.patches(x).flatten(2).transpose(1, 2), patches=torch.nn.Conv2d(3, 10, 4, 4))
    assert_shown(
        mapped(source, net(port, rows=linear(48, 10)), PIXELS),
        lambda own: {
            "rows.weight": own["patches.weight"].transpose(0, 2, 3, 1).reshape(10, 48),
            "rows.bias": own["patches.bias"],
        },
    )


@frameworks
def test_positions_have_an_axis_for_the_batch_or_none() -> None:
    def original(own: Any, x: Any) -> Any:
        return own.fc(own.proj(x) + own.pos_embed)

    def port(own: Any, x: Any) -> Any:
        return own.head(own.start(x) + own.where)

    source = net(original, proj=linear(8, 8), fc=linear(8, 5), pos_embed=(1, 6, 8))
    target = net(port, start=linear(8, 8), head=linear(8, 5), where=(6, 8))
    assert_shown(
        mapped(source, target, TOKENS),
        lambda own: {
            "where": own["pos_embed"][0],
            **{
                f"{b}.{role}": own[f"{a}.{role}"]
                for a, b in {"proj": "start", "fc": "head"}.items()
                for role in ("weight", "bias")
            },
        },
    )


@frameworks
def test_a_table_that_the_other_side_computes_is_dropped_and_said_to_be_computed() -> None:
    import torch

    def angles() -> Any:
        return torch.arange(6.0)[:, None] * 10.0 ** -torch.arange(0.0, 4.0)

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        one, two = x.chunk(2, -1)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)

    def original(own: Any, x: Any) -> Any:
        return own.o(turned(own.q(x), own.cos_table, own.sin_table))

    def port(own: Any, x: Any) -> Any:
        return own.last(turned(own.first(x), angles().cos(), angles().sin()))

    tables = {"cos_table": angles().cos(), "sin_table": angles().sin()}
    source = net(original, q=linear(8, 8, bias=False), o=linear(8, 5, bias=False), **tables)
    target = net(port, first=linear(8, 8, bias=False), last=linear(8, 5, bias=False))
    result = mapped(source, target, TOKENS)
    assert_shown(result, lambda own: {"first.weight": own["q.weight"], "last.weight": own["o.weight"]})
    computed = sentence("unmatched_reason.computed")
    dropped = {(one.name, one.side, one.reason) for one in result.name_map.dropped}
    assert dropped == {(name, "source", computed) for name in tables}
    back = mapped(target, source, TOKENS).name_map
    assert {(one.name, one.side, one.reason) for one in back.dropped} == {(name, "target", computed) for name in tables}


@frameworks
def test_columns_are_turned_where_channels_are_flattened_before_or_behind_positions() -> None:
    import torch

    def original(own: Any, x: Any) -> Any:
        return own.fc(own.conv(x).flatten(1))

    def port(own: Any, x: Any) -> Any:
        return own.head(own.filters(x).permute(0, 2, 3, 1).flatten(1))

    source = net(original, conv=torch.nn.Conv2d(3, 5, 3, 2), fc=linear(45, 7))
    target = net(port, filters=torch.nn.Conv2d(3, 5, 3, 2), head=linear(45, 7))
    inputs = {"x": np.random.default_rng(0).normal(size=(12, 3, 8, 8)).astype(np.float32)}
    assert_shown(
        mapped(source, target, inputs),
        lambda own: {
            "filters.weight": own["conv.weight"],
            "filters.bias": own["conv.bias"],
            "head.weight": own["fc.weight"].reshape(7, 5, 9).transpose(0, 2, 1).reshape(7, 45),
            "head.bias": own["fc.bias"],
        },
    )


def chain(names: str, forward: Callable[..., Any]) -> Any:
    return net(forward, **{name: linear(8, 8) for name in names})


@frameworks
def test_a_wrong_activation_in_a_chain_makes_no_pair_surely_wrong() -> None:
    source = chain("abcd", lambda own, x: own.d(own.c(own.b(own.a(x).tanh()).relu()).tanh()))
    target = chain("sqrp", lambda own, x: own.s(own.r(own.q(own.p(x).tanh()).sigmoid()).tanh()))
    name_map = mapped(source, target, ROWS).name_map
    true = {f"{a}.{role}": f"{b}.{role}" for a, b in zip("abcd", "pqrs", strict=True) for role in ("weight", "bias")}
    assert {one.source: one.target for one in name_map.pairings if one.sure}.items() <= true.items()
    assert not any(one.transform.steps for one in name_map.pairings if one.sure)
    assert true["a.weight"] == next(one.target for one in name_map.pairings if one.source == "a.weight")


@frameworks
def test_a_fault_before_branches_of_one_shape_lets_none_of_them_be_guessed() -> None:
    def original(own: Any, x: Any) -> Any:
        y = own.a(x).relu()
        return own.d((own.b(y).tanh() - own.c(y)).relu())

    def port(own: Any, x: Any) -> Any:
        y = own.p(x).sigmoid()
        return own.s((own.r(y).tanh() - own.q(y)).relu())

    name_map = mapped(chain("abcd", original), chain("pqrs", port), ROWS).name_map
    true = {f"{a}.{role}": f"{b}.{role}" for a, b in zip("abcd", "prqs", strict=True) for role in ("weight", "bias")}
    assert {one.source: one.target for one in name_map.pairings if one.sure}.items() <= true.items()
    assert not name_map.complete


@frameworks
def test_what_the_user_said_stays_even_against_the_flow() -> None:
    def original(own: Any, x: Any) -> Any:
        return own.d((own.a(x).tanh() - own.b(x)) * own.c(x).relu())

    def port(own: Any, x: Any) -> Any:
        return own.s((own.p(x).tanh() - own.q(x)) * own.r(x).relu())

    rules = NameRules("rules", names={f"a.{role}": (f"q.{role}", IDENTITY) for role in ("weight", "bias")})
    models = chain("abcd", original), chain("pqrs", port)
    name_map = mapped(*models, ROWS, rules=rules).name_map
    pairs = {one.source: one.target for one in name_map.pairings}
    assert (pairs["a.weight"], pairs["a.bias"]) == ("q.weight", "q.bias")
    said = [one for one in name_map.pairings if one.evidence == "user"]
    assert {one.source for one in said} == {"a.weight", "a.bias"}
    assert len({one.target for one in name_map.pairings}) == len(name_map.pairings)
    right = mapped(*models, ROWS, rules=NameRules("rules", names={"a.weight": ("p.weight", IDENTITY)})).name_map
    assert {one.source[0]: one.target[0] for one in right.pairings} == dict(zip("abcd", "pqrs", strict=True))
    assert evidence(right)["a.weight"] == "user"
    assert right.complete


@frameworks
def test_both_models_have_their_own_values_back() -> None:
    import mindspore
    import torch
    from mindspore import nn, ops

    class Port(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.norm = nn.Dense(8, 8), nn.Dense(8, 8), nn.BatchNorm1d(8)

        def construct(self, x: Any) -> Any:
            return self.norm(ops.relu(self.one(x)) - self.two(x))

    source = net(
        lambda own, x: own.bn(own.a(x).relu() - own.b(x)), a=linear(8, 8), b=linear(8, 8), bn=torch.nn.BatchNorm1d(8)
    )
    target = Port()
    state = {name: value.clone() for name, value in source.state_dict().items()}
    values = {one.name: one.asnumpy().copy() for one in target.get_parameters()}
    modes = source.training, target.training
    assert mapped(source.eval(), target.set_train(False), ROWS).name_map.complete
    assert modes == (True, False)
    assert state.keys() == source.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in source.state_dict().items())
    after = {one.name: one for one in target.get_parameters()}
    assert after.keys() == values.keys()
    assert all(np.array_equal(after[name].asnumpy(), value) for name, value in values.items())
    assert all(isinstance(one, mindspore.Parameter) for one in after.values())


def layer(path: str, kind: str, *, idle: bool = False) -> ArrayLayer:
    def run(x: Any, weight: Any) -> Any:
        return x if idle else np.maximum(x @ weight.T, 0.1 * x)

    return ArrayLayer(path, kind, run, {"weight": np.ones((8, 8), np.float32)})


def test_a_side_whose_operators_cannot_be_seen_leaves_the_map_as_it_is() -> None:
    from align.names.dataflow.settle_by_dataflow import map_by_dataflow

    source = ArrayModel(tuple(layer(path, "torch.nn.Linear") for path in ("body.0", "body.1", "fc")))
    target = ArrayModel(tuple(layer(path, "mindspore.nn.Dense") for path in ("body.0", "body.1", "head.dense")))
    named = map_parameters(source, target).name_map
    assert {one.source: one.target for one in named.pairings}["body.0.weight"] == "body.0.weight"
    found = map_by_dataflow(open_side(source), open_side(target), named, ROWS)
    assert (found if isinstance(found, NameMap) else found[0]) == named
    tried = mapped(source, target, ROWS).name_map
    assert {one.source: one.target for one in tried.pairings} == {one.source: one.target for one in named.pairings}
    assert "dataflow" not in evidence(tried).values()


@frameworks
def test_one_side_whose_operators_cannot_be_seen_is_enough_for_the_map_to_stay() -> None:
    from align.names.dataflow.settle_by_dataflow import map_by_dataflow

    source = ArrayModel((layer("a", "torch.nn.Linear"), layer("b", "torch.nn.Linear")))
    target = chain("ab", lambda own, x: own.b(own.a(x)))
    named = map_parameters(source, target).name_map
    found = map_by_dataflow(open_side(source), open_side(target), named, ROWS)
    assert (found if isinstance(found, NameMap) else found[0]) == named


@frameworks
def test_outputs_are_compared_by_their_names_and_what_one_side_alone_computes_is_no_pair() -> None:
    import torch
    from torch import nn

    class Named(nn.Module):
        def __init__(self, first: str, second: str) -> None:
            super().__init__()
            self.names = first, second
            for name in self.names:
                setattr(self, name, nn.Linear(6, 6))

        def forward(self, x: Any) -> Any:
            made = {"cls": getattr(self, self.names[0])(x), "box": getattr(self, self.names[1])(x)}
            return made if self.names[0] == "p" else {"box": made["box"], "cls": made["cls"]}

    class Shared(nn.Module):
        def __init__(self, normed: bool) -> None:
            super().__init__()
            layer = nn.Linear(3, 5)
            self.f, self.o = nn.utils.parametrizations.weight_norm(layer) if normed else layer, nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            return self.o(torch.tanh(self.f(x)))

    torch.manual_seed(0)
    x = {"x": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)}
    found = map_parameters(Named("p", "q"), Named("v", "u"), inputs=x, trial=True).name_map
    assert {one.source: one.target for one in found.pairings if one.source.endswith("weight")} == {
        "p.weight": "v.weight",
        "q.weight": "u.weight",
    }
    given = {"x": x["x"][:, :3].copy()}
    found = map_parameters(Shared(normed=True), Shared(normed=False), inputs=given, trial=True).name_map
    assert not [one for one in found.pairings if one.target == "f.weight"]


@frameworks
def test_of_three_branches_the_last_one_left_is_no_surer_than_the_others() -> None:
    import torch
    from torch import nn

    class Branches(nn.Module):
        def __init__(self, *names: str) -> None:
            super().__init__()
            self.names = names
            for name in names:
                setattr(self, name, nn.Linear(6, 6))

        def forward(self, x: Any) -> Any:
            first, second, third = (getattr(self, name) for name in self.names)
            if self.names[0] == "a":
                return torch.relu(first(x)) * 2 + torch.relu(second(x)) + third(x)
            return third(x) + torch.relu(first(x)) * 2 + torch.relu(second(x))

    torch.manual_seed(0)
    x = {"x": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)}
    found = map_parameters(Branches("a", "b", "c"), Branches("x2", "x1", "x3"), inputs=x, trial=True).name_map
    true = {"a": "x2", "b": "x1", "c": "x3"}
    assert all(one.target.partition(".")[0] == true[one.source.partition(".")[0]] for one in found.pairings)


def test_a_port_in_which_no_order_is_right_takes_no_more_than_fifteen_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: dict[str, int] = {}
    run, seconds = TrialSide.run, TrialSide.seconds

    def counted(side: TrialSide, sink: Any) -> None:
        runs[side.side.label] = runs.get(side.side.label, 0) + 1
        run(side, sink)

    def timed(side: TrialSide, inputs: Mapping[str, np.ndarray]) -> float:
        runs[side.side.label] = runs.get(side.side.label, 0) + 1
        return seconds(side, inputs)

    monkeypatch.setattr(TrialSide, "run", counted)
    monkeypatch.setattr(TrialSide, "seconds", timed)

    def right(own: Any, x: Any) -> Any:
        for q, k, v, g in zip(own.q, own.k, own.v, own.g, strict=True):
            x = x + softmax(q(x), k(x)) @ (v(x) * g(x))
        return own.o(x)

    def wrong(own: Any, x: Any) -> Any:
        for at, (a, b, c, d) in enumerate(zip(own.a, own.b, own.c, own.d, strict=True)):
            x = x + softmax(b(x), c(x)) @ (a(x) + d(x) if at == 1 else a(x) * d(x))  # the second is wrong
        return own.o(x)

    import torch

    def made(way: Callable[..., Any], names: str) -> Any:
        lists = {name: torch.nn.ModuleList(linear(8, 8) for _ in range(3)) for name in names}
        return net(way, **lists, o=linear(8, 3))

    sides = made(right, "qkvg"), made(wrong, "abcd")
    names = map_parameters(*sides).name_map
    map_by_dataflow(*(replace(open_side(side), label=str(at)) for at, side in enumerate(sides)), names, TOKENS)
    assert runs["0"] <= 5
    assert 12 < runs["1"] <= 15
