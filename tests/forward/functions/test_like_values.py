"""Tensors of two sides are one in any order of axes, times one number, and whatever a mask holds."""

from __future__ import annotations

import numpy as np
import pytest

from align.forward.functions.calls_followed import same_function
from align.forward.functions.recorded_calls import CallRecord, LikeValues, RecordedCall, with_steps_of_attention

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


def attended(mask: str, scale: float = 1.0) -> tuple[CallRecord, dict[str, np.ndarray]]:
    """A record of one call of fused attention, and what is computed on its way."""
    shape = (2, 3, 5, 4)
    query, keys, values = (RNG.standard_normal(shape) for _ in range(3))
    scores = scale * query @ keys.swapaxes(-1, -2) / 2
    masks = {"": None, "causal": np.tril(np.ones((5, 5), bool)), "places": RNG.random((2, 1, 1, 5)) < 0.7}
    if mask == "places":
        masks["places"][..., 0] = True
    given = {"query": query, "key": keys, "value": values}
    if mask == "biases":
        given["mask"] = RNG.standard_normal((5, 5))
        masked = scores + given["mask"]
    else:
        masked = scores if masks[mask] is None else np.where(masks[mask], scores, -np.inf)
        given |= {"mask": masks[mask]} if mask == "places" else {}
    shares = np.exp(masked - masked.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    record = CallRecord(lambda _: True)
    call = RecordedCall("block/scaled_dot_product_attention", 0, "scaled_dot_product_attention", "model.py:7")
    record.calls[call.path, 0] = call
    for value in given.values():
        record.add_step(call, value.astype(value.dtype if value.dtype == bool else np.float32))
    call.given, call.returned = call.returned, []
    record.makers.clear()
    record.add_step(call, (shares @ values).astype(np.float32))
    return record, {"matmul": scores, "masked_fill": masked, "softmax": shares}


@pytest.mark.parametrize("mask", ["", "causal", "places", "biases"])
def test_the_steps_of_a_fused_attention_are_known(mask):
    record, steps = attended(mask)
    record = with_steps_of_attention(record)
    names = [call.name for call in record.calls.values()]
    assert names == ["matmul", *(["masked_fill"] if mask else []), "softmax", "scaled_dot_product_attention"]
    for call in list(record.calls.values())[:-1]:
        np.testing.assert_allclose(record.values[call.returned[0]], steps[call.name], rtol=1e-5, atol=1e-5)
    last = list(record.calls.values())[-1]
    assert record.makers[last.given[0]].name == "softmax"
    assert record.makers[last.returned[0]] is last


@pytest.mark.parametrize("scale", [0.5, 2.0, -1.0])
def test_a_fused_attention_of_another_scale_stays_whole(scale):
    record, _ = attended("", scale)
    assert [call.name for call in with_steps_of_attention(record).calls.values()] == ["scaled_dot_product_attention"]
