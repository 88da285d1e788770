"""Unrelated inputs of the same kind: what is drawn anew, what samples exchange, what is left."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from align.forward.measure_power import replaced_in_turn, unrelated_inputs
from align.forward.thresholds import MOST_INPUTS_ALONE

RNG = np.random.default_rng(0)
WORDS = np.array([[7, 900, 12, 31], [5, 7, 44, 2]])


def test_floats_are_drawn_from_their_own_values() -> None:
    pixels = RNG.random((2, 3, 8, 8)).astype(np.float32)
    other = unrelated_inputs({"x": pixels})["x"]
    assert other.dtype == np.float32
    assert set(other.ravel()) <= set(pixels.ravel())
    assert abs(np.corrcoef(other.ravel(), pixels.ravel())[0, 1]) < 0.2


def test_word_indices_stay_words_of_the_input() -> None:
    other = unrelated_inputs({"tokens": WORDS})["tokens"]
    assert not np.array_equal(other, WORDS)
    assert set(other.ravel()) <= set(WORDS.ravel())


def test_floats_that_are_all_alike_become_random_ones_of_that_size() -> None:
    other = unrelated_inputs({"x": np.full((4, 100), 3.0, np.float32)})["x"]
    assert 2.0 < other.std() < 4.0


def test_samples_exchange_their_masks() -> None:
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])
    assert np.array_equal(unrelated_inputs({"tokens": WORDS, "mask": mask})["mask"], mask[::-1])


@pytest.mark.parametrize(
    "fixed", [np.ones((2, 4), np.int64), np.arange(4)[None].repeat(2, 0), np.zeros(0, np.float32), np.array(True)]
)
def test_what_has_no_other_value_of_its_kind_is_left_out(fixed: Any) -> None:
    assert set(unrelated_inputs({"tokens": WORDS, "fixed": fixed})) == {"tokens"}


def test_an_order_is_mixed_if_nothing_else_can_be_changed() -> None:
    other = unrelated_inputs({"positions": np.arange(50)})["positions"]
    assert not np.array_equal(other, np.arange(50))


def test_words_that_are_all_alike_have_no_other() -> None:
    assert unrelated_inputs({"tokens": np.full((2, 3), 5)}) == {}


def test_bfloat16_is_drawn_too() -> None:
    x = RNG.standard_normal((4, 4)).astype(ml_dtypes.bfloat16)
    assert unrelated_inputs({"x": x})["x"].dtype == x.dtype


def test_each_input_is_replaced_in_a_run_of_its_own() -> None:
    inputs: dict[str, Any] = {"a": np.zeros(1), "b": np.zeros(1)}
    others = {name: value + 1 for name, value in inputs.items()}
    runs = replaced_in_turn(inputs, others)
    assert {name: (run["a"][0], run["b"][0]) for name, run in runs.items()} == {"a": (1, 0), "b": (0, 1)}


def test_many_inputs_take_no_more_runs_than_a_few() -> None:
    others = {f"past{i}": np.ones(1) for i in range(24)}
    runs = replaced_in_turn(dict(others), others)
    assert len(runs) == MOST_INPUTS_ALONE
    assert list(runs)[:2] == ["past0", "past1"]
    assert ", ".join(others) == ", ".join(runs)
