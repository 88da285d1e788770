"""How inputs are bound is told; a guess by position, and a default that does something, are warnings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.models.call_model import bound_findings, read_bindings
from align.models.frameworks.arrays import ArrayModel
from align.models.open_side import Side, open_side

ARRAY = np.ones((2, 3), np.float32)


def side(forward: Any) -> Side:
    model = ArrayModel(())
    object.__setattr__(model, "forward", forward)
    return open_side(model)


def codes(mine: Any, theirs: Any, names: str = "x") -> dict[str, str]:
    inputs = dict.fromkeys(names.split(), ARRAY)
    both = side(mine), side(theirs)
    return {one.code: one.message for one in bound_findings(both, (inputs, inputs), (inputs, inputs))}


def test_names_that_both_sides_have_are_no_surprise() -> None:
    assert codes(lambda x, mask=None: x, lambda x: x) == {}
    assert codes(lambda x, mask: x, lambda mask, x, scale=1.0: x, "x mask").keys() == {"default-kept"}


def test_a_lone_input_can_only_go_to_the_one_parameter() -> None:
    assert codes(lambda x: x, lambda pixels: pixels) == {}
    told = codes(lambda x: x, lambda pixels, mask=None: pixels)
    assert "x goes to pixels; mask=None as the default is" in told["inputs-by-position"]


def test_a_guess_by_position_is_a_warning() -> None:
    told = codes(lambda ids, mask: ids, lambda ids, types=None, attention=None: ids, "ids mask")
    assert "mask goes to types; attention=None as the default is" in told["inputs-by-position"]
    assert codes(lambda a, b: a, lambda first, second: first, "a b").keys() == {"inputs-by-position"}


@pytest.mark.parametrize(
    ("reference", "warned"),
    [(lambda x, mode="train": x, False), (lambda x, mode="eval": x, True), (lambda x, mode=None: x, True)],
)
def test_a_default_that_the_other_side_has_too_is_no_surprise(reference: Any, warned: bool) -> None:
    told = codes(reference, lambda x, mode="train": x)
    assert ("mode='train' of the candidate" in told.get("default-kept", "")) is warned


def test_bindings_say_where_each_input_went_and_what_kept_its_default() -> None:
    sides = side(lambda ids, mask: ids), side(lambda ids, types=None, scale=2: ids)
    first, second = read_bindings(sides, ({"ids": ARRAY, "mask": ARRAY}, {"ids": ARRAY, "mask": ARRAY}))
    assert (first.side, first.parameters, first.defaults) == ("reference", {"ids": "ids", "mask": "mask"}, {})
    assert (second.parameters, second.defaults) == ({"ids": "ids", "mask": "types"}, {"scale": "2"})
    assert second.renamed == {"mask": "types"}
