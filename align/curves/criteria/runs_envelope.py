"""Several runs of the reference, and what one more run of the same kind may look like at each step.

Each step gets a prediction interval about the mean of the runs: mean +- t s sqrt(1 + 1/runs). The runs are few, so
their variance is pooled over the steps around: it has to change slowly, and all steps in the window count together
for as many degrees of freedom as they are independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from align.curves.axis.place_on_axis import common_places, pair_curves
from align.curves.criteria.block_averages import average_blocks
from align.curves.criteria_thresholds import FEWEST_RUNS, POOLED_STEPS, PREDICTION_COVERAGE
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
        raise UsageError("one run of the reference shows no spread", "give two runs or more; three tell much more")
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
    half_width[finite] = stdtrit(freedom, (1 + PREDICTION_COVERAGE) / 2) * spread * sqrt(1 + 1 / len(labels))
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
        hint = "name each run once; runs that are equal by design need no envelope: compare with one of them"
        raise UsageError(f"reference runs are equal: {'; '.join(equal)}", hint)
    if any(not np.array_equal(candidates[0], other, equal_nan=True) for other in candidates[1:]):
        raise UsageError("the reference runs print means over unlike spans of steps", "log all of them the same way")


def _notes(pairs: list[PairedCurves], usable: Booleans) -> Iterator[str]:
    if len(pairs) == FEWEST_RUNS:
        yield sentence("loss_note.two_runs")
    if any(len(pair.steps) > len(usable) for pair in pairs):
        lone = len(reduce(np.union1d, (pair.steps for pair in pairs))) - len(usable)
        yield sentence("loss_note.not_in_all_runs", count=lone)
    broken = int(np.count_nonzero(~usable))
    if broken:
        yield sentence("loss_note.run_not_finite", count=broken)
