"""Names paired by equal values, and the twins that values must leave alone."""

from __future__ import annotations

import numpy as np

from align.core.parameters import StoredTensor
from align.names.equal_values import EqualValue, pair_equal_values

ONE = np.arange(6, dtype=np.float32).reshape(2, 3)
OTHER = ONE[::-1].copy()


def stored(**arrays: np.ndarray) -> dict[str, StoredTensor]:
    return {
        name: StoredTensor(name, array.shape, array.dtype.name, lambda array=array: array)
        for name, array in arrays.items()
    }


def pairs(source: dict[str, np.ndarray], target: dict[str, np.ndarray]) -> dict[str, str]:
    found = pair_equal_values(stored(**source), stored(**target))
    assert not any(one.turned for one in found)
    return {one.source: one.target for one in found}


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


def test_a_matrix_is_found_transposed_and_a_symmetric_one_as_it_stands() -> None:
    (found,) = pair_equal_values(stored(q=ONE), stored(x=ONE.T.copy()))
    assert found == EqualValue("q", "x", turned=True)
    symmetric = np.arange(9, dtype=np.float32).reshape(3, 3)
    symmetric += symmetric.T
    assert pairs({"q": symmetric}, {"x": symmetric}) == {"q": "x"}


def test_whole_numbers_are_not_compared_with_floats() -> None:
    numbers = np.arange(6, dtype=np.int8).reshape(2, 3)
    assert pairs({"q": numbers, "k": ONE / 7}, {"x": OTHER / 9}) == {}
    assert pairs({"q": ONE}, {"x": numbers}) == {}


def test_values_that_a_sample_cannot_tell_apart_are_read_whole() -> None:
    base = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    one, other = base.copy(), base.copy()
    one[1, 1], other[1, 1] = -1, -2
    assert pairs({"q": one, "k": other}, {"x": other, "y": one}) == {"q": "y", "k": "x"}
    assert pairs({"q": one}, {"x": other}) == {}


def test_a_known_pair_is_only_sampled() -> None:
    read = []

    def load(name: str, value: np.ndarray) -> np.ndarray:
        read.append(name)
        return value

    sides = [
        {name: StoredTensor(name, ONE.shape, "float32", lambda name=name, value=value: load(name, value))}
        for name, value in (("q", ONE), ("x", ONE))
    ]
    assert pair_equal_values(*sides, frozenset({EqualValue("q", "x")})) == [EqualValue("q", "x")]
    sampled = len(read)
    read.clear()
    assert pair_equal_values(*sides) == [EqualValue("q", "x")]
    assert len(read) > sampled


def test_empty_tensors_and_single_numbers_have_no_value_to_compare() -> None:
    empty, one = np.zeros((0, 3), np.float32), np.full((1,), 2.5, np.float32)
    assert pairs({"q": empty, "k": one}, {"x": empty, "y": one}) == {}
