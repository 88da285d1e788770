"""What a change makes different is taken over, where the live layer is what was built."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import ref

import numpy as np
import pytest

from align.models.rebuild_from_settings import BuiltLayers, LayerTypes, copy_changed_setting

NUMBERS = count()


@dataclass
class Tensor:
    value: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape


class Parameter(Tensor):
    pass


@dataclass
class Operator:
    eps: float


@dataclass
class Layer:
    """A layer as frameworks build them: it keeps parameters and children in mappings, and an operator."""

    eps: float = 1e-5
    size: int = 2
    bias: bool = False
    inner: float | None = None
    number: int = field(default_factory=NUMBERS.__next__)

    def __post_init__(self) -> None:
        self.operator = Operator(self.eps)
        self.table = Tensor(np.full(3, self.eps))
        self.functions = [max if self.eps > 1 else min, np.zeros(int(self.eps))]
        self.parameters = {"weight": Parameter(np.full(self.size, float(self.number)))}
        self.reference = ref(self.operator)
        if self.bias:
            self.parameters["bias"] = Parameter(np.zeros(self.size))
        self.children = {} if self.inner is None else {"norm": Layer(self.inner)}


TYPES = LayerTypes(Layer, Parameter, Tensor, lambda one, other: np.array_equal(one.value, other.value))


def changed(live: Layer, before: dict[str, Any], after: dict[str, Any]) -> bool:
    return copy_changed_setting(live, BuiltLayers(Layer(**before), Layer(**before), Layer(**after)), TYPES)


def test_what_the_change_made_is_taken_over_and_all_else_stays() -> None:
    live = Layer()
    weight, number = live.parameters["weight"], live.number
    live.mine = "set later"  # type: ignore[attr-defined]
    assert changed(live, {}, {"eps": 3.0})
    assert (live.eps, live.operator.eps, live.table.value[0], live.functions[0]) == (3.0, 3.0, 3.0, max)
    assert live.parameters["weight"] is weight
    assert (live.number, live.mine) == (number, "set later")  # type: ignore[attr-defined]


def test_children_are_looked_into() -> None:
    live = Layer(inner=0.1)
    norm = live.children["norm"]
    assert changed(live, {"inner": 0.1}, {"inner": 0.2})
    assert live.children["norm"] is norm
    assert norm.operator.eps == 0.2


def test_a_parameter_that_comes_or_goes_is_taken_over() -> None:
    live = Layer()
    assert changed(live, {}, {"bias": True})
    assert live.parameters["bias"].value.tolist() == [0, 0]
    assert changed(live, {"bias": True}, {})
    assert live.parameters.keys() == {"weight"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"eps": 0.5}, {"eps": 0.25}),  # the live layer has another
        ({}, {"size": 3}),  # a weight of another shape
        ({"inner": 0.1}, {"inner": 0.2}),  # the live layer has no such child
    ],
)
def test_where_the_live_layer_is_not_what_was_built_nothing_is_done(before: Any, after: Any) -> None:
    live = Layer()
    kept = dict(vars(live))
    assert not changed(live, before, after)
    assert vars(live) == kept


def test_an_operator_that_was_replaced_is_not_what_was_built() -> None:
    live = Layer()
    live.operator = Operator(9.0)
    assert not changed(live, {}, {"eps": 3.0})
    assert live.eps == 1e-5
