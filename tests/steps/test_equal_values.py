"""Ambiguous groups settled by equal values, and the twins that they must leave open."""

from __future__ import annotations

import numpy as np

from align.core.checkpoints import StoredTensor
from align.core.names import Ambiguity
from align.steps.equal_values import pair_equal_values

GROUP = Ambiguity(("q", "k"), ("x", "y"), "of one shape")
ONE = np.arange(6, dtype=np.float32).reshape(2, 3)
OTHER = ONE[::-1].copy()


def stored(**arrays: np.ndarray) -> dict[str, StoredTensor]:
    return {
        name: StoredTensor(name, array.shape, array.dtype.name, lambda array=array: array)
        for name, array in arrays.items()
    }


def pairs(source: dict[str, np.ndarray], target: dict[str, np.ndarray]) -> dict[str, str]:
    return pair_equal_values([GROUP], stored(**source), stored(**target))


def test_equal_values_pair_names_whatever_their_order() -> None:
    assert pairs({"q": ONE, "k": OTHER}, {"x": OTHER, "y": ONE}) == {"q": "y", "k": "x"}


def test_an_axis_of_length_one_more_is_the_same_value() -> None:
    assert pairs({"q": ONE, "k": OTHER}, {"x": OTHER[:, None], "y": ONE[:, None]}) == {"q": "y", "k": "x"}


def test_values_of_two_dtypes_are_compared_in_the_narrower() -> None:
    fine = ONE + np.float32(1e-5)
    assert pairs({"q": fine, "k": OTHER}, {"x": OTHER.astype(np.float16), "y": fine.astype(np.float16)}) == {
        "q": "y",
        "k": "x",
    }


def test_other_weights_settle_nothing() -> None:
    assert pairs({"q": ONE, "k": OTHER}, {"x": OTHER + 1, "y": ONE + 1}) == {}


def test_a_value_that_stands_twice_settles_nothing() -> None:
    assert pairs({"q": ONE, "k": ONE}, {"x": ONE, "y": OTHER}) == {}
    assert pairs({"q": ONE, "k": OTHER}, {"x": ONE, "y": ONE}) == {}


def test_constants_settle_nothing() -> None:
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    assert pairs({"q": zeros, "k": ones}, {"x": ones, "y": zeros}) == {}


def test_what_only_one_pair_shows_is_all_that_is_settled() -> None:
    assert pairs({"q": ONE, "k": OTHER}, {"x": OTHER + 1, "y": ONE}) == {"q": "y"}
