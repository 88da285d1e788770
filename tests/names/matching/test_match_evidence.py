"""What settles rivals of one class and shape, and what does not: order of execution, surroundings, contradictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from align.core.parameters import Module, Parameter, ParameterSet
from align.core.traces import Capture
from align.core.transforms import IDENTITY
from align.names.map_parameters import CallOrder, in_execution_order, unseen_modules
from align.names.matching.match_names import match_names
from align.names.user_rules import NameRules


def projections(w, names):
    return [w.linear(f"attn.{name}") for name in names]


def test_the_order_of_execution_tells_siblings_apart_that_nothing_else_does(written) -> None:
    w = written
    source, target = projections(w, ("one", "two", "three")), projections(w, ("red", "green", "blue"))
    by_run = w.matched(w.side("torch", *source, order="execution"), w.side("nn", *target, order="execution"))
    assert w.paired(by_run) == w.truth(list(zip(source, target, strict=True)))


@pytest.mark.parametrize("orders", [("execution", "registration"), ("registration", "execution")])
def test_order_is_no_evidence_unless_both_sides_ran(written, orders) -> None:
    w = written
    source, target = projections(w, ("one", "two", "three")), projections(w, ("red", "green", "blue"))
    name_map = w.matched(w.side("torch", *source, order=orders[0]), w.side("nn", *target, order=orders[1]))
    assert w.paired(name_map) == {}


def test_words_that_the_order_of_execution_contradicts_leave_the_pair_open(written) -> None:
    w = written
    source, target = projections(w, ("query", "key")), projections(w, ("key_proj", "query_proj"))
    name_map = w.matched(w.side("torch", *source, order="execution"), w.side("nn", *target, order="execution"))
    assert w.paired(name_map) == {}
    assert w.open_names(name_map) == set(w.truth(list(zip(source, target, strict=True))))


def test_numbers_that_the_order_of_execution_contradicts_leave_the_pair_open(written) -> None:
    w = written
    source, target = projections(w, ("fc1", "fc2")), projections(w, ("dense2", "dense1"))
    name_map = w.matched(w.side("torch", *source, order="execution"), w.side("nn", *target, order="execution"))
    assert w.paired(name_map) == {}


def test_layers_that_only_stand_in_one_order_beside_a_sure_one_stay_open(written) -> None:
    w = written
    source = [w.linear("red.x"), w.layer_norm("red.mid", 7), w.linear("red.y")]
    target = [w.linear("thing.p"), w.layer_norm("thing.middle", 7), w.linear("thing.q")]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth([(source[1], target[1])])


def test_a_batch_norm_behind_a_sure_convolution_is_paired_and_not_sure(written) -> None:
    w = written
    source = [w.conv("a", 4, 3), w.batch_norm("red"), w.conv("b", 4, 5), w.batch_norm("blue")]
    target = [w.conv("u", 4, 3), w.batch_norm("north"), w.conv("v", 4, 5), w.batch_norm("south")]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))
    assert {p.source for p in name_map.pairings if p.sure} == {"a.weight", "b.weight"}


def test_what_only_stands_next_to_sure_layers_teaches_no_other_block(written) -> None:
    w = written
    source = [
        layer
        for n in range(3)
        for layer in (w.linear(f"body.{n}.merge"), w.layer_norm(f"body.{n}.ln"), w.linear(f"body.{n}.expand"))
    ]
    target = [
        layer
        for n in range(3)
        for layer in (w.linear(f"layers.{n}.fc_a"), w.layer_norm(f"layers.{n}.norm"), w.linear(f"layers.{n}.fc_b"))
    ]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert {p.source.split(".")[2] for p in name_map.pairings if p.sure} == {"ln"}


def test_two_layers_between_the_same_neighbours_stay_open(written) -> None:
    w = written
    source = [w.layer_norm("b.ln", 7), w.linear("b.x"), w.linear("b.y"), w.embedding("b.e", 5, 3)]
    target = [w.layer_norm("c.ln", 7), w.linear("c.p"), w.linear("c.q"), w.embedding("c.e", 5, 3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.open_names(name_map) == {"b.x.weight", "b.x.bias", "b.y.weight", "b.y.bias"}


def test_a_layer_is_known_by_the_block_around_it(written) -> None:
    w = written
    source = [w.conv("red.conv", 3, 3), w.linear("red.fc"), w.conv("blue.conv", 5, 5), w.linear("blue.fc")]
    target = [w.linear("two.proj"), w.conv("two.conv", 5, 5), w.linear("one.proj"), w.conv("one.conv", 3, 3)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    true = [(source[0], target[3]), (source[1], target[2]), (source[2], target[1]), (source[3], target[0])]
    assert w.paired(name_map) == w.truth(true)


def test_what_is_learnt_in_one_block_settles_the_same_names_in_others(written) -> None:
    w = written
    source = [w.linear(f"stage{n}.{name}", 4 + n, 4 + n) for n in (1, 2, 3) for name in ("f", "g")]
    target = [w.linear(f"part{n}.{name}", 4 + n, 4 + n) for n in (1, 2, 3) for name in ("red", "blue")]
    unknown = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.paired(unknown) == {}
    rules = w.NameRules(
        names={
            f"stage{n}.{mine}.weight": (f"part{n}.{theirs}.weight", IDENTITY)
            for n in (1, 2)
            for mine, theirs in (("f", "blue"), ("g", "red"))
        }
    )
    taught = w.matched(w.side("torch", *source), w.side("nn", *target), rules)
    assert w.paired(taught)["stage3.f.weight"] == "part3.blue.weight"
    assert taught.complete


class TestExecutionOrder:
    SIDE = ParameterSet(
        "net",
        None,
        (),
        (Module("", ("Net",)), Module("b", ("B",), ("b.w",)), Module("a", ("A",), ("a.w",)), Module("relu", ("R",))),
    )

    def called(self, *paths) -> CallOrder:
        order = CallOrder()
        for number, path in enumerate(paths):
            order.add(Capture(number, path, 0, "", "Layer", (1,), "float32", 1), None)
        return order

    def test_modules_stand_in_the_order_of_their_first_return(self) -> None:
        ordered = in_execution_order(self.SIDE, self.called("a", "relu", "b", "a", ""))
        assert [module.path for module in ordered.modules] == ["a", "relu", "b", ""]
        assert ordered.order == "execution"

    def test_a_layer_that_no_hook_saw_stands_where_the_module_around_it_ended_and_is_said(self) -> None:
        ordered = in_execution_order(self.SIDE, self.called("a", ""))
        assert [(module.path, module.ran) for module in ordered.modules] == [
            ("a", True), ("", True), ("b", False), ("relu", False),
        ]  # fmt: skip
        assert unseen_modules(ordered) == ["b"]

    def test_a_side_of_which_no_hook_saw_a_layer_keeps_its_registration_order(self) -> None:
        ordered = in_execution_order(self.SIDE, self.called("relu", ""))
        assert [module.path for module in ordered.modules] == ["", "b", "a", "relu"]
        assert ordered.order == "registration"
        assert unseen_modules(ordered) == ["b", "a"]

    def test_the_place_of_a_layer_that_did_not_run_is_no_evidence(self) -> None:
        """The first and third layers of three alike are told by their order; the second one ran on one side only."""

        def side(names: str, seen: str) -> ParameterSet:
            own = tuple(Parameter(f"{n}.weight", (3, 3), "float32", n, "weight") for n in names)
            modules = tuple(Module(n, ("torch.nn.Linear",), (f"{n}.weight",)) for n in names)
            return in_execution_order(ParameterSet("net", None, own, (Module(""), *modules)), self.called(*seen, ""))

        def paired(seen: str) -> dict[str, str]:
            found = match_names(side("abc", "abc"), side("xyz", seen), NameRules())
            return {p.source: p.target for p in found.pairings}

        assert paired("xyz") == {"a.weight": "x.weight", "b.weight": "y.weight", "c.weight": "z.weight"}
        assert paired("xz") == {}

    def test_a_module_without_parameters_need_not_be_called(self) -> None:
        assert in_execution_order(self.SIDE, self.called("b", "a", "")).order == "execution"


class TestAxes:
    def norms(self, w, family: str, **axes: str) -> ParameterSet:
        """Batch norms of one width, by path, each of the class for so many axes."""
        flat = w.side(family, *(w.batch_norm(path) for path in axes))
        modules = (
            replace(module, classes=tuple(name.replace("2d", axes[module.path]) for name in module.classes))
            for module in flat.modules
        )
        return replace(flat, modules=tuple(modules))

    def test_a_norm_of_one_axis_is_not_that_of_two_beside_it(self, written) -> None:
        w = written
        source, target = self.norms(w, "torch", red="2d", blue="1d"), self.norms(w, "nn", north="1d", south="2d")
        pairings = w.matched(source, target).pairings
        assert {(p.source, p.target) for p in pairings if p.source.endswith("weight")} == {
            ("red.weight", "south.gamma"),
            ("blue.weight", "north.gamma"),
        }

    def test_a_port_that_takes_one_class_for_both_leaves_them_open(self, written) -> None:
        w = written
        source, target = self.norms(w, "torch", red="2d", blue="1d"), self.norms(w, "nn", north="2d", south="2d")
        assert w.paired(w.matched(source, target)) == {}

    def test_the_only_norm_is_one_whatever_the_axes_of_its_class(self, written) -> None:
        w = written
        name_map = w.matched(self.norms(w, "torch", red="1d"), self.norms(w, "nn", north="2d"))
        assert w.paired(name_map)["red.weight"] == "north.gamma"
        assert name_map.complete

    def test_axes_tell_more_than_numbers(self, written) -> None:
        w = written
        source, target = self.norms(w, "torch", n1="2d", n2="1d"), self.norms(w, "nn", m1="1d", m2="2d")
        assert w.paired(w.matched(source, target))["n1.weight"] == "m2.gamma"
