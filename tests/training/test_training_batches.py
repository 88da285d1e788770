"""Batches of training steps: what is an array, what is nested, what stays as it is, and all of it kept in a file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from align.errors import InputsError
from align.training.open_training import put_together, read_training_batch, read_training_batches, taken_apart

X = np.ones((2, 3), np.float32)
DETECTION = {
    "images": [X, np.ones((3, 3), np.float32)],
    "targets": [
        {"boxes": np.zeros((0, 4)), "labels": np.array([], np.int64)},
        {"boxes": X, "labels": np.array([1, 2])},
    ],
}
SPEECH = {"frames": X, "lengths": [3, 2], "texts": ([1, 2, 3], [4]), "words": ["a", "bc"], "beam": None}
PLAIN = {"x": X, "mode": "loss", "train": True, "steps": 3, "rate": float("inf"), "none": None}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_lists_of_numbers_are_arrays_and_other_lists_stay() -> None:
    batch = read_training_batch(SPEECH)
    assert (batch["lengths"].tolist(), batch["lengths"].dtype.kind) == ([3, 2], "i")
    assert [one.tolist() for one in batch["texts"]] == [[1, 2, 3], [4]]
    assert isinstance(batch["texts"], tuple)
    assert (batch["words"], batch["beam"]) == (["a", "bc"], None)
    stacked = read_training_batch({"x": [[1, 2], [3, 4]], "pair": [X, X]})
    assert stacked["x"].shape == (2, 2)
    assert isinstance(stacked["pair"], list)


@pytest.mark.parametrize("given", [DETECTION, SPEECH, PLAIN, {"a": {"b": X}, "a.b": 2 * X, "n": {1: X}}])
def test_batches_are_kept_and_read_back(given: dict[str, Any]) -> None:
    batches = read_training_batches([given, given])
    arrays, forms = taken_apart(batches)
    assert all(isinstance(one, np.ndarray) for batch in arrays for one in batch.values())
    again = put_together(arrays, json.loads(json.dumps(forms)))
    assert all(map(same, batches, again))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"x": X, "o": object()}, "nor plain values: o (object)"),
        ({"x": X, "deep": [{"a": {1, 2}}]}, "deep.0.a (set)"),
        ({"x": X, "words": np.array(["a"])}, "words (<U1)"),
        ({"mode": "loss"}, "holds no inputs"),
        ({"x": X, "nan": [np.full(2, np.nan), "a"]}, "nan.0: no finite number"),
    ],
)
def test_other_values_end_in_one_message(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputsError) as raised:
        read_training_batch(given)
    assert told in raised.value.message
