"""Layers that one side knows whole and the other parameter by parameter: what bears one name on both sides is one."""

from __future__ import annotations

import pytest

from align.core.parameters import Module, Parameter, ParameterSet
from align.names.matching.match_names import match_names
from align.names.user_rules import NameRules

RECURRENT = {"weight_ih_l0": (24, 16), "weight_hh_l0": (24, 6), "bias_ih_l0": (24,), "bias_hh_l0": (24,)}


def side(framework, modules):
    """`modules`: path -> its class and the shapes of its parameters."""
    parameters, tree = [], []
    for path, (class_name, shapes) in modules.items():
        own = [Parameter(f"{path}.{name}", shape, "float32", path, name) for name, shape in shapes.items()]
        parameters += own
        tree.append(Module(path, (class_name,) if class_name else (), tuple(p.name for p in own)))
    return ParameterSet(framework, framework, tuple(parameters), tuple(tree))


def linear(**shapes):
    return ("torch.nn.Linear", shapes)


def matched(left, right):
    return match_names(side("torch", left), side("mindspore", right), NameRules())


@pytest.mark.parametrize("unknown", ["", "port.OwnLSTM"])
def test_equal_full_names_pair_whatever_is_known_of_the_class(unknown) -> None:
    known = {"rnn": ("torch.nn.LSTM", RECURRENT), "fc": linear(weight=(3, 6))}
    other = {"rnn": (unknown, RECURRENT), "fc": ("mindspore.nn.Dense", {"weight": (3, 6)})}
    for left, right in ((known, other), (other, known)):
        name_map = matched(left, right)
        assert name_map.complete
        assert all(p.source == p.target and (p.evidence, p.confidence) == ("name", 1.0) for p in name_map.pairings)


def test_a_layer_whose_names_the_other_side_lacks_stays_whole() -> None:
    shapes = {"weight": (8, 8), "bias": (8,)}
    left = {"a": linear(**shapes), "b": ("port.Odd", {"gain_1": (8,), "scale_2": (8, 8)})}
    right = {"b": ("mindspore.nn.Dense", shapes)}
    assert [(p.source, p.target) for p in matched(left, right).pairings] == [
        ("a.weight", "b.weight"),
        ("a.bias", "b.bias"),
    ]


PARTS = {
    "weight_norm": {"fc": ("torch.nn.Linear", {"bias": (8,), "weight_g": (8, 1), "weight_v": (8, 8)})},
    "parametrized": {
        "fc": ("torch.nn.Linear", {"bias": (8,)}),
        "fc.parametrizations.weight": ("", {"original0": (8, 1), "original1": (8, 8)}),
    },
    "spectral_norm": {"fc": ("torch.nn.Linear", {"bias": (8,), "weight_orig": (8, 8), "weight_u": (8,)})},
}


@pytest.mark.parametrize("split", PARTS.values(), ids=PARTS)
def test_of_a_weight_in_parts_only_the_bias_pairs_and_the_way_out_is_said(split) -> None:
    plain = {"fc": ("mindspore.nn.Dense", {"weight": (8, 8), "bias": (8,)})}
    name_map = matched(split, plain)
    assert [(p.source, p.target) for p in name_map.pairings] == [("fc.bias", "fc.bias")]
    assert len(name_map.unmatched) == 3
    assert all(
        "remove_weight_norm" in one.reason and "fc.weight" in (one.name + one.reason) for one in name_map.unmatched
    )
    assert "parts" in next(one.reason for one in name_map.unmatched if one.side == "target")


def test_the_same_parts_on_both_sides_pair() -> None:
    assert matched(PARTS["weight_norm"], PARTS["weight_norm"]).complete
    assert matched(PARTS["parametrized"], PARTS["parametrized"]).complete
