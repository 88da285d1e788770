"""The rules of the user: what wins over what, which drop covers a name, torch's names, all contradictions at once."""

from __future__ import annotations

import re

import pytest

from align.core.transforms import IDENTITY, Permute, Reshape
from align.errors import MapError
from align.names.user_rules import NameRules, Rename, apply_rules, as_literal


def names(**pairs) -> dict:
    return {source.replace("__", "."): (target, IDENTITY) for source, target in pairs.items()}


def rename(pattern: str, to: str, transform=IDENTITY) -> Rename:
    return Rename(re.compile(pattern), to, transform)


class TestOnNamesAlone:
    def test_an_exact_name_wins_over_a_drop_and_a_drop_over_a_pattern(self) -> None:
        rules = NameRules(
            names=names(aux__keep="kept"),
            renames=(rename(r"aux\.(.*)", r"side.\1"), rename(r"(.*)", r"net.\1")),
            dropped_source={"aux.*": "only for training"},
        )
        name_map = apply_rules(rules, ["aux.keep", "aux.gone", "fc"], None)
        assert {p.source: p.target for p in name_map.pairings} == {"aux.keep": "kept", "fc": "net.fc"}
        assert [(d.name, d.reason) for d in name_map.dropped] == [("aux.gone", "only for training")]
        assert name_map.unused_rules == (r"[[rename]] aux\.(.*)",)

    def test_the_first_pattern_that_matches_the_whole_name_is_taken(self) -> None:
        rules = NameRules(renames=(rename("layer", "never"), rename(r"(?P<a>\w+)\.(\d+)", r"\g<a>s.\2")))
        name_map = apply_rules(rules, ["layer.3", "layers"], None)
        assert {p.source: p.target for p in name_map.pairings} == {"layer.3": "layers.3"}
        assert [one.name for one in name_map.unmatched] == ["layers"]

    def test_names_that_no_rule_mentions_are_unmatched_on_both_sides(self) -> None:
        name_map = apply_rules(NameRules(names=names(a="x")), ["a", "b"], ["x", "y"])
        assert [(one.name, one.side) for one in name_map.unmatched] == [("b", "source"), ("y", "target")]
        assert not name_map.complete

    def test_all_contradictions_are_listed_together_under_the_files_name(self) -> None:
        rules = NameRules(
            label="my.toml",
            names=names(a="x", b="x", c="nowhere", d="y"),
            dropped_source={"d": "not needed"},
            dropped_target={"y": "made anew"},
        )
        with pytest.raises(MapError) as caught:
            apply_rules(rules, ["a", "b", "c", "d"], ["x", "y"])
        assert caught.value.faults == (
            "d is both paired under [names] and dropped under [dropped.source]",
            "y is dropped under [dropped.target], but d leads to it",
            "a and b both lead to x",
            "c -> nowhere: the target has no such parameter",
        )
        assert str(caught.value).startswith("my.toml cannot be used as a name map")

    def test_a_pair_wins_over_a_glob_that_drops_its_target(self) -> None:
        rules = NameRules(names=names(a="head.x"), dropped_target={"head.*": "another task"})
        name_map = apply_rules(rules, ["a"], ["head.x", "head.y"])
        assert name_map.complete
        assert [drop.name for drop in name_map.dropped] == ["head.y"]

    def test_every_kind_of_unused_rule_is_reported_by_its_table(self) -> None:
        rules = NameRules(
            names=names(gone="x"),
            renames=(rename("no(.*)", r"\1"),),
            dropped_source={"aux.*": "no"},
            dropped_target={"ema.*": "no"},
        )
        assert apply_rules(rules, ["a"], ["b"]).unused_rules == (
            "[names] gone",
            "[[rename]] no(.*)",
            "[dropped.source] aux.*",
            "[dropped.target] ema.*",
        )


