"""Tensors that two calls are given pair by name, then by shape; nothing pairs twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from align.core.traces import Capture
from align.traces.module_calls import inputs_of_calls, pair_inputs

ROW, MASK, IMAGE = (2, 8), (2, 1, 4), (2, 3, 4, 4)


def given(name: str, shape: tuple[int, ...], module: str = "fc", call: int = 0) -> Capture:
    return Capture(0, module, call, name, "", shape, "float32", role="input")


def paired(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, str]:
    """The reference's names by the candidate's."""
    captures = [given(name, shape) for name, shape in mine.items()]
    arrays = {name: np.zeros(shape, np.float32) for name, shape in theirs.items()}
    return {name: one.output for name, one in pair_inputs(captures, arrays).items()}


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ({"0": ROW}, {"0": ROW}, {"0": "0"}),
        ({"hidden": ROW}, {"0": ROW}, {"0": "hidden"}),  # a keyword on one side, a position on the other
        ({"0": ROW, "mask": MASK}, {"mask": MASK, "x": ROW}, {"mask": "mask", "x": "0"}),
        ({"0": ROW, "1": MASK}, {"0": MASK, "1": ROW}, {"0": "1", "1": "0"}),  # handed on in another order
        ({"0": ROW, "1": ROW}, {"a": ROW, "b": ROW}, {"a": "0", "b": "1"}),  # shapes alone: in their order
        ({"1": ROW, "2": ROW}, {"1": ROW, "x": ROW}, {"1": "1", "x": "2"}),  # a namesake goes before the order
        ({"0": IMAGE}, {"0": (2, 4, 4, 3)}, {"0": "0"}),  # in another layout
        ({"0": ROW}, {"0": ROW, "extra": ROW}, {"0": "0"}),
        ({"0": ROW, "extra": MASK}, {"0": ROW}, {"0": "0"}),
        ({"0": ROW}, {"1": MASK}, {}),
        ({}, {"0": ROW}, {}),
    ],
)
def test_inputs_pair_by_name_then_shape(mine: dict[str, Any], theirs: dict[str, Any], expected: dict[str, str]) -> None:
    assert paired(mine, theirs) == expected


def test_the_inputs_of_repeated_calls_are_kept_apart() -> None:
    class Given:
        inputs = (given("0", ROW), given("mask", MASK), given("0", ROW, call=1), given("0", ROW, "other"))

    found = inputs_of_calls(Given())  # type: ignore[arg-type]
    assert {key: [one.output for one in captures] for key, captures in found.items()} == {
        ("fc", 0): ["0", "mask"],
        ("fc", 1): ["0"],
        ("other", 0): ["0"],
    }
