"""Each relation of two tensors is named and its transform makes the candidate; values that tell nothing name none."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from align.core.transforms import Add, Scale
from align.measure.weight_relations import relate_weights

Array = np.ndarray[Any, Any]
BF16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


W, KERNEL, NORM = drawn(96, 64), drawn(8, 6, 3, 3), drawn(64, scale=0.05)
SHUFFLED = np.random.default_rng(1).permutation


def ordered(*places: Any) -> Array:
    return np.ascontiguousarray(W[np.concatenate([np.arange(96)[place] for place in places])])


def quantized(values: Array, steps: int, shape: tuple[int, ...]) -> Array:
    groups = values.reshape(shape)
    scale = np.abs(groups).max(-1, keepdims=True) / steps
    return (np.rint(groups / scale) * scale).astype(np.float32).reshape(values.shape)


def zeroed(*places: Any) -> Array:
    values = W.copy()
    values[places] = 0
    return values


def named(reference: Array, candidate: Array) -> list[str]:
    return [found.id for found in relate_weights(reference, np.ascontiguousarray(candidate))]


MENDED: list[tuple[str, Array, Array]] = [
    ("transposed", W, W.T),
    ("transposed", drawn(64, 64), drawn(64, 64).T),
    ("transposed", KERNEL, KERNEL.transpose(2, 3, 1, 0)),
    ("transposed", KERNEL, KERNEL.transpose(0, 1, 3, 2)),
    ("transposed", W, W.T[:, :, None, None]),
    ("reshaped", W, W[:, :, None, None]),
    ("halves-exchanged", W, ordered(slice(48, None), slice(48))),
    ("interleaved", W, W.reshape(3, 4, 8, 64).swapaxes(0, 1).reshape(96, 64)),
    ("interleaved", W, W.reshape(4, 12, 2, 64).swapaxes(1, 2).reshape(96, 64)),
    ("interleaved", W.T, W.reshape(2, 4, 12, 64).swapaxes(0, 1).reshape(96, 64).T),
    ("permuted", W, W.reshape(12, 8, 64)[SHUFFLED(12)].reshape(96, 64)),
    ("permuted", W, W[:, SHUFFLED(64)]),
    ("permuted", W, ordered(slice(32), slice(64, 72), slice(80, 88), slice(32, 64), slice(72, 80), slice(88, None))),
    ("permuted", KERNEL[:, :3], KERNEL[:, 2::-1]),
    ("permuted", NORM, NORM[SHUFFLED(64)]),
    ("scaled", W, W * np.float32(8)),
    ("scaled", W, W * np.float32(0.3)),
    ("scaled", NORM, -NORM),
    ("shifted", NORM, 1 + NORM),
    ("shifted", 1 + NORM, (1 + NORM) - 1),
    ("shifted", NORM.astype(BF16), (1 + NORM.astype(BF16).astype(np.float32)).astype(BF16)),
    ("shifted", NORM.astype(BF16), 1 + NORM.astype(BF16).astype(np.float32)),
    ("rounded", W, W.astype(np.float16).astype(np.float32)),
    ("rounded", W, W.astype(BF16).astype(np.float32)),
    ("rounded", W, W.astype(np.float16)),
    ("transposed", W, W.T.astype(BF16)),
    ("zero-rows", W, zeroed(slice(90, None))),
    ("cropped", W, W[:80]),
    ("cropped", zeroed(slice(80, None)), W[:80]),
    ("padded", W[:80], zeroed(slice(80, None))),
]


def test_what_relates_two_tensors_is_named_and_its_transform_makes_the_candidate(assert_each: Any) -> None:
    def check(name: str, reference: Array, candidate: Array) -> None:
        reference, candidate = np.ascontiguousarray(reference), np.ascontiguousarray(candidate)
        (found,) = relate_weights(reference, candidate)
        assert found.id == name
        assert found.transform is not None
        np.testing.assert_array_equal(found.transform.apply(reference), candidate, strict=True)
        assert found.units == 0

    assert_each(check, MENDED)


def test_what_no_map_can_make_is_named_without_a_transform(assert_each: Any) -> None:
    def check(name: str, reference: Array, candidate: Array) -> None:
        (found,) = relate_weights(reference, candidate)
        assert (found.id, found.transform) == (name, None), found

    low = W.min(1, keepdims=True)
    step = (W.max(1, keepdims=True) - low) / 255
    assert_each(
        check,
        [
            ("rounded", W.astype(np.float16).astype(np.float32), W),
            ("rounded", W.astype(BF16), W),
            ("truncated", W, (W.view(np.uint32) & 0xFFFF0000).view(np.float32)),
            ("quantized", W, quantized(W, 127, (1, -1))),
            ("quantized", W, quantized(W, 127, (96, 64))),
            ("quantized", W, quantized(W, 7, (-1, 32))),
            ("quantized", W, (np.rint((W - low) / step) * step + low).astype(np.float32)),
            ("zero-rows", W, zeroed([3, 50])),
            ("zero-rows", zeroed(slice(90, None)), W),
            ("zero-elements", W, W * (np.abs(W) > 0.3)),
            ("padded", W[:80], W),
            ("transposed", W.astype(BF16), np.ascontiguousarray(W.T)),
        ],
    )


def test_a_factor_that_is_not_exact_is_held_within_stated_units() -> None:
    (found,) = relate_weights(W, W / np.float32(np.sqrt(48)))
    assert isinstance(found.transform, Scale)
    np.testing.assert_allclose(found.transform.factor, 1 / np.sqrt(48), rtol=1e-7)
    assert found.units == 2
    assert relate_weights(NORM, NORM + np.float32(0.1))[0].transform == Add(float(np.float32(0.1)))


def test_values_that_are_not_related_or_say_nothing_have_no_relation(assert_each: Any) -> None:
    def check(reference: Array, candidate: Array) -> None:
        assert named(reference, candidate) == []

    ones, noise = np.ones((8, 8), np.float32), drawn(96, 64, seed=5)
    mask = (drawn(12, 12) > 0).astype(np.float32)
    assert_each(
        check,
        [
            (W, noise),
            (W, W + np.float32(1e-4) * noise),  # trained on
            (W, np.nextafter(W, np.float32(9))),  # rounded otherwise
            (W, W * (1 + np.float32(1e-3) * noise)),
            (ones, 2 * ones),
            (ones, 0 * ones),
            (W, 0 * W),
            (0 * W, W),
            (mask, mask.T),
            (drawn(4), drawn(4)[::-1]),
            (1 + NORM, 1 + drawn(64, seed=5, scale=0.05)),
            ((1 + 0.01 * NORM).astype(BF16), (2 + 0.01 * drawn(64, seed=5)).astype(BF16)),
            (np.arange(64), np.arange(64)[::-1]),
        ],
    )


def test_random_tensors_of_many_forms_are_never_called_related(assert_each: Any) -> None:
    rng = np.random.default_rng(3)
    forms = [(12,), (64,), (128,), (8, 8), (3, 3, 3, 3), (16, 1, 4)]
    pairs = []
    for number in range(180):
        dtype, shape = [np.dtype(np.float32), np.dtype(np.float16), BF16][number % 3], forms[number % 6]
        spread, first, second = 10.0 ** rng.integers(-4, 1), *rng.integers(0, 2, 2)
        one = (first + spread * rng.standard_normal(shape)).astype(dtype)
        pairs.append((one, (second + spread * rng.standard_normal(shape)).astype(dtype)))
        pairs.append((one, (one.astype(np.float32) * (1 + 1e-3 * rng.standard_normal(shape))).astype(dtype)))

    def check(reference: Array, candidate: Array) -> None:
        assert np.array_equal(reference, candidate) or named(reference, candidate) == []

    assert_each(check, pairs)


def test_values_that_two_changes_explain_are_open() -> None:
    line = drawn(16)
    circulant = np.stack([np.roll(line, -place) for place in range(16)])
    found = named(circulant, np.roll(circulant, -3, 0))
    assert len(found) > 1, found