class TestOnTwoSides:
    def test_a_rename_may_give_the_name_that_torch_would_use(self, written) -> None:
        w = written
        source = [w.layer_norm("layers.0.ln"), w.batch_norm("layers.0.bn"), w.embedding("layers.0.wte")]
        target = [w.layer_norm("blocks.0.norm"), w.batch_norm("blocks.0.bn"), w.embedding("blocks.0.emb")]
        rules = NameRules(
            renames=(
                rename(r"layers\.(\d+)\.ln\.(.*)", r"blocks.\1.norm.\2"),
                rename(r"layers\.(\d+)\.wte\.(.*)", r"blocks.\1.emb.\2"),
                rename(r"layers\.(\d+)\.bn\.((?!num).*)", r"blocks.\1.bn.\2"),
            )
        )
        name_map = w.matched(w.side("torch", *source), w.side("nn", *target), rules)
        assert w.paired(name_map) == w.truth(list(zip(source, target, strict=True)))
        assert {p.evidence for p in name_map.pairings} == {"user"}
        assert name_map.complete

    def test_a_rename_finds_the_parameters_of_a_class_of_ones_own_by_their_role(self, written) -> None:
        w = written
        rules = NameRules(renames=(rename(r"blocks\.(.*)", r"blocks.\1"),))
        name_map = w.matched(
            w.side("torch", w.layer_norm("blocks.0.norm")),
            w.side("nn", w.own("blocks.0.norm", gamma=(4,), beta=(4,))),
            rules,
        )
        assert w.paired(name_map)["blocks.0.norm.weight"] == "blocks.0.norm.gamma"

    def test_a_rename_gets_the_axis_that_the_layers_class_inserts(self, written) -> None:
        w = written
        rules = NameRules(renames=(rename(r"a\.(.*)", r"b.\1"),))
        name_map = w.matched(w.side("torch", w.conv1d("a")), w.side("nn", w.conv1d("b")), rules)
        assert [p.transform for p in name_map.pairings] == [Reshape((4, 4, 1, 3))]

    def test_a_shape_that_does_not_fit_needs_a_transform(self, written) -> None:
        w = written
        sides = w.side("torch", w.linear("a", 3, 5, bias=False)), w.side("nn", w.linear("b", 5, 3, bias=False))
        with pytest.raises(MapError, match=r"a.weight \[3, 5\] -> b.weight: the target has \[5, 3\]"):
            w.matched(*sides, NameRules(names=names(a__weight="b.weight")))
        told = w.matched(*sides, NameRules(names={"a.weight": ("b.weight", Permute((1, 0)))}))
        assert told.complete
        with pytest.raises(MapError, match="cannot reshape"):
            w.matched(*sides, NameRules(names={"a.weight": ("b.weight", Reshape((7,)))}))

    @pytest.mark.parametrize("shapes", [((2, 3, 1, 1), (2, 3)), ((1,), ()), ((4, 4), (1, 16)), ((4,), (4, 1))])
    def test_a_pair_of_equal_size_but_other_shape_is_refused_without_a_transform(self, written, shapes) -> None:
        w = written
        sides = w.side("torch", w.own("a", weight=shapes[0])), w.side("nn", w.own("b", weight=shapes[1]))
        with pytest.raises(MapError, match="the target has"):
            w.matched(*sides, NameRules(names=names(a__weight="b.weight")))

    def test_contradictions_and_shapes_are_listed_together(self, written) -> None:
        w = written
        sides = w.side("torch", w.linear("a", 3, 5), w.linear("b", 4, 4)), w.side("nn", w.linear("x", 5, 3))
        rules = NameRules("rules.toml", names(a__weight="x.weight", b__weight="y.weight", b__bias="x.bias"))
        with pytest.raises(MapError) as caught:
            w.matched(*sides, rules)
        assert caught.value.faults == (
            "b.weight -> y.weight: the target has no such parameter",
            "a.weight [3, 5] -> x.weight: the target has [5, 3]",
            "b.bias [4] -> x.bias: the target has [5]",
        )

    def test_the_rest_of_a_layer_follows_the_parameter_that_the_user_pairs(self, written) -> None:
        w = written
        source, target = [w.linear("red"), w.linear("blue")], [w.linear("one"), w.linear("two")]
        rules = NameRules(names=names(red__weight="two.weight"))
        name_map = w.matched(w.side("torch", *source), w.side("nn", *target), rules)
        assert w.paired(name_map) == w.truth([(source[0], target[1]), (source[1], target[0])])

    def test_two_drops_with_a_glob_leave_the_rest_to_the_matcher(self, written) -> None:
        w = written
        source = [w.conv("conv"), w.linear("aux.fc", 3, 3), w.linear("fc")]
        target = [w.conv("conv"), w.linear("fc"), w.linear("extra.fc", 7, 7)]
        rules = NameRules(dropped_source={"aux.*": "training only"}, dropped_target={"extra.*": "not in the original"})
        name_map = w.matched(w.side("torch", *source), w.side("nn", *target), rules)
        assert name_map.complete
        assert {(d.name, d.side, d.reason) for d in name_map.dropped} == {
            ("aux.fc.weight", "source", "training only"),
            ("aux.fc.bias", "source", "training only"),
            ("extra.fc.weight", "target", "not in the original"),
            ("extra.fc.bias", "target", "not in the original"),
        }

    def test_a_wrong_rule_is_kept_against_all_evidence(self, written) -> None:
        w = written
        layers = [w.linear("q"), w.linear("k")]
        rules = NameRules(names=names(q__weight="k.weight", k__weight="q.weight"))
        name_map = w.matched(w.side("torch", *layers), w.side("nn", *layers), rules)
        assert w.paired(name_map)["q.weight"] == "k.weight"
        assert w.paired(name_map)["k.weight"] == "q.weight"


def reason(drops, name):
    found = NameRules(dropped_source=drops).drop_of("source", name)
    return found and found[0]


def test_a_name_wins_over_a_pattern_and_the_first_of_several_patterns_counts() -> None:
    drops = {"a.*": "pattern", "*.b": "later", as_literal("a[0]"): "quoted", "a.b": "name"}
    assert [reason(drops, name) for name in ("a.b", "a.c", "c.b", "a[0]", "a0")] == [
        "name",
        "pattern",
        "later",
        "quoted",
        None,
    ]


def test_a_name_with_the_signs_of_a_pattern_covers_itself() -> None:
    assert reason({"a[0]": "as written"}, "a[0]") == "as written"
    assert reason({"a[0]": "as a pattern"}, "a0") == "as a pattern"


def test_a_quoted_name_is_dropped_by_its_own_name() -> None:
    rules = NameRules(dropped_source={as_literal("a[0]"): "quoted", "b*": "pattern"})
    assert [rules.drops_exactly("source", name) for name in ("a[0]", "b1", "b*")] == [True, False, True]


@pytest.mark.usefixtures("guarded")
def test_fifty_thousand_drops_are_not_all_tried_for_every_name(growth) -> None:
    def look_up(count: int) -> None:
        rules = NameRules(dropped_source={f"adam.{n}": "optimizer" for n in range(count)})
        assert not any(rules.drop_of("source", f"model.{n}") for n in range(count))

    assert growth(look_up, 500) < 3
    look_up(50_000)
