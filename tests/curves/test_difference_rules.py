"""Noise, drift, a loss that stops and one that is only slower, told apart in curves of several shapes and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.signal import lfilter

from align.core.verdicts import Outcome
from align.curves.judge_curves import judge_curves
from align.curves.loss_log import Curve
from align.curves.place_on_axis import pair_curves

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.loss_log import CurveComparison

Values = np.ndarray
SHAPES: dict[str, Callable[[Values], Values]] = {  # over the share of the training that is done, from 0 to 1
    "exponential": lambda done: 2.0 * np.exp(-5.0 * done) + 0.5,
    "power law": lambda done: 9.0 / np.sqrt(1.0 + 40.0 * done) + 1.0,
    "straight": lambda done: 3.0 - 2.0 * done,
}
PLATEAU, SLOWER, DRIFT = "plateau above the reference", "slower than the reference", "slow drift"
LENGTHS = [400, 800, 3000]
NOISES = [0.0, 0.05]


def _judge(reference: Values, candidate: Values) -> CurveComparison:
    steps, exact = np.arange(1, len(reference) + 1), np.zeros(len(reference))
    left, right = (Curve("some.log", "loss", steps, values, exact) for values in (reference, candidate))
    return judge_curves(left, right, pair_curves(left, right))


def _trouble(losses: Values, planted: Values, noise: float, *, alike: bool, seed: int = 0) -> str:
    """Judge two courses with the noise of the batches, which both sides share where they are `alike`."""
    rng = np.random.default_rng(seed)
    left, right = noise * rng.normal(size=(2, len(losses)))
    right = left if alike else right
    right[0] = left[0]
    jitter = 1e-6 * rng.normal(size=len(losses))
    jitter[0] = 0.0
    comparison = _judge(losses + left, planted + right + jitter)
    assert comparison.verdict.outcome is Outcome.NOT_ALIGNED
    return comparison.trouble


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stop", [0.2, 0.35])
def test_a_loss_that_stops_is_on_a_plateau(stop: float, shape: str, count: int, noise: float, alike: bool) -> None:
    losses = SHAPES[shape](np.arange(count) / count)
    assert _trouble(losses, np.maximum(losses, losses[int(stop * count)]), noise, alike=alike) == PLATEAU


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gap", [0.2, 0.4])
def test_a_loss_that_keeps_its_distance_is_on_a_plateau(gap: float, shape: str, count: int, alike: bool) -> None:
    done = np.arange(count) / count
    losses = SHAPES[shape](done)
    planted = losses + gap * np.ptp(losses) * (1.0 - np.exp(-np.clip(done - 0.1, 0.0, None) / 0.08))
    assert _trouble(losses, planted, 0.05, alike=alike) == PLATEAU


@pytest.mark.parametrize("times", [1.3, 1.7, 2.5])
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize(("shape", "rate"), [("exponential", 1.0), ("exponential", 0.5), ("straight", 1.0)])
def test_a_loss_that_comes_down_the_same_way_is_slower(shape: str, rate: float, count: int, times: float) -> None:
    done = rate * np.arange(count) / count
    losses, planted = SHAPES[shape](done), SHAPES[shape](done / times)
    # It is slower from the second step on, which shows where all of the first steps are above the reference.
    assert _trouble(losses, planted, 0.02, alike=True) in {SLOWER, "differs from the second step"}
    assert _trouble(losses, planted, 0.05, alike=False) in {SLOWER, "differs from the second step"}


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("bent", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("size", [0.15, 0.2, 0.25])
def test_a_drift_is_told_from_the_noise_around_it(size: float, bent: float, count: int) -> None:
    done = np.arange(count) / count
    losses = SHAPES["exponential"](done)
    for seed in range(2):
        for alike in (True, False):
            assert _trouble(losses, losses + size * done**bent, 0.05, alike=alike, seed=seed) == DRIFT


def test_a_drift_with_noise_of_its_own_in_the_first_loss_too_is_one() -> None:
    losses = SHAPES["exponential"](np.arange(800) / 800)
    for seed in range(6):
        left, right = 0.05 * np.random.default_rng(seed).normal(size=(2, 800))
        comparison = _judge(losses + left, losses + right + 0.2 * np.arange(800) / 800)
        assert comparison.trouble == DRIFT
        assert comparison.next_command.startswith("align forward REFERENCE CANDIDATE, as the losses of step 1 differ")


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.7])
@pytest.mark.parametrize("count", [60, 300, 2000])
def test_noise_without_a_drift_stays_noise(count: int, correlation: float) -> None:
    losses = SHAPES["exponential"](np.arange(count) / count)
    found = []
    for seed in range(20):
        white = np.random.default_rng(seed).normal(size=(2, count + 100))
        noise = 0.05 * lfilter([(1.0 - correlation**2) ** 0.5], [1.0, -correlation], white)[:, 100:]
        found.append(_judge(losses * (1.0 + noise[0]), losses * (1.0 + noise[1])).trouble)
    # So few points that are so alike can seem to keep to one side.
    rare = 4 if count == 60 and correlation == 0.7 else 1
    assert found.count("noise of its own") >= 20 - rare


def test_a_mean_that_is_small_beside_the_noise_makes_no_drift_of_it() -> None:
    losses = SHAPES["exponential"](np.arange(50_000) / 50_000)
    left, right = 0.05 * np.random.default_rng(0).normal(size=(2, 50_000))
    assert _judge(losses + left, losses + right + 0.01).trouble == "noise of its own"
    assert _judge(losses + left, losses + right + 0.05).trouble == PLATEAU


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_gap_that_shrinks_and_then_wavers_is_there_to_stay(shape: str, count: int) -> None:
    done = np.arange(count) / count
    losses = SHAPES[shape](done)
    gap = (0.15 + 0.5 * np.exp(-done / 0.2)) * (1.0 - np.exp(-np.clip(done - 0.05, 0.0, None) / 0.05))
    for sign, trouble in ((-1.0, "stays below the reference"), (1.0, PLATEAU)):
        planted = losses + sign * gap * np.where(done < 0.75, 1.0, 1.3)
        assert _trouble(losses, planted, 0.03, alike=True) == trouble
