"""Where a limit comes from, how it follows the dtype, and what few elements are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from align.core.parameters import EPSILON
from align.core.traces import Capture, Measurement, smallest_factor
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.thresholds import (
    NOISE_FACTOR,
    NOISE_FACTOR_OF_HALF_ALONE,
    RELATIVE_BY_DTYPE,
    TYPICAL_UNITS,
    WORST_UNITS,
)
from align.traces.open_trace import NoiseSink

SCALE = measure(np.array([3.0, -4.0]), np.array([3.0, -4.0]))
BOTH = ("float32", "float32")


def noise(rmse: float, largest: float, count: int) -> Measurement:
    return replace(SCALE, rmse=rmse, max_abs=largest, count=count)


def test_integers_and_bools_may_not_differ_at_all() -> None:
    for dtypes in (("int64", "int32"), ("bool", "bool"), ("uint8", "int64")):
        limit = limit_for(SCALE, dtypes, noise(1.0, 1.0, 10))
        assert (limit.max_abs, limit.rmse, limit.source) == (0.0, 0.0, "exact")


def test_noise_is_multiplied() -> None:
    limit = limit_for(SCALE, BOTH, noise(1e-3, 4e-3, 1_000_000))
    assert limit.source == "noise"
    assert limit.rmse == pytest.approx(NOISE_FACTOR * 1e-3, rel=0.02)
    assert limit.max_abs == pytest.approx(NOISE_FACTOR * 4e-3, rel=0.02)


def test_without_noise_of_its_own_a_layer_may_differ_by_units_in_the_last_place() -> None:
    limit = limit_for(SCALE, BOTH, noise(0.0, 0.0, 10))
    assert limit.source == "rounding"
    assert limit.max_abs == WORST_UNITS * EPSILON["float32"] * 4.0
    assert limit.rmse == TYPICAL_UNITS * EPSILON["float32"] * SCALE.reference_rms


@pytest.mark.parametrize("dtype", RELATIVE_BY_DTYPE)
def test_without_a_measurement_the_table_counts(dtype: str) -> None:
    limit = limit_for(SCALE, (dtype, dtype), None)
    assert (limit.source, limit.max_abs) == ("dtype", RELATIVE_BY_DTYPE[dtype] * 4.0)


def test_the_looser_of_two_dtypes_counts() -> None:
    for dtypes in (("float32", "float16"), ("float16", "float32"), ("float16", "int64")):
        assert limit_for(SCALE, dtypes, None).max_abs == RELATIVE_BY_DTYPE["float16"] * 4.0
    assert limit_for(SCALE, ("float16", "bfloat16"), None).max_abs == RELATIVE_BY_DTYPE["bfloat16"] * 4.0


def test_a_coarser_candidate_is_as_much_noisier_as_its_unit_is_larger() -> None:
    measured = noise(1e-5, 4e-5, 1_000_000)
    single, half = limit_for(SCALE, BOTH, measured), limit_for(SCALE, ("float32", "float16"), measured)
    units = EPSILON["float16"] / EPSILON["float32"]
    assert half.rmse / single.rmse == pytest.approx(units)
    alone = limit_for(SCALE, ("float32", "float16"), measured, alone=True)
    assert alone.rmse / half.rmse == pytest.approx(NOISE_FACTOR_OF_HALF_ALONE / NOISE_FACTOR)
    assert limit_for(SCALE, BOTH, measured, "float16") == half


def test_a_finer_candidate_is_held_to_the_noise_of_the_reference() -> None:
    measured = noise(1e-2, 4e-2, 1_000_000)
    assert limit_for(SCALE, ("float16", "float32"), measured) == limit_for(SCALE, ("float16", "float16"), measured)


def test_complex_values_round_like_their_parts() -> None:
    measured = noise(1e-5, 4e-5, 1_000_000)
    assert limit_for(SCALE, ("complex64", "complex64"), measured) == limit_for(SCALE, BOTH, measured)
    assert limit_for(SCALE, ("complex64", "complex64"), None).max_abs == RELATIVE_BY_DTYPE["float32"] * 4.0


def test_few_elements_may_have_been_lucky() -> None:
    factors = [limit_for(SCALE, BOTH, noise(1e-3, 1e-3, count)).rmse / 1e-3 / NOISE_FACTOR for count in (1, 2, 10, 500)]
    assert factors == pytest.approx([79.8, 9.97, 1.98, 1.08], rel=0.01)


def test_a_few_errors_that_dominate_count_as_few() -> None:
    """One element of ten thousand carries all the noise: its size was measured once, not ten thousand times."""
    dominated = noise(1e-5, 1e-3, 10_000)
    assert limit_for(SCALE, BOTH, dominated).rmse == pytest.approx(NOISE_FACTOR * 79.8 * 1e-5, rel=0.01)


def test_one_number_with_lucky_noise_raises_no_alarm_more_than_once_in_a_thousand() -> None:
    """Two independent normal errors of one size: the reference's measured noise against the candidate's difference."""
    generator = np.random.default_rng(0)
    own, other = generator.standard_normal((2, 20_000)) * 1e-4
    alarms = 0
    for mine, theirs in zip(own.tolist(), other.tolist(), strict=True):
        limit = limit_for(replace(SCALE, reference_max=0.0, reference_rms=0.0), BOTH, noise(abs(mine), abs(mine), 1))
        alarms += abs(theirs - mine) > limit.rmse
    assert alarms <= 20_000 / 1000


def test_the_smallest_factor_is_where_the_layer_would_pass() -> None:
    measurement = measure(np.array([1.0, 2.0]), np.array([1.0, 2.5]))
    limit = limit_for(measurement, ("float64", "float64"), None)
    factor = smallest_factor(measurement, limit)
    assert factor > 1
    wider = replace(limit, max_abs=limit.max_abs * factor, rmse=limit.rmse * factor)
    assert smallest_factor(measurement, wider) == pytest.approx(1.0)


def capture(dtype: str, shape: tuple[int, ...] = (2,), call: int = 0) -> Capture:
    return Capture(call, "fc", call, "", "Linear", shape, dtype)


class Ordinary:
    """A trace of one float32 layer that returned 1 and 2."""

    environment: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, dtype: str = "float32") -> None:
        self.captures, self.inputs = (capture(dtype),), ()

    def value(self, asked: Capture) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.array([1, 2], asked.dtype)


def test_noise_is_what_the_ordinary_run_deviates_by() -> None:
    sink = NoiseSink(Ordinary())
    sink.add(capture("float64"), np.array([1.0, 2.0 + 1e-9]))
    assert sink.noise["fc#0"].max_abs == pytest.approx(1e-9, rel=1e-6)


def test_a_layer_that_did_not_run_in_float64_has_no_noise() -> None:
    """The model casts inside: both runs were the same, which is not the same as exact."""
    sink = NoiseSink(Ordinary())
    sink.add(capture("float32"), np.array([1, 2], np.float32))
    assert sink.noise == {}


def test_integers_other_shapes_and_other_calls_have_no_noise() -> None:
    sink = NoiseSink(Ordinary("int64"))
    sink.add(capture("int64"), np.array([1, 2]))
    other = NoiseSink(Ordinary())
    other.add(capture("float64", (3,)), np.ones(3))
    other.add(capture("float64", call=1), np.ones(2))
    assert (sink.noise, other.noise) == ({}, {})
