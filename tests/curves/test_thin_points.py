"""A million points come down to what can be looked at, and nothing that was named is lost."""

from __future__ import annotations

import numpy as np

from align.core.verdicts import Coverage, Outcome, Verdict
from align.curves.compare_losses import thin_points
from align.curves.judging_thresholds import MOST_POINTS
from align.curves.loss_log import Curve, CurveComparison, CurveEvent, CurvePoints


def _comparison(count: int, spike: int | None = None) -> CurveComparison:
    steps = np.arange(1, count + 1)
    values = np.random.default_rng(0).random(count)
    other = values.copy()
    if spike is not None:
        other[spike - 1] = 50.0
    points = CurvePoints(
        count, steps, values, other, other - values, np.full(count, 0.01), np.abs(other - values) < 0.01
    )
    curves = [Curve(label, "loss", steps, one, np.zeros(count)) for label, one in (("a", values), ("b", other))]
    verdict = Verdict(Outcome.ALIGNED, "", Coverage("steps", count))
    events = (CurveEvent("resumed", 77_777),)
    return CurveComparison("loss", "guide", *curves, points, (), 123_456, "", "", verdict, events=events)


def test_few_points_stay_as_they_are() -> None:
    comparison = _comparison(MOST_POINTS)
    assert thin_points(comparison).points is comparison.points
    assert thin_points(comparison).reference is comparison.reference


def test_many_points_keep_both_ends_the_extremes_and_what_was_named() -> None:
    thin = thin_points(_comparison(300_001, spike=200_000))
    assert len(thin.points.step) <= MOST_POINTS
    assert len(thin.candidate.steps) <= MOST_POINTS
    for steps in (thin.points.step.tolist(), thin.candidate.steps.tolist()):
        assert {1, 300_001, 200_000, 123_455, 123_456, 123_457, 77_777} <= set(steps)
        assert steps == sorted(set(steps))
    assert thin.points.count == 300_001
    assert thin.points.candidate.max() == 50.0
    assert thin.points.reference.min() == _comparison(300_001).points.reference.min()


def test_a_curve_that_lost_points_says_how_many() -> None:
    thin = thin_points(_comparison(300_001))
    left_out = 300_001 - len(thin.reference.steps)
    assert thin.reference.notes == (f"{left_out} of 300,001 points are left out of the result: the extremes are kept",)
