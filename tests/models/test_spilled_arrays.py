"""Arrays that lie in a file while nobody reads them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from align.models.inputs import MadeArrays, SpilledArrays
from align.models.thresholds import SMALLEST_SPILLED_BYTES


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 2), (300, 301)])
def test_what_is_kept_comes_back_bit_for_bit(shape: tuple[int, ...], dtype: Any) -> None:
    value = (np.arange(int(np.prod(shape))).reshape(shape) % 5).astype(dtype)
    kept = SpilledArrays({"a": value, "b": value.T})
    assert kept["a"].tobytes() == value.tobytes()
    assert (kept["a"].shape, kept["a"].dtype, kept["b"].shape) == (shape, np.dtype(dtype), shape[::-1])
    assert np.array_equal(kept["b"], value.T)
    assert list(kept) == ["a", "b"]


@pytest.mark.parametrize("size", [10, SMALLEST_SPILLED_BYTES])
def test_what_is_kept_is_a_copy_and_a_name_may_be_given_again(size: int) -> None:
    value = np.zeros(size, np.float32)
    kept = SpilledArrays({"a": value})
    value += 1
    before = kept["a"]
    kept["a"] = kept["a"] + 2
    assert (before == 0).all()
    assert (kept["a"] == 2).all()


def test_a_view_outlives_what_it_was_read_from() -> None:
    view = SpilledArrays({"a": np.full(SMALLEST_SPILLED_BYTES, 3.0)})["a"]
    assert (view == 3.0).all()
    assert not view.flags.writeable


def test_arrays_are_made_when_they_are_read_and_not_when_they_are_asked_for() -> None:
    made: list[str] = []

    def make() -> Any:
        made.append("a")
        return np.ones(2)

    arrays = MadeArrays({"a": make})
    assert "a" in arrays
    assert (list(arrays), len(arrays), made) == (["a"], 1, [])
    assert arrays["a"].sum() == 2
    assert made == ["a"]
