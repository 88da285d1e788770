"""Several runs of the reference, and what one more run of the same kind may look like at each step.

Each step gets a prediction interval about the mean of the runs: mean +- t s sqrt(1 + 1/runs). The runs are few, so
their variance is pooled over the steps around: it has to change slowly, and all steps in the window count together
for as many degrees of freedom as they are independent.

Runs that start from other seeds can keep apart for as long as they last, and no number of steps makes up for few
runs. So for drift each run gives one figure, its mean or its slope, whatever is alike inside it; only how many points
are outside is counted by steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import ceil, copysign, inf, sqrt
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded where they are first used

from align.curves.axis.place_on_axis import common_places, pair_curves
from align.curves.criteria.block_averages import average_blocks, centred_times
from align.curves.criteria_thresholds import (
    ALLOWED_OUTSIDE,
    FALSE_ALARM_RATE,
    FEWEST_RUNS,
    POOLED_STEPS,
    PREDICTION_COVERAGE,
)
from align.curves.curve_result import Criterion, DriftTest
from align.curves.loss_log import PairedCurves
from align.errors import UsageError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.loss_log import Booleans, Curve, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """What the runs tell at the steps that all of them and the candidate have.

    `half_width`, shape (steps,), is half of the prediction interval in units of the metric, NaN where the runs are not
    finite. `deviations`, shape (runs, steps), are the runs without their mean. `correlated` is how many neighbouring
    steps are worth one independent step, at least 1.
    """

    labels: tuple[str, ...]
    half_width: Floats
    deviations: Floats
    correlated: float


def pair_with_runs(
    runs: Sequence[Curve], candidate: Curve, last_step: int | None = None
) -> tuple[PairedCurves, Envelope]:
    """Pair the mean of the runs with the candidate at the steps that all have, and give the envelope there.

    Raises UsageError for fewer than two runs, equal ones, or ones that are logged in unlike ways; UnlikeCurvesError.
    """
    if len(runs) < FEWEST_RUNS:
        raise UsageError.of("log_usage.one_run")
    pairs = [pair_curves(run, candidate, last_step) for run in runs]
    steps = reduce(lambda left, right: left[common_places(left, right)[0]], (pair.steps for pair in pairs))
    at = [common_places(pair.steps, steps)[0] for pair in pairs]
    values, candidates, widenings = (
        np.stack([getattr(pair, name)[places] for pair, places in zip(pairs, at, strict=True)])
        for name in ("reference", "candidate", "widening")
    )
    _check_runs(runs, values, candidates)
    usable = np.isfinite(values).all(0) | ~np.isfinite(values).any(0)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = values.mean(0)
        deviations = (values - mean)[:, usable]
    joined = PairedCurves(
        steps=steps[usable],
        reference=mean[usable],
        candidate=candidates[0, usable],
        widening=widenings[:, usable].mean(0),
        unmatched_reference=max(pair.unmatched_reference + len(pair.steps) for pair in pairs) - int(usable.sum()),
        unmatched_candidate=pairs[0].unmatched_candidate + len(pairs[0].steps) - int(usable.sum()),
        notes=(*_notes(pairs, usable), *dict.fromkeys(note for pair in pairs for note in pair.notes)),
    )
    return joined, make_envelope(tuple(run.label for run in runs), deviations)


def make_envelope(labels: tuple[str, ...], deviations: Floats) -> Envelope:
    """Make the envelope of runs whose deviations from their mean are known, shape (runs, steps)."""
    finite = np.isfinite(deviations).all(0)
    known, more = deviations[:, finite], len(labels) - 1
    spread = np.sqrt(_moving_mean(np.sum(known * known, axis=0) / more))
    correlated = _correlated_steps(np.divide(known, spread, out=np.zeros_like(known), where=spread > 0.0))
    freedom = more * max(1.0, min(POOLED_STEPS, known.shape[1]) / correlated)
    half_width = np.full(len(finite), np.nan)
    half_width[finite] = (
        scipy.special.stdtrit(freedom, (1 + PREDICTION_COVERAGE) / 2) * spread * sqrt(1 + 1 / len(labels))
    )
    return Envelope(labels, half_width, deviations, correlated)


def _moving_mean(values: Floats) -> Floats:
    """Average over `POOLED_STEPS` steps around each, fewer at the ends; sums of their own, so that nothing cancels."""
    if not len(values):
        return values
    window = np.ones(min(POOLED_STEPS, len(values) - (len(values) + 1) % 2))
    around = [np.convolve(column, window, "same") for column in (values, np.ones(len(values)))]
    mean: Floats = around[0] / around[1]
    return mean


def _correlated_steps(standardised: Floats) -> float:
    """Return the integrated autocorrelation time in steps, about zero: a run that keeps apart is all alike."""
    variance = float(np.mean(standardised**2)) if standardised.size else 0.0
    if variance == 0.0:
        return 1.0
    count, blocks = standardised.shape[1], average_blocks(standardised, 2, detrend=False)
    if blocks.correlation > 0.0:
        return float(count)
    return float(np.clip(blocks.length * np.mean(blocks.means**2) / variance, 1.0, count))


def _check_runs(runs: Sequence[Curve], values: Floats, candidates: Floats) -> None:
    equal = [
        f"{runs[one].label} and {runs[other].label}"
        for one, other in combinations(range(len(runs)), 2)
        if values.shape[1] and np.array_equal(values[one], values[other], equal_nan=True)
    ]
    if equal:
        raise UsageError.of("log_usage.equal_runs", equal=equal)
    if any(not np.array_equal(candidates[0], other, equal_nan=True) for other in candidates[1:]):
        raise UsageError.of("log_usage.unlike_runs")


def _notes(pairs: list[PairedCurves], usable: Booleans) -> Iterator[str]:
    if len(pairs) == FEWEST_RUNS:
        yield sentence("loss_note.two_runs")
    if any(len(pair.steps) > len(usable) for pair in pairs):
        lone = len(reduce(np.union1d, (pair.steps for pair in pairs))) - len(usable)
        yield sentence("loss_note.not_in_all_runs", count=lone)
    broken = int(np.count_nonzero(~usable))
    if broken:
        yield sentence("loss_note.run_not_finite", count=broken)


def judge_share(envelope: Envelope, within: Booleans) -> Criterion | None:
    """Judge how many of the points, shape (points,), are outside the envelope; None if they are worth too few to tell.

    A binomial test against `ALLOWED_OUTSIDE` at `FALSE_ALARM_RATE`, over as many points as are
    worth an independent one.
    """
    independent = max(1, int(len(within) / envelope.correlated))
    most = ceil(scipy.special.bdtrik(1 - FALSE_ALARM_RATE, independent, ALLOWED_OUTSIDE))
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
    p_value = 2.0 * float(scipy.special.stdtr(count - 1, -abs(statistic)))
    return DriftTest(name, statistic, p_value, FALSE_ALARM_RATE / 2, p_value < FALSE_ALARM_RATE / 2, change, assumption)
