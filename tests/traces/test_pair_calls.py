"""Calls pair by the parameters that they own, by their place, or by what is inside; never by name or by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.core.name_map import NameMap, Pairing
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.traces import Capture
from align.traces.module_calls import CalledModules
from align.traces.pair_traces import pair_calls

if TYPE_CHECKING:
    from align.traces.module_calls import CallPairs

Run = list[tuple[str, str]]
"""One side: (path, class) in the order in which the modules return; capital letters in a class own a parameter."""

TORCH = {
    "Linear": "torch.nn.Linear", "Conv": "torch.nn.Conv2d", "Attention": "torch.nn.MultiheadAttention",
    "relu": "torch.nn.ReLU", "gelu": "torch.nn.GELU", "max": "torch.nn.MaxPool2d", "avg": "torch.nn.AvgPool2d",
    "dropout": "torch.nn.Dropout", "identity": "torch.nn.Identity", "box": "port.Box", "odd": "port.Odd",
}  # fmt: skip
MINDSPORE = {
    name: value.replace("torch.nn", "mindspore.nn").replace("Linear", "Dense") for name, value in TORCH.items()
}
SHAPE = (2, 8)


def split(path: str) -> tuple[str, tuple[int, ...]]:
    """`path@2x4` is a module whose output has the shape (2, 4)."""
    name, _, shape = path.partition("@")
    return name, tuple(int(n) for n in shape.split("x")) if shape else SHAPE


def side(run: Run, classes: dict[str, str], side_name: Any, idle: Run = []) -> tuple[Any, ...]:  # noqa: B006
    calls: dict[str, int] = {}
    captures, known = [], {}
    for order, (path, kind) in enumerate(run):
        name, shape = split(path)
        captures.append(Capture(order, name, calls.get(name, 0), "", kind, shape, "float32"))
        calls[name] = calls.get(name, 0) + 1
        known[name] = kind
    known |= {split(path)[0]: kind for path, kind in idle}
    owners = [path for path, kind in known.items() if kind[0].isupper()]
    parameters = [Parameter(f"{path}.weight", (8, 8), "float32", path, "weight", True) for path in owners]
    modules = [
        Module(path, (classes[kind.lower() if kind.lower() in classes else kind],), tuple(
            p.name for p in parameters if p.module == path
        ))
        for path, kind in known.items()
    ]  # fmt: skip
    return captures, ParameterSet(side_name, None, tuple(parameters), tuple(modules)), owners


def paired(
    reference: Run, candidate: Run, idle: tuple[Run, Run] = ([], []), links: dict[str, str] | None = None
) -> CallPairs:
    """Pair two runs; modules that own a parameter correspond in order, or as `links` says."""
    captures, parameters, owners = side(reference, TORCH, "source", idle[0])
    others = side(candidate, MINDSPORE, "target", idle[1])
    linked = links or dict(zip(owners, others[2], strict=True))
    pairings = tuple(Pairing(f"{a}.weight", f"{b}.weight", "user", 1.0) for a, b in linked.items())
    name_map = NameMap("source", "target", pairings)
    left = CalledModules(captures, parameters, name_map, "source")
    return pair_calls(left, CalledModules(others[0], others[1], name_map, "target"))


def names(result: CallPairs) -> list[tuple[str, str]]:
    return [(pair.reference.module, pair.candidate.module) for pair in result.pairs]


def alone(result: CallPairs) -> dict[str, str]:
    return {one.module: one.reason for one in result.unpaired}


def certain(result: CallPairs) -> dict[str, bool]:
    return {pair.reference.module: pair.certain for pair in result.pairs}


def test_owners_pair_by_the_map_whatever_they_are_called() -> None:
    result = paired([("a", "Linear"), ("b", "Linear")], [("b", "Linear"), ("a", "Linear")])
    assert names(result) == [("a", "b"), ("b", "a")]
    assert certain(result) == {"a": True, "b": True}


def test_a_stranger_of_the_same_name_and_shape_is_not_paired() -> None:
    result = paired(
        [("fc", "Linear"), ("out", "Linear")], [("aux.fc", "Linear"), ("fc", "Linear")], links={"out": "fc"}
    )
    assert names(result) == [("out", "fc")]
    assert alone(result) == dict.fromkeys(["fc", "aux.fc"], "the name map leaves its parameters open")


def test_layers_without_parameters_pair_by_kind_and_place() -> None:
    result = paired(
        [("c1", "Conv"), ("r", "relu"), ("p", "max"), ("c2", "Conv"), ("r", "relu")],
        [("a", "Conv"), ("act", "relu"), ("pool", "max"), ("b", "Conv"), ("act", "relu")],
    )
    assert names(result) == [("c1", "a"), ("r", "act"), ("p", "pool"), ("c2", "b"), ("r", "act")]
    assert [pair.reference.call for pair in result.pairs] == [0, 0, 0, 0, 1]
    assert all(pair.certain for pair in result.pairs)


def test_a_module_called_several_times_pairs_call_by_call() -> None:
    result = paired([("cell", "Linear")] * 3, [("step", "Linear")] * 3)
    assert [(p.reference.call, p.candidate.call) for p in result.pairs] == [(0, 0), (1, 1), (2, 2)]


def test_a_call_too_few_is_told() -> None:
    result = paired([("cell", "Linear")] * 3, [("step", "Linear")] * 2)
    assert len(result.pairs) == 2
    assert [(one.side, one.call) for one in result.unpaired] == [("reference", 2)]
    assert alone(result)["cell"] == "its counterpart step is called less often"


def test_a_call_too_many_is_told() -> None:
    result = paired([("cell", "Linear")], [("step", "Linear")] * 2)
    assert [(one.side, one.call) for one in result.unpaired] == [("candidate", 1)]


def test_a_layer_that_the_other_side_never_calls_is_told() -> None:
    result = paired([("a", "Linear"), ("b", "Linear")], [("x", "Linear")], idle=([], [("y", "Linear")]))
    assert names(result) == [("a", "x")]
    assert alone(result) == {"b": "its counterpart y is not called, runs without its hooks, or returns no tensor"}


def test_modules_that_neither_side_calls_are_no_matter() -> None:
    result = paired([("a", "Linear")], [("x", "Linear")], idle=([("b", "Linear")], [("y", "Linear")]))
    assert (names(result), alone(result)) == ([("a", "x")], {})


@pytest.mark.parametrize("passive", ["identity", "dropout"])
def test_a_layer_that_does_nothing_stands_for_no_other_layer(passive: str) -> None:
    result = paired(
        [("a", "Linear"), ("n", passive), ("b", "Linear")], [("x", "Linear"), ("act", "relu"), ("y", "Linear")]
    )
    assert names(result) == [("a", "x"), ("b", "y")]
    assert set(alone(result)) == {"n", "act"}


def test_an_identity_without_counterpart_disturbs_no_neighbour() -> None:
    result = paired(
        [("a", "Linear"), ("n", "identity"), ("r", "relu"), ("b", "Linear")],
        [("x", "Linear"), ("act", "relu"), ("y", "Linear")],
    )
    assert names(result) == [("a", "x"), ("r", "act"), ("b", "y")]
    assert certain(result)["r"]


def test_another_activation_at_the_same_place_is_surely_meant_for_it() -> None:
    result = paired(
        [("a", "Linear"), ("r", "relu"), ("b", "Linear")], [("x", "Linear"), ("g", "gelu"), ("y", "Linear")]
    )
    assert names(result) == [("a", "x"), ("r", "g"), ("b", "y")]
    assert certain(result) == {"a": True, "r": True, "b": True}


def test_another_activation_is_not_certain_where_one_side_does_more_at_that_place() -> None:
    result = paired(
        [("a", "Linear"), ("r", "relu"), ("s", "relu"), ("b", "Linear")],
        [("x", "Linear"), ("g", "gelu"), ("y", "Linear")],
    )
    assert list(certain(result).values()) == [True, False, True]


def test_a_part_of_a_composed_activation_is_not_certain() -> None:
    result = paired(
        [("a", "Linear"), ("r", "relu"), ("b", "Linear")],
        [("x", "Linear"), ("swish.sigmoid", "gelu"), ("swish", "identity"), ("y", "Linear")],
    )
    assert certain(result)["r"] is False


def test_the_same_pooling_with_another_stride_is_surely_meant_for_it() -> None:
    result = paired([("a", "Conv"), ("p@2x4", "max"), ("b", "Conv")], [("x", "Conv"), ("q@2x8", "max"), ("y", "Conv")])
    assert names(result) == [("a", "x"), ("p", "q"), ("b", "y")]
    assert certain(result)["p"] is True


def test_neither_kind_nor_shape_is_no_pair() -> None:
    result = paired([("a", "Conv"), ("p@2x4", "max"), ("b", "Conv")], [("x", "Conv"), ("g@2x8", "gelu"), ("y", "Conv")])
    assert names(result) == [("a", "x"), ("b", "y")]


def test_one_of_two_equal_layers_is_paired_but_not_certain() -> None:
    """One side has a function where the other has a module: which of the two it is, only the values tell."""
    result = paired(
        [("a", "Linear"), ("r", "relu"), ("b", "Linear")],
        [("x", "Linear"), ("s", "relu"), ("s", "relu"), ("y", "Linear")],
    )
    assert names(result) == [("a", "x"), ("r", "s"), ("b", "y")]
    assert certain(result)["r"] is False


def test_places_are_counted_between_the_same_layers_only() -> None:
    result = paired(
        [("a", "Linear"), ("r", "relu"), ("b", "Linear"), ("r", "relu"), ("c", "Linear")],
        [("x", "Linear"), ("s", "relu"), ("y", "Linear"), ("z", "Linear")],
    )
    assert names(result) == [("a", "x"), ("r", "s"), ("b", "y"), ("c", "z")]
    assert certain(result)["r"] is True
    assert [(one.module, one.call) for one in result.unpaired] == [("r", 1)]


def test_an_unknown_class_pairs_with_one_of_its_name_or_uncertainly() -> None:
    same = paired([("a", "Linear"), ("o", "odd")], [("x", "Linear"), ("p", "odd")])
    assert certain(same)["o"] is True
    other = paired([("a", "Linear"), ("o", "odd")], [("x", "Linear"), ("g", "gelu")])
    assert certain(other)["o"] is False


def test_branches_in_another_order_pair_by_their_parameters() -> None:
    result = paired(
        [("main", "Conv"), ("r", "relu"), ("short", "Conv"), ("end", "relu")],
        [("skip", "Conv"), ("body", "Conv"), ("act", "relu"), ("out", "relu")],
        links={"main": "body", "short": "skip"},
    )
    assert {("main", "body"), ("short", "skip"), ("end", "out")} <= set(names(result))
    assert [pair.reference.order for pair in result.pairs] == sorted(pair.reference.order for pair in result.pairs)


def test_containers_pair_by_the_parameters_inside_and_are_not_certain() -> None:
    result = paired(
        [("s.0.c", "Conv"), ("s.0", "box"), ("s.1.c", "Conv"), ("s.1", "box"), ("s", "box"), ("", "box")],
        [("l.a", "Conv"), ("l", "box"), ("m.b", "Conv"), ("m", "box"), ("", "box")],
    )
    assert names(result) == [("s.0.c", "l.a"), ("s.0", "l"), ("s.1.c", "m.b"), ("s.1", "m"), ("", "")]
    assert certain(result) == {"s.0.c": True, "s.0": False, "s.1.c": True, "s.1": False, "": True}
    assert "same parameters" in alone(result)["s"]


def test_of_nested_containers_the_outermost_pair() -> None:
    result = paired([("w.v.c", "Conv"), ("w.v", "box"), ("w", "box")], [("o.c", "Conv"), ("o", "box")])
    assert names(result) == [("w.v.c", "o.c"), ("w", "o")]
    assert set(alone(result)) == {"w.v"}


def test_a_container_pairs_with_none_of_another_output_shape() -> None:
    result = paired([("w.c", "Conv"), ("w@2x4", "box")], [("o.c", "Conv"), ("o", "box")])
    assert names(result) == [("w.c", "o.c")]
    assert "same output shape" in alone(result)["w"]


def test_an_owner_that_holds_more_is_another_layer() -> None:
    result = paired(
        [("e.fc", "Linear"), ("e", "Odd"), ("fc", "Linear"), ("", "box")],
        [("x", "Linear"), ("s.y", "Linear"), ("s", "Odd"), ("", "box")],
        links={"e.fc": "x", "e": "s", "fc": "s.y"},
    )
    assert names(result) == [("e.fc", "x"), ("fc", "s.y"), ("", "")]


def test_an_attention_that_owns_a_fused_weight_is_no_dense_layer() -> None:
    result = paired([("at@2x4", "Attention")], [("fused", "Linear")])
    assert names(result) == []


def test_the_model_pairs_with_the_model_even_if_it_owns_parameters() -> None:
    result = paired(
        [("a", "Linear"), ("", "Odd")], [("e", "Odd"), ("x", "Linear"), ("", "box")], links={"a": "x", "": "e"}
    )
    assert ("", "") in names(result)
    assert ("", "e") not in names(result)


def test_a_wrapper_without_counterpart_does_not_take_its_layers_partner() -> None:
    result = paired([("w.c", "Conv"), ("w", "box"), ("r", "relu")], [("c", "Conv"), ("s", "relu")])
    assert names(result) == [("w.c", "c"), ("r", "s")]
    assert set(alone(result)) == {"w"}


def test_two_runs_without_anything_in_common_have_no_pairs() -> None:
    result = paired([("a@2x3", "relu")], [("b@4x5", "gelu")])
    assert result.pairs == ()
    assert len(result.unpaired) == 2


def test_nothing_called_is_nothing_paired() -> None:
    assert paired([], [("x", "relu")]).pairs == ()
    assert paired([], []).unpaired == ()


def test_every_call_is_paired_once_or_told() -> None:
    result = paired(
        [
            ("a", "Linear"),
            ("r", "relu"),
            ("r", "relu"),
            ("d", "dropout"),
            ("b", "Linear"),
            ("w.c", "Conv"),
            ("w", "box"),
        ],
        [("x", "Linear"), ("g", "gelu"), ("y", "Linear"), ("r", "relu"), ("c", "Conv"), ("c2", "identity")],
    )
    mine = [(p.reference.module, p.reference.call) for p in result.pairs]
    mine += [(one.module, one.call) for one in result.unpaired if one.side == "reference"]
    theirs = [(p.candidate.module, p.candidate.call) for p in result.pairs]
    theirs += [(one.module, one.call) for one in result.unpaired if one.side == "candidate"]
    assert sorted(mine) == [("a", 0), ("b", 0), ("d", 0), ("r", 0), ("r", 1), ("w", 0), ("w.c", 0)]
    assert sorted(theirs) == [("c", 0), ("c2", 0), ("g", 0), ("r", 0), ("x", 0), ("y", 0)]
