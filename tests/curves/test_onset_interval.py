"""Between which points a difference sets in: exact without noise, held with the stated confidence, silent in noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from align.curves.change_test import Onset, find_onset, find_stretch
from align.curves.judging_thresholds import FALSE_ALARM_RATE, ONSET_CONFIDENCE

POINTS, AT = 200, 100
SINCE = np.clip(np.arange(POINTS) - AT, 0, None) / (POINTS - AT)
SHAPES = {"at once": 3.0 * (np.arange(POINTS) >= AT), "along a line": 3.0 * SINCE, "ever faster": 3.0 * SINCE**2}


def _onset(difference: np.ndarray) -> Onset | None:
    limit = np.ones(len(difference))
    return find_onset(difference, limit, find_stretch(difference, limit, np.abs(difference) < 1.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("at", [0, 1, 7, 100, 195])
def test_without_noise_what_sets_in_at_once_is_exact(at: int, sign: float) -> None:
    difference = np.zeros(POINTS)
    difference[at:] = 1.2 * sign
    assert _onset(difference) == Onset(at, at, at)


def test_without_noise_a_drift_sets_in_where_it_is_planted_and_not_where_it_leaves_its_limit() -> None:
    found = _onset(SHAPES["along a line"])
    assert found is not None
    assert found.gradual
    assert found.first <= AT + 1 <= found.last <= AT + 10


def test_a_difference_of_changing_sign_is_found_by_its_size() -> None:
    difference = np.zeros(POINTS)
    difference[AT:] = 1.5 * (-1.0) ** np.arange(POINTS - AT)
    assert _onset(difference) == Onset(AT, AT, AT)


@pytest.mark.parametrize("noise", [0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_holds_what_was_planted_as_often_as_it_says(shape: str, noise: float) -> None:
    source, runs, held = np.random.default_rng(5), 25, 0
    for _ in range(runs):
        found = _onset(SHAPES[shape] + noise * source.standard_normal(POINTS))
        assert found is not None
        held += found.first - found.gradual <= AT <= found.last
    assert held >= binom.ppf(1e-3, runs, ONSET_CONFIDENCE)


@pytest.mark.parametrize(("size", "widest"), [(3.0, 20), (6.0, 4)])
def test_the_clearer_a_jump_is_the_closer_is_its_interval(size: float, widest: int) -> None:
    source = np.random.default_rng(6)
    widths = []
    for _ in range(10):
        found = _onset(size / 3.0 * SHAPES["at once"] + source.standard_normal(POINTS))
        assert found is not None
        widths.append(found.last - found.first + 1)
    assert np.median(widths) <= widest


@pytest.mark.parametrize("kind", ["white", "heavy tails", "rounded"])
def test_noise_around_equal_curves_sets_in_nowhere(kind: str) -> None:
    source, runs = np.random.default_rng(8), 40
    alarms = 0
    for _ in range(runs):
        noise = source.standard_t(2, POINTS) if kind == "heavy tails" else source.standard_normal(POINTS)
        alarms += _onset(2.0 * (np.round(noise) if kind == "rounded" else noise)) is not None
    assert alarms <= binom.isf(1e-3, runs, FALSE_ALARM_RATE)


@pytest.mark.parametrize(("points", "at"), [(30, 3), (30, 15), (200, 100)])
def test_where_the_curves_agreed_before_it_the_onset_is_known_to_few_points(points: int, at: int) -> None:
    source, runs = np.random.default_rng(7), 20
    difference = 20.0 * (source.standard_normal((runs, points)) - 2.0)
    difference[:, :at] *= 1e-3
    found = [one for one in map(_onset, difference) if one is not None]
    assert len(found) >= 0.8 * runs
    assert sum(one.first - one.gradual <= at <= one.last for one in found) >= binom.ppf(
        1e-3, len(found), ONSET_CONFIDENCE
    )
    assert np.median([one.last - one.first + 1 for one in found]) <= 4


def test_noise_that_sets_in_is_found_in_noise_that_was_there() -> None:
    noise = 0.5 * np.random.default_rng(9).standard_normal(POINTS)
    noise[AT:] *= 10.0
    found = _onset(noise)
    assert found is not None
    assert found.first <= AT <= found.last


def test_few_points_do_not_tell_their_noise() -> None:
    assert _onset(np.repeat([0.0, 2.0], 7)) is None


def test_what_comes_together_again_sets_in_where_it_did() -> None:
    difference = np.zeros(POINTS)
    difference[50:80] = 2.0
    assert _onset(difference) == Onset(50, 50, 50)


def test_what_comes_together_again_in_noise_is_found_and_a_few_points_of_heavy_noise_are_not() -> None:
    source, found, alarms, runs = np.random.default_rng(11), 0, 0, 30
    for _ in range(runs):
        noise = 0.3 * source.standard_normal(POINTS)
        noise[50:80] += 2.0
        onset = _onset(noise)
        found += onset is not None and onset.first <= 50 <= onset.last
        alarms += _onset(0.3 * source.standard_t(2, POINTS)) is not None
    assert found >= binom.ppf(1e-3, runs, ONSET_CONFIDENCE)
    assert alarms <= binom.isf(1e-3, runs, FALSE_ALARM_RATE)
