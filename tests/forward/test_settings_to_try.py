"""Settings that no rule compares are proposed for a trial by their names, and only where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from align.core.protocols import LayerSettings
from align.forward.settings_to_try import (
    SETTING_DIFFERS,
    count_changed_settings,
    other_kind,
    same_named_settings,
    switched_settings,
)
from align.rules.pitfalls import pitfalls


def layer(path: str, family: str = "port.Norm", **values: Any) -> LayerSettings:
    return LayerSettings(path, (family,), values)


def changes(mine: dict[str, Any], theirs: dict[str, Any]) -> list[dict[str, Any]]:
    return [one.arguments for one in same_named_settings(layer("a", **mine), layer("b", **theirs))]


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"variance_epsilon": 1e-5}, {"eps": 1e-12}),
        ({"layer_norm_eps": 1e-5}, {"epsilon": 1e-12}),
        ({"eps": 1e-5}, {"variance_epsilon": 1e-12}),
    ],
)
def test_an_epsilon_is_one_setting_by_all_its_names(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    (name,) = theirs
    assert changes(mine, theirs) == [{name: 1e-5}]


def test_what_is_proposed_is_the_candidates_name_with_the_references_value() -> None:
    (found,) = same_named_settings(layer("a", is_causal=True), layer("b", IsCausal=False))
    assert (found.rule, found.severity, found.reference, found.candidate) == (SETTING_DIFFERS, "note", "a", "b")
    assert (found.reference_setting, found.candidate_setting) == ("is_causal=True", "IsCausal=False")
    assert (found.change, found.arguments) == ("IsCausal=True", {"IsCausal": True})
    assert (found.reference_class, found.candidate_class) == ("Norm", "Norm")


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"eps": 1e-5}, {"eps": 1e-5}),
        ({"eps": 1e-5}, {"epsilon": 1.0000000001e-5}),  # what a float32 attribute keeps of it
        ({"eps": 1e-5}, {"momentum": 0.1}),
        ({"training": False}, {"training": True}),  # a mode, not a setting
        ({"size": (2, 2)}, {"size": (3, 3)}),
        ({"scale": 1}, {"scale": True}),
        ({"name": None}, {"name": "x"}),
    ],
)
def test_what_is_equal_unlike_in_kind_or_no_plain_value_is_not_proposed(
    mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert changes(mine, theirs) == []


def test_each_switch_of_a_lone_layer_is_put_to_its_other_position() -> None:
    held = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": False, "count_include_pad": True}
    pool = layer("pool", "torch.nn.AvgPool2d", **held, divisor_override=None)
    found = {one.rule: one for one in switched_settings(pool, pitfalls())}
    assert {rule for rule in found if rule.startswith("avg-pool")} == set(found)
    counted = found["avg-pool-count-include-pad"]
    assert counted.arguments["count_include_pad"] is False
    assert (counted.reference, counted.candidate, counted.candidate_class) == ("", "pool", "AvgPool2d")
    assert "count_include_pad=False" in counted.change


@pytest.mark.parametrize(("axis", "tried"), [(-2, [{"axis": -1}]), (1, [{"axis": -1}]), (-1, [])])
def test_the_axis_of_a_lone_softmax_is_tried_as_the_last(axis: int, tried: list[dict[str, Any]]) -> None:
    shares = layer("shares", "mindspore.nn.Softmax", **{"softmax.axis": (axis,)})
    assert [one.arguments for one in switched_settings(shares, pitfalls())] == tried


def test_a_layer_that_no_rule_knows_has_no_switches() -> None:
    assert list(switched_settings(layer("x", "port.Box", causal=True), pitfalls())) == []


def test_how_many_settings_a_change_moves_is_counted_as_rules_read_them() -> None:
    def norm(**values: Any) -> LayerSettings:
        return layer("n", "torch.nn.BatchNorm2d", **{"eps": 1e-5, "momentum": 0.1, "affine": True} | values)

    assert count_changed_settings(norm(), norm(), pitfalls()) == 0
    assert count_changed_settings(norm(), norm(eps=1e-3), pitfalls()) == 1
    assert count_changed_settings(norm(), norm(eps=1e-3, momentum=0.2), pitfalls()) == 2


def test_a_layer_of_another_class_is_proposed_by_its_kind() -> None:
    found = other_kind(layer("pool", "mindspore.nn.AvgPool2d"), "mindspore.nn.MaxPool2d")
    assert (found.rule, found.candidate, found.arguments) == ("other-kind", "pool", {})
    assert (found.reference_setting, found.candidate_setting) == ("max_pool", "avg_pool")
    assert found.change == "a layer of the kind max_pool"
