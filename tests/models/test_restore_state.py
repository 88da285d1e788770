"""What is put back after a run: attributes with what their containers held, and random states."""

from __future__ import annotations

import random
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest

from align.models.user_code import fixed_seed, restored_attributes


def test_attributes_and_what_their_containers_held_are_put_back() -> None:
    table, shared = {"a": 1}, [1, 2]
    model = SimpleNamespace(calls=0, table=table, order=OrderedDict(b=2, a=1), seen={3}, shared=shared, gone="here")
    with restored_attributes([model]):
        model.calls, model.table, model.new = 1, {}, "added"
        table.update(a=2, c=3)
        model.order["b"] = model.order.pop("a")
        model.seen.clear()
        shared.append(3)
        del model.gone
    assert vars(model) == {
        "calls": 0, "table": {"a": 1}, "order": OrderedDict(b=2, a=1), "seen": {3}, "shared": [1, 2], "gone": "here",
    }  # fmt: skip
    assert model.table is table
    assert model.shared is shared


def test_attributes_are_put_back_after_a_failure_and_those_that_do_not_count_stay() -> None:
    model = SimpleNamespace(calls=0, _compiled=False)

    def fail() -> None:
        with restored_attributes([model], lambda name: not name.startswith("_")):
            model.calls, model._compiled, model._new = 1, True, 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert vars(model) == {"calls": 0, "_compiled": True, "_new": 1}


def test_random_numbers_are_the_same_inside_and_as_they_would_have_been_outside() -> None:
    def draw() -> tuple[float, float]:
        return random.random(), float(np.random.rand())

    random.seed(5)
    np.random.seed(5)
    expected = draw(), draw()
    random.seed(5)
    np.random.seed(5)
    before = draw()
    inside = []
    for _ in range(2):
        with fixed_seed():
            inside.append(draw())
    assert inside[0] == inside[1]
    assert (before, draw()) == expected
