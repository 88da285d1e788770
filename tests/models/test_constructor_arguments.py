"""Arguments of constructors told from what layers keep."""

from __future__ import annotations

from typing import Any

import pytest

from align.core.protocols import LayerSettings
from align.models.rebuild_from_settings import proposed_arguments, wanted_arguments


class Layer:
    def __init__(self, size, eps=1e-5, bias=True, weight_init="normal", *, mode="a", dtype=None):  # type: ignore[no-untyped-def]
        pass


class OfMany:
    def __init__(self, mode, size, eps=1e-5):  # type: ignore[no-untyped-def]
        pass


class One(OfMany):
    def __init__(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        super().__init__("one", *args, **kwargs)


class Derived(Layer):
    pass


def proposals(values: dict[str, Any], changes: dict[str, Any], cls: type = Layer, name: str = "own.Layer") -> list[Any]:
    return list(proposed_arguments(LayerSettings("", (name,), values), wanted_arguments(cls), {}, changes))


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (Layer, ["size", "eps", "bias", "weight_init", "mode", "dtype"]),
        (Derived, ["size", "eps", "bias", "weight_init", "mode", "dtype"]),
        (One, ["size", "eps"]),
        (object, []),
    ],
)
def test_the_arguments_are_those_of_the_class_or_of_the_base_that_takes_them(cls: type, names: list[str]) -> None:
    assert list(wanted_arguments(cls)) == names


def test_attributes_become_arguments_and_defaults_initialisers_and_tensors_are_left_out() -> None:
    values = {"size": 4, "eps": 1e-3, "bias": None, "weight_init": "zeros", "mode": True, "dtype": "float16", "more": 1}
    assert proposals(values, {"eps": 1e-7}) == [
        ({"size": 4, "eps": 1e-3, "bias": False}, {"size": 4, "eps": 1e-7, "bias": False})
    ]
    assert proposals({"size": 4, "eps": 1e-5, "bias": True}, {"bias": False}) == [
        ({"size": 4}, {"size": 4, "bias": False})
    ]


def test_an_operator_tells_what_the_layer_does_not() -> None:
    assert proposals({"op.size": 4, "op.eps": 0.5, "eps": 0.25}, {})[0][0] == {"size": 4, "eps": 0.25}


def test_nothing_is_proposed_for_an_unknown_change_or_without_what_the_class_needs() -> None:
    assert proposals({"size": 4}, {"epsilon": 1}) == []
    assert proposals({"eps": 1e-3}, {"eps": 1}) == []


def test_what_a_rule_knows_to_be_kept_otherwise_is_translated_first_and_as_it_stands_second() -> None:
    class BatchNorm:
        def __init__(self, size, momentum=0.9):  # type: ignore[no-untyped-def]
            pass

    found = proposals({"size": 4, "momentum": 0.25}, {}, BatchNorm, "mindspore.nn.BatchNorm2d")
    assert [before["momentum"] for before, _ in found] == [0.75, 0.25]


class Pool:
    def __init__(self, kernel_size=1, stride=1, pad_mode="valid", padding=0, ceil_mode=False):  # type: ignore[no-untyped-def]
        pass


POOL = "mindspore.nn.AvgPool2d"


@pytest.mark.parametrize(
    ("values", "changes", "after"),
    [
        # numbers that belonged to the mode before go with it
        ({"kernel_size": 3, "pad_mode": "PAD", "padding": 1}, {"pad_mode": "same"}, {"pad_mode": "same"}),
        # numbers that a mode stood for come to the mode that asks for them
        ({"kernel_size": 3, "pad_mode": "SAME"}, {"pad_mode": "pad"}, {"pad_mode": "pad", "padding": 1}),
        ({"kernel_size": 3, "pad_mode": "VALID"}, {"pad_mode": "pad"}, {"pad_mode": "pad", "padding": 0}),
    ],
)
def test_padding_goes_with_its_mode(values: dict[str, Any], changes: dict[str, Any], after: dict[str, Any]) -> None:
    assert proposals(values, changes, Pool, POOL)[0][1] == {"kernel_size": 3, **after}


def test_a_padding_that_depends_on_the_input_has_no_numbers() -> None:
    values = {"kernel_size": 3, "stride": 2, "pad_mode": "SAME"}
    assert proposals(values, {"pad_mode": "pad", "ceil_mode": True}, Pool, POOL) == []


def test_axes_that_a_layer_adds_inside_are_left_out() -> None:
    found = proposals({"kernel_size": (1, 3), "stride": (1, 2)}, {}, Pool, "mindspore.nn.MaxPool1d")
    assert [before for before, _ in found] == [{"kernel_size": 3, "stride": 2}]
