"""A candidate judged as one more run of the reference: points outside the envelope, and drift.

Runs that start from other seeds can keep apart for as long as they last, and no number of steps makes up for few
runs. So for drift each run gives one figure, its mean or its slope, whatever is alike inside it; only how many points
are outside is counted by steps.
"""

from __future__ import annotations

from math import ceil, copysign, inf, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtrik, stdtr

from align.curves.criteria.block_averages import centred_times
from align.curves.criteria_thresholds import ALLOWED_OUTSIDE, FALSE_ALARM_RATE, PREDICTION_COVERAGE
from align.curves.curve_result import Criterion, DriftTest
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.criteria.runs_envelope import Envelope
    from align.curves.loss_log import Booleans, Floats


def judge_share(envelope: Envelope, within: Booleans) -> Criterion | None:
    """Judge how many of the points, shape (points,), are outside the envelope; None if they are worth too few to tell.

    A binomial test against `ALLOWED_OUTSIDE` at `FALSE_ALARM_RATE`, over as many points as are
    worth an independent one.
    """
    independent = max(1, int(len(within) / envelope.correlated))
    most = ceil(bdtrik(1 - FALSE_ALARM_RATE, independent, ALLOWED_OUTSIDE))
    if most >= independent:
        return None
    share, bound = float(np.mean(~within)), (most + 1) / independent
    source = sentence(
        "loss_source.envelope",
        coverage=PREDICTION_COVERAGE,
        runs=len(envelope.labels),
        allowed=ALLOWED_OUTSIDE,
        level=FALSE_ALARM_RATE,
        points=independent,
    )
    return Criterion(sentence("loss_criterion.share"), share, bound, share < bound, source)


def drift_against_runs(envelope: Envelope, difference: Floats) -> tuple[DriftTest, ...]:
    """Test whether the mean and the slope of the candidate are those of one more run; () without points.

    `difference` is candidate - mean of the runs, shape (steps,). The t test for one more observation: exact for any
    correlation along the steps, if means and slopes of runs are normally distributed. Each is held to half of
    `FALSE_ALARM_RATE`.
    """
    finite = np.isfinite(difference) & np.isfinite(envelope.half_width)
    known, runs = difference[finite], envelope.deviations[:, finite]
    if not len(known):
        return ()
    scale = max(float(np.abs(known).max()), float(np.abs(runs).max())) or 1.0
    known, runs, times = known / scale, runs / scale, centred_times(len(known))
    change = scale * float(times @ known) / max(float(times @ times), 1.0) * len(known)
    return tuple(
        _one_more_run(sentence(name), sentence(alike, count=len(runs)), runs @ weights, float(known @ weights), change)
        for name, alike, weights in (
            ("drift_test.mean_against_runs", "drift_test.means_alike", np.ones(len(known))),
            ("drift_test.slope_against_runs", "drift_test.slopes_alike", times),
        )
        if weights.any()
    )


def _one_more_run(name: str, assumption: str, of_runs: Floats, of_candidate: float, change: float) -> DriftTest:
    """Test one figure of the candidate against those of the runs; both are differences from the mean of the runs."""
    count = len(of_runs)
    spread = sqrt(float(of_runs @ of_runs) / (count - 1) * (1 + 1 / count))
    statistic = of_candidate / spread if spread else copysign(inf, of_candidate) if of_candidate else 0.0
    p_value = 2.0 * float(stdtr(count - 1, -abs(statistic)))
    return DriftTest(name, statistic, p_value, FALSE_ALARM_RATE / 2, p_value < FALSE_ALARM_RATE / 2, change, assumption)
