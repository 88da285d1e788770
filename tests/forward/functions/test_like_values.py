"""Tensors of two sides are one in any order of axes, times one number, and whatever a mask holds."""

from __future__ import annotations

import numpy as np
import pytest

from align.forward.functions.calls_followed import same_function
from align.forward.functions.recorded_calls import CallRecord, LikeValues

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)


def likeness(value, tolerance=1e-4):
    record = CallRecord(lambda _: True)
    record.values[b"x"] = X
    return LikeValues(record, [], tolerance).find(value)


@pytest.mark.parametrize(
    ("value", "factor"),
    [
        (X, 1.0),
        (X.transpose(2, 0, 1), 1.0),
        (X.reshape(6, 4), 1.0),
        (X.transpose(0, 2, 1).reshape(8, 3), 1.0),
        (X[:, None] * np.float32(-0.25), -0.25),
        (X + np.float32(1e-6), 1.0),
    ],
)
def test_the_same_tensor_in_another_form_is_known(value, factor):
    found = likeness(value)
    assert found
    assert found.keys == {b"x"}
    assert found.factor == pytest.approx(factor)


@pytest.mark.parametrize("value", [X[::-1].copy(), X + 1, np.roll(X, 1, 2), RNG.permutation(X.reshape(-1)), X**2])
def test_the_same_elements_in_another_order_are_not(value):
    assert likeness(value) is None


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_tensor_of_parts_that_stand_alone_elsewhere_is_known_by_them(axis, count):
    parts = RNG.standard_normal((count, 5, 7)).astype(np.float32)
    record = CallRecord(lambda _: True)
    record.values.update({bytes([number]): part for number, part in enumerate(parts)})
    like = LikeValues(record, [], 1e-4)
    whole = np.stack(list(parts), axis)
    found = like.find(whole)
    assert found
    assert found.keys == set(record.values)
    assert like.find(np.stack([*parts[:-1], parts[-1] + 1], axis)) is None
    record.values[b"whole"] = np.stack(list(parts[::-1]), axis)  # of a whole the order counts
    assert LikeValues(record, [], 1e-4).find(whole) is None


def test_of_a_tensor_that_varies_nowhere_nothing_is_told():
    found = likeness(np.ones((2, 3, 4), np.float32))
    assert found
    assert not found.keys


def test_what_a_mask_holds_does_not_hide_what_stands_beside_it():
    mask = np.triu(np.ones((3, 4), bool), 1)
    record = CallRecord(lambda _: True)
    record.values[b"x"] = np.where(mask, -np.inf, X).astype(np.float32)
    like = LikeValues(record, [], 1e-4)
    taken_away = like.find(X - mask * np.float32(1e9))
    assert taken_away
    assert taken_away.keys == {b"x"}
    assert like.find((X + np.float32(0.5)) - mask * np.float32(1e9)) is None
    assert like.find(np.where(np.triu(mask, 2), -1e9, X).astype(np.float32)) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("AddExt", "add"), ("Concat", "cat"), ("MeanExt", "mean"), ("Muls", "mul"), ("BatchMatMulExt", "matmul"),
     ("RepeatInterleaveInt", "repeat_interleave"), ("Transpose", "permute"), ("StridedSlice", "getitem")],
)  # fmt: skip
def test_functions_of_both_frameworks_are_known_by_their_names(one, other):
    assert same_function(one, other)
    assert not same_function(one, "softmax")
