"""Figures of a tensor against NumPy in float64, for every kind of value."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from align.core.traces import TensorStatistics
from align.measure.tensor_statistics import summarize_tensor
from align.measure.thresholds import STATISTICS_BLOCK, STATISTICS_PIECE

PIECE, BLOCK = STATISTICS_PIECE, STATISTICS_BLOCK
SIZES = [1, 100, PIECE - 1, PIECE, PIECE + 1, BLOCK - 1, BLOCK, 3 * BLOCK + 17, 3 * BLOCK + 2 * PIECE]


def drawn(size: int, dtype: Any) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(size).standard_normal(size) * 50 + 3).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int64, np.uint8, np.bool_]
)
def test_figures_are_those_of_float64_to_six_digits(dtype: Any, size: int) -> None:
    value = drawn(size, dtype)
    wide = value.astype(np.float64)
    found = summarize_tensor(value)
    assert (found.min, found.max) == (wide.min(), wide.max())
    assert found.mean == pytest.approx(wide.mean(), rel=1e-5, abs=1e-5 * np.abs(wide).max())
    assert found.rms == pytest.approx(np.sqrt(np.mean(wide**2)), rel=1e-5)
    assert (found.nan, found.inf) == (0, 0)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    value = np.array([1.0, np.nan, 3.0, np.inf, -np.inf, np.nan, np.nan], np.float32)
    assert summarize_tensor(value) == TensorStatistics(1.0, 3.0, 2.0, np.sqrt(5.0), nan=3, inf=2)


@pytest.mark.parametrize("place", [0, BLOCK + 7, 2 * BLOCK + PIECE, 2 * BLOCK + PIECE + 5])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_one_element_that_is_not_finite_leaves_the_figures_of_all_others(odd: float, place: int) -> None:
    value = drawn(2 * BLOCK + PIECE + 6, np.float32)
    value[place] = odd
    others = np.delete(value, place).astype(np.float64)
    found = summarize_tensor(value)
    assert (found.min, found.max, found.nan + found.inf) == (others.min(), others.max(), 1)
    assert found.mean == pytest.approx(others.mean(), abs=1e-5 * np.abs(others).max())
    assert found.rms == pytest.approx(np.sqrt(np.mean(others**2)), rel=1e-5)


def test_squares_beyond_float64_are_infinite() -> None:
    found = summarize_tensor(np.array([1e200, -1e200]))
    assert (found.max, found.mean, found.rms) == (1e200, 0.0, np.inf)


def test_a_tensor_without_finite_elements_has_no_figures() -> None:
    assert summarize_tensor(np.full(3, np.nan)) == TensorStatistics(None, None, None, None, nan=3)
    assert summarize_tensor(np.empty((0, 3))) == TensorStatistics(None, None, None, None)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30, 3e38])
def test_squares_neither_overflow_nor_vanish(scale: float) -> None:
    value = np.array([scale, -scale, 0.0, scale], np.float32)
    assert summarize_tensor(value).rms == pytest.approx(scale * np.sqrt(0.75), rel=1e-5)


def test_shape_and_strides_do_not_matter() -> None:
    value = np.arange(24.0).reshape(4, 6)
    assert summarize_tensor(value.T[::2]) == summarize_tensor(np.ascontiguousarray(value.T[::2]))
    assert summarize_tensor(np.float32(7)[...]) == TensorStatistics(7.0, 7.0, 7.0, 7.0)


def test_complex_values_are_taken_by_their_size() -> None:
    found = summarize_tensor(np.array([3 + 4j, 0, np.nan], np.complex64))
    assert found == TensorStatistics(0.0, 5.0, 2.5, pytest.approx(np.sqrt(12.5)), nan=1)  # type: ignore[arg-type]
