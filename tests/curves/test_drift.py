"""Drift told apart from jitter: alarms at the stated rate without one, found with the stated power with one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom

from align.curves.curve_shapes import average_blocks
from align.curves.examined_curves import drift_note, find_drift
from align.curves.judging_thresholds import FALSE_ALARM_RATE

REPEATS = 500


def _jitter(kind: str, points: int, source: np.random.Generator) -> np.ndarray:
    """One difference without drift, of variance about 1."""
    if kind.startswith("correlated"):
        kept = float(kind.split()[1])
        return lfilter([np.sqrt(1 - kept**2)], [1, -kept], source.standard_normal(points + 300))[300:]
    time = np.arange(points) / points
    return {
        "white": lambda: source.standard_normal(points),
        "heavy tails": lambda: source.standard_t(2, size=points),
        "three digits": lambda: np.round(0.0007 * source.standard_normal(points), 3),
        "growing": lambda: _jitter("correlated 0.5", points, source) * np.exp(8 * time),
        "chaos": lambda: _jitter("correlated 0.9", points, source) * np.minimum(1.0, 1e-7 * np.exp(30 * time)),
        "walk": lambda: np.cumsum(source.standard_normal(points)),
    }[kind]()


def _share(kind: str, points: int, drift: np.ndarray | float, repeats: int) -> float:
    source = np.random.default_rng(11)
    found = (find_drift(_jitter(kind, points, source) + drift) for _ in range(repeats))
    return sum(any(test.drifts for test in tests) for tests in found) / repeats


@pytest.mark.parametrize("points", [50, 400])
@pytest.mark.parametrize(
    "kind",
    ["white", "correlated 0.5", "correlated 0.9", "correlated 0.99", "heavy tails", "three digits", "growing", "chaos",
     "walk"],
)  # fmt: skip
def test_without_drift_alarms_are_no_more_than_stated(kind: str, points: int) -> None:
    assert _share(kind, points, 0.0, REPEATS) <= binom.isf(1e-3, REPEATS, FALSE_ALARM_RATE) / REPEATS


@pytest.mark.parametrize(
    ("kind", "points", "offset", "change", "power"),
    [
        ("white", 1000, 0.2, 0.0, 0.9),
        ("white", 1000, 0.0, 0.6, 0.9),
        ("white", 100, 0.7, 0.0, 0.7),
        ("white", 100, 0.0, 2.0, 0.8),
        ("correlated 0.9", 1000, 1.5, 0.0, 0.6),
        ("correlated 0.9", 1000, 0.0, 4.0, 0.7),
    ],
)  # fmt: skip
def test_a_planted_drift_is_found(kind: str, points: int, offset: float, change: float, power: float) -> None:
    drift = offset + change * (np.arange(points) / points - 0.5)
    assert _share(kind, points, drift, 200) >= power


def test_equal_curves_do_not_drift() -> None:
    tests = find_drift(np.zeros(100))
    assert [test.p_value for test in tests] == [1.0, 1.0]
    assert drift_note(tests, np.zeros(100)) == ""


def test_a_straight_line_drifts_and_its_change_is_told() -> None:
    line = np.linspace(-1e-7, 1e-7, 200)
    sign, slope = find_drift(line)
    assert (sign.drifts, slope.drifts) == (False, True)
    assert slope.slope == pytest.approx(2e-7, rel=0.02)
    assert "slope p = " in drift_note((sign, slope), line)


def test_a_constant_difference_is_found_by_its_sign() -> None:
    sign, slope = find_drift(np.full(50, -1e-6))
    assert (sign.statistic, sign.drifts, slope.drifts) == (0.0, True, False)
    assert "-1e-06 on average" in drift_note((sign, slope), np.full(50, -1e-6))


@pytest.mark.parametrize("points", [0, 1, 2, 19])
def test_too_few_points_are_not_tested(points: int) -> None:
    assert find_drift(np.ones(points)) == ()


def test_a_wandering_difference_is_not_tested() -> None:
    assert find_drift(np.sin(np.arange(300) / 60)) == ()


def test_blocks_grow_until_neighbours_are_not_alike() -> None:
    source = np.random.default_rng(2)
    lengths = [average_blocks(_jitter(kind, 20_000, source), 20, detrend=True).length
               for kind in ("white", "correlated 0.5", "correlated 0.9", "correlated 0.99")]  # fmt: skip
    assert lengths == sorted(lengths)
    assert lengths[0] <= 4 < 64 <= lengths[-1]
