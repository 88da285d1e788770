"""Where two curves are said to part: between which steps, with what is a fact, and nowhere in noise."""

from __future__ import annotations

import numpy as np
import pytest

from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve, CurveComparison, DivergentSteps
from align.curves.place_on_axis import pair_curves

POINTS = 400
STEPS = np.arange(1, POINTS + 1)
COURSE = 2.0 * np.exp(-3.0 * STEPS / POINTS) + 1.0
DRIFT = np.clip(STEPS - 200, 0, None) / 200 * 0.2


def _judged(difference: np.ndarray, every: int = 1, noise: float = 0.0, seed: int = 1) -> CurveComparison:
    jitter = noise * np.random.default_rng(seed).standard_normal((2, POINTS))
    sides = (
        Curve("some.log", "loss", STEPS * every, values, np.zeros(POINTS))
        for values in (COURSE + jitter[0], COURSE + jitter[1] + difference)
    )
    reference, candidate = sides
    return judge_curves(reference, candidate, pair_curves(reference, candidate))


@pytest.mark.parametrize("seed", range(4))
def test_a_drift_in_noise_is_told_with_steps_that_hold_it(seed: int) -> None:
    found = _judged(DRIFT, noise=0.02, seed=seed)
    between = found.divergent_steps
    assert between is not None
    assert between.first <= 200 <= between.last
    assert between.first <= between.most_likely == found.first_divergent_step <= between.last
    assert between.confidence == 0.95
    assert found.events[0].step == between.most_likely


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_the_same_size_alone_parts_nowhere_though_the_mean_fails(seed: int) -> None:
    found = _judged(0.0 * DRIFT, noise=0.02, seed=seed)
    assert found.verdict.outcome.value == "not aligned"
    assert (found.first_divergent_step, found.divergent_steps, found.events) == (None, None, ())


def test_what_is_a_fact_is_told_as_one() -> None:
    spoiled = 0.0 * DRIFT
    spoiled[56] = np.nan
    assert _judged(spoiled).divergent_steps == DivergentSteps(57, 57, 57, 1.0)
    assert _judged(spoiled, every=10).divergent_steps == DivergentSteps(561, 570, 570, 1.0)


@pytest.mark.parametrize("seed", range(40))
def test_no_steps_are_told_before_nan_to_the_end_where_there_is_noise_alone(seed: int) -> None:
    to_the_end = np.where(STEPS > 20, np.nan, 0.0)
    for_a_while = np.where((STEPS > 20) & (STEPS < 380), np.nan, 0.0)
    for spoiled in (to_the_end, for_a_while):
        found = _judged(spoiled, noise=0.005, seed=seed).divergent_steps
        assert found == DivergentSteps(21, 21, 21, 1.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_drift_before_nan_is_still_told_with_steps_that_hold_it(seed: int) -> None:
    between = _judged(np.where(STEPS > 360, np.nan, DRIFT), noise=0.02, seed=seed).divergent_steps
    assert between is not None
    assert between.first <= 200 <= between.last < 361


def test_a_first_loss_that_differs_is_where_curves_part_unless_noise_does_as_much_later() -> None:
    first = 0.0 * DRIFT
    first[0] = 0.3
    assert _judged(first + 0.1 * (STEPS > 200), noise=0.02).first_divergent_step == 1
    assert _judged(0.1 + 0.0 * DRIFT, noise=0.02).first_divergent_step == 1


def test_curves_that_agree_part_nowhere() -> None:
    assert _judged(1e-6 * DRIFT).divergent_steps is None
