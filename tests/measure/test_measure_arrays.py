"""Every figure against an independent one in 80-bit arithmetic; all dtypes, NaN, Inf, extremes, block edges, memory."""

from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING, Any

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.core.traces import Limit, smallest_factor
from align.measure.measure_arrays import measure
from align.measure.thresholds import MEASURED_BLOCK

if TYPE_CHECKING:
    from pathlib import Path

    from align.core.traces import Measurement

NAN, INF = math.nan, math.inf
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def expected(reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The figures by their definitions, in long double, over the pairs of finite numbers."""
    wide = np.clongdouble if "c" in (reference.dtype.kind, candidate.dtype.kind) else np.longdouble
    narrow = np.complex128 if wide is np.clongdouble else np.float64
    x, y = (side.reshape(-1).astype(narrow).astype(wide) for side in (reference, candidate))
    both = np.isfinite(x) & np.isfinite(y)
    d = np.abs(y[both] - x[both])
    x, y = x[both], y[both]
    count = max(d.size, 1)
    norms = np.sqrt((np.abs(x) ** 2).sum()) * np.sqrt((np.abs(y) ** 2).sum())
    some = np.abs(x) > 0
    squares = (np.abs(x) ** 2).sum()
    return {
        "max_abs": d.max(initial=0.0),
        "max_rel": (d[some] / np.abs(x[some])).max() if some.any() else None,
        "mean_abs": d.sum() / count,
        "rmse": np.sqrt((d**2).sum() / count),
        "relative_l2": np.sqrt((d**2).sum() / squares) if squares > 0 else None,
        "cosine": (x * np.conj(y)).real.sum() / norms if norms > 0 else None,
        "reference_max": np.abs(x).max(initial=0.0),
        "reference_rms": np.sqrt(squares / count),
    }


def check_figures(reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any]) -> Measurement:
    """Assert that every figure is what its definition says, and return them."""
    measurement = measure(reference, candidate)
    assert measurement.count == reference.size
    for name, value in expected(reference, candidate).items():
        found = getattr(measurement, name)
        if value is None:
            assert found is None, name
        else:
            assert found == pytest.approx(float(value), rel=1e-9, abs=1e-12 if name == "cosine" else 0.0), name
    return measurement


def normal(shape: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_figure_of_floats_is_what_its_definition_says(dtype: Any) -> None:
    reference = normal((7, 5, 11)).astype(dtype)
    measurement = check_figures(reference, (reference.astype(np.float64) * 1.01 + 0.003).astype(dtype))
    assert 0.9 < (measurement.cosine or 0.0) <= 1.0


@pytest.mark.parametrize("pair", [(np.float32, np.float16), (np.float16, ml_dtypes.bfloat16), (np.float64, np.int8)])
def test_two_dtypes_are_compared_by_value(pair: tuple[Any, Any]) -> None:
    reference = (normal((40,)) * 20).astype(pair[0])
    check_figures(reference, reference.astype(pair[1]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_from_end_to_end_of_their_range_do_not_wrap(dtype: Any) -> None:
    lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
    reference, candidate = np.array([lowest, highest, 1], dtype), np.array([highest, lowest, 1], dtype)
    measurement = measure(reference, candidate)
    assert measurement.max_abs == float(int(highest) - int(lowest))
    assert (measurement.mismatched, measurement.worst) == (2, (0,))


def test_neighbours_that_float64_cannot_tell_apart_are_told_apart() -> None:
    large = np.array([2**62], np.int64)
    assert measure(large, large + 1).max_abs == 1.0
    assert measure(large, (large + 1).astype(np.uint64)).max_abs == 1.0


def test_signed_against_unsigned_is_the_true_distance() -> None:
    signed = np.array([-(2**63), -1, 5], np.int64)
    unsigned = np.array([2**64 - 1, 0, 5], np.uint64)
    for measurement in (measure(signed, unsigned), measure(unsigned, signed)):
        assert measurement.max_abs == float(2**64 - 1 + 2**63)
        assert measurement.mismatched == 2


def test_small_unsigned_values_subtract_below_zero() -> None:
    assert measure(np.array([3], np.uint8), np.array([5], np.uint8)).max_abs == 2.0
    assert measure(np.array([250], np.uint8), np.array([-6], np.int8)).max_abs == 256.0


def test_bools_differ_by_one() -> None:
    measurement = check_figures(np.array([True, False, True]), np.array([True, True, True]))
    assert (measurement.max_abs, measurement.mismatched, measurement.worst) == (1.0, 1, (1,))


def test_a_million_halves_overflow_no_figure() -> None:
    reference = np.full((1000, 1000), 60000.0, np.float16)
    measurement = check_figures(reference, reference)
    assert (measurement.cosine, measurement.max_abs, measurement.rmse) == (1.0, 0.0, 0.0)
    assert measurement.reference_rms == 60000.0


def test_float32_sums_do_not_lose_small_differences() -> None:
    reference = normal((1 << 18,)).astype(np.float32) + np.float32(100.0)
    candidate = reference * np.float32(1 + 1e-4)
    measurement = check_figures(reference, candidate)
    assert measurement.cosine is not None
    assert measurement.cosine <= 1.0


def test_complex_values_differ_by_modulus() -> None:
    reference = (normal((3, 4)) + 1j * normal((3, 4), 1)).astype(np.complex64)
    check_figures(reference, (reference * (1.0 + 0.02j)).astype(np.complex64))
    assert measure(np.array([0j]), np.array([3 + 4j])).max_abs == 5.0


def test_a_complex_value_with_nan_and_inf_is_counted_once() -> None:
    odd = np.array([complex(NAN, INF), 1j])
    measurement = measure(odd, odd)
    assert (measurement.nan_reference, measurement.inf_reference, measurement.non_finite_mismatch) == (1, 0, 0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_nan_on_one_side_is_a_mismatch_and_never_a_figure(dtype: Any) -> None:
    reference, candidate = np.array([1, NAN, 3, 4], dtype), np.array([1, 2, NAN, 4.5], dtype)
    measurement = check_figures(reference, candidate)
    assert (measurement.nan_reference, measurement.nan_candidate, measurement.non_finite_mismatch) == (1, 1, 2)
    assert (measurement.mismatched, measurement.max_abs, measurement.worst) == (3, 0.5, (3,))


def test_nan_on_both_sides_and_equal_infinities_are_alike() -> None:
    values = np.array([NAN, INF, -INF, 2.0], np.float32)
    measurement = check_figures(values, values)
    assert (measurement.nan_reference, measurement.inf_reference) == (1, 2)
    assert (measurement.non_finite_mismatch, measurement.mismatched, measurement.max_abs) == (0, 0, 0.0)


@pytest.mark.parametrize(("a", "b"), [(INF, -INF), (INF, 1.0), (INF, NAN), (3.0, -INF)])
def test_unlike_infinities_pass_no_limit(a: float, b: float) -> None:
    measurement = measure(np.array([a, 1.0]), np.array([b, 1.0]))
    assert measurement.non_finite_mismatch == 1
    assert measurement.max_abs == 0.0
    assert smallest_factor(measurement, Limit(1e9, 1e9, "user")) == INF


def test_nothing_but_nan_has_no_relative_figures() -> None:
    measurement = measure(np.full(3, NAN), np.full(3, NAN))
    assert (measurement.max_rel, measurement.relative_l2, measurement.cosine, measurement.rmse) == (None, None, None, 0)


def test_an_all_zero_reference_has_no_relative_figures_and_no_cosine() -> None:
    measurement = check_figures(np.zeros(4, np.float32), np.array([0, 0, 1e-3, 0], np.float32))
    assert (measurement.max_rel, measurement.relative_l2, measurement.cosine) == (None, None, None)
    assert measurement.worst == (2,)


def test_a_zero_candidate_has_no_cosine_but_a_relative_difference_of_one() -> None:
    measurement = check_figures(np.ones(4, np.float32), np.zeros(4, np.float32))
    assert (measurement.cosine, measurement.relative_l2, measurement.max_rel) == (None, 1.0, 1.0)


def test_a_flipped_sign_of_tiny_values_shows_in_the_relative_figures() -> None:
    gradient = normal((50,)).astype(np.float32) * np.float32(1e-5)
    measurement = check_figures(gradient, -gradient)
    assert measurement.max_abs < 1e-4
    assert (measurement.relative_l2, measurement.cosine) == (pytest.approx(2.0), pytest.approx(-1.0))


def test_permuted_rows_of_equal_mean_differ() -> None:
    rows = normal((6, 8)).astype(np.float32)
    assert check_figures(rows, rows[::-1]).max_abs > 0.5


def test_empty_and_0d_tensors_have_figures() -> None:
    empty = measure(np.empty((0, 3), np.float32), np.empty((0, 3), np.float32))
    assert (empty.count, empty.max_abs, empty.rmse, empty.worst, sum(empty.decades)) == (0, 0.0, 0.0, (), 0)
    scalar = check_figures(np.array(2.0, np.float32), np.array(2.5, np.float32))
    assert (scalar.count, scalar.max_abs, scalar.worst, scalar.max_rel) == (1, 0.5, (), 0.25)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (3, 2)), ((), (1,)), ((4, 1), (4, 5)), ((2, 3, 1, 1), (2, 3)), ((0,), (1,)), ((6,), (2, 3))]
)
def test_unequal_shapes_are_never_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        measure(np.zeros(a), np.zeros(b))


def test_views_are_measured_as_what_they_show() -> None:
    base = normal((6, 10)).astype(np.float32)
    other = base + np.float32(0.25) * (base > 0)
    for view in (np.s_[::2, ::-3], np.s_[:, 1:4]):
        check_figures(base[view], other[view])
    assert measure(base.T, other.T).max_abs == measure(base, other).max_abs
    assert measure(np.asfortranarray(base), other).worst == measure(base, other).worst
    assert measure(np.broadcast_to(base[0], (4, 10)), np.tile(other[0], (4, 1))).count == 40


@pytest.mark.parametrize(
    "size",
    [
        1,
        MEASURED_BLOCK - 1,
        MEASURED_BLOCK,
        MEASURED_BLOCK + 1,
        2 * MEASURED_BLOCK,
        65535,
        65536,
        65537,
        8 * MEASURED_BLOCK + 7,
    ],
)
def test_the_edges_of_blocks_are_counted_once(size: int) -> None:
    reference = normal((size,)).astype(np.float32)
    candidate = reference.copy()
    places = sorted({0, size // 2, size - 1, min(MEASURED_BLOCK - 1, size - 1), min(MEASURED_BLOCK, size - 1)})
    candidate[places] += 0.5
    candidate[size - 1] += 1.0
    measurement = check_figures(reference, candidate)
    assert measurement.mismatched == len(places)
    assert measurement.worst == (size - 1,)
    assert sum(measurement.decades) == len(places)


def test_the_index_of_the_worst_is_the_first_of_equals_in_all_axes() -> None:
    reference, candidate = np.zeros((3, MEASURED_BLOCK // 2, 2)), np.zeros((3, MEASURED_BLOCK // 2, 2))
    candidate[1, 17, 1] = candidate[2, 3, 0] = -2.0
    assert measure(reference, candidate).worst == (1, 17, 1)


def test_no_finite_difference_has_no_place() -> None:
    assert measure(np.ones((2, 2)), np.ones((2, 2))).worst == ()
    assert measure(np.array([1.0, NAN]), np.array([1.0, 2.0])).worst == ()


def test_decades_hold_all_differences_by_size() -> None:
    differences = np.array([0.0, 3e-30, 3e-16, 3e-7, 4e-7, 0.5, 3.0, 2e15, 1e200, 1.7e308])
    decades = measure(np.zeros(10), differences).decades
    found = {power - 16: count for power, count in enumerate(decades) if count}
    assert found == {-16: 2, -7: 2, -1: 1, 0: 1, 15: 3}


def test_differences_beyond_float64_are_infinite_and_pass_no_limit() -> None:
    measurement = measure(np.array([1.5e308, 1.0]), np.array([-1.5e308, 1.0]))
    assert (measurement.max_abs, measurement.rmse) == (INF, INF)
    assert (measurement.relative_l2, measurement.cosine) == (None, None)
    assert sum(measurement.decades) == 1
    assert smallest_factor(measurement, Limit(1e300, 1e300, "user")) == INF


def test_memory_stays_bounded_for_mapped_files(tmp_path: Path) -> None:
    sides = []
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.full(1 << 23, 1.5, np.float32))  # 32 MiB each
        sides.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    tracemalloc.start()
    measurement = measure(*sides)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert measurement.count == 1 << 23
    assert peak < 8 << 20


shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6)
any_float = st.sampled_from([np.float16, np.float32, np.float64])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    shape, dtype = draw(shapes), draw(any_float)
    bound = {np.float16: 100.0, np.float32: 2.0**60, np.float64: 2.0**100}[dtype]
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(-bound, bound, width=width) | st.sampled_from([0.0, 1.0, NAN, INF, -INF])
    return tuple(draw(arrays.arrays(dtype, shape, elements=numbers)) for _ in range(2))  # type: ignore[return-value]


@settings(max_examples=200, deadline=None)
@given(pairs())
def test_figures_hold_together_whatever_the_values(pair: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> None:
    forward, backward = measure(*pair), measure(*pair[::-1])
    assert forward.count == pair[0].size
    assert (forward.max_abs, forward.rmse, forward.cosine) == (backward.max_abs, backward.rmse, backward.cosine)
    assert forward.mean_abs <= forward.rmse * (1 + 1e-9) + 1e-150  # squares of less than 1e-160 vanish
    assert forward.rmse <= forward.max_abs * (1 + 1e-9)
    assert sum(forward.decades) == forward.mismatched - forward.non_finite_mismatch
    assert forward.non_finite_mismatch == backward.non_finite_mismatch
    assert measure(pair[0], pair[0]).mismatched == 0


@settings(max_examples=100, deadline=None)
@given(pairs())
def test_equality_is_what_numpy_calls_equal(pair: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> None:
    assert (measure(*pair).mismatched == 0) == np.array_equal(*pair, equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(st.sampled_from(INTEGERS), st.integers(0, 8)), st.data())
def test_integer_differences_are_exact(reference: np.ndarray[Any, Any], data: st.DataObject) -> None:
    candidate = data.draw(arrays.arrays(st.sampled_from(INTEGERS), reference.shape))
    distances = [abs(int(a) - int(b)) for a, b in zip(reference, candidate, strict=True)]
    measurement = measure(reference, candidate)
    assert measurement.max_abs == pytest.approx(float(max(distances, default=0)), rel=1e-12)
    assert measurement.mismatched == sum(distance > 0 for distance in distances)
