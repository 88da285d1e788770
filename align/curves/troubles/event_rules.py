"""Classes of trouble that more than losses tell: a point that is no number, skipped steps, learning rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.axis.skipped_steps import count_within, printed_steps, skipped_runs
from align.curves.criteria.curve_shapes import runs_of
from align.curves.thresholds import SKIPS_AT_THE_END
from align.curves.trouble_thresholds import (
    BOUNDARY_DENSITY,
    BOUNDARY_JUMP,
    BOUNDARY_POINTS,
    BOUNDARY_REACH,
    OVERFLOW_SHARE,
    OVERFLOW_STEPS,
    OVERFLOWS_IN_A_ROW,
    SCALE_FALLS,
    SCALE_POINTS,
)
from align.curves.troubles.curve_events import find_boundaries

if TYPE_CHECKING:
    from align.curves.curve_result import OtherMetric
    from align.curves.loss_log import Curve, Skips
    from align.curves.troubles.curve_evidence import CurveEvidence, FinitePoints


def not_finite(evidence: CurveEvidence) -> int | None:
    """NaN or Inf on one side: at a common step, or as the last thing that the shorter log prints."""
    if "non-finite" in evidence.failed:
        return evidence.not_finite_at
    shorter = min(evidence.curves, key=lambda curve: int(curve.steps[-1]), default=None)
    if "length" not in evidence.failed or shorter is None or np.isfinite(shorter.values[-1]):
        return None
    starts, _ = runs_of(~np.isfinite(shorter.values))
    return int(shorter.steps[starts[-1]])


def gradients_not_finite(evidence: CurveEvidence) -> int | None:
    """The gradient norm of one side is NaN or Inf where the losses part, or a few points before or after it."""
    if not len(evidence.outside) or "first" in evidence.failed or not evidence.of_loss:
        return None
    steps, norms = evidence.pairs.steps, evidence.beside.grad_norm
    parted = int(np.searchsorted(steps, evidence.parted_at))
    for own, other in (norms, norms[::-1]):
        bad = own.steps[~np.isfinite(own.values)] if own is not None else steps[:0]
        if other is not None:
            bad = np.setdiff1d(bad, other.steps[~np.isfinite(other.values)], assume_unique=True)
        near = bad[np.abs(np.searchsorted(steps, bad) - parted) <= BOUNDARY_REACH]
        if len(near):
            return int(near[0])
    return None


def overflows(evidence: CurveEvidence) -> int | None:
    """One side skips steps to no end, often, or right before the curves part, or its loss scale keeps falling."""
    for one, other in (evidence.curves, evidence.curves[::-1]) if evidence.curves else ():
        if one.skips is not None:
            lacking = 0 if other.skips is None else int(other.skips.counts.sum())
            start = _persistent(one, one.skips)
            if start is not None and 2 * lacking < int(one.skips.counts.sum()):
                return start
            if (start := _right_before(evidence, one, other)) is not None:
                return start
    scales = evidence.beside.loss_scale
    for scale, beside in (scales, scales[::-1]):
        if scale is not None and (fall := _falls(scale)) is not None and (beside is None or _falls(beside) is None):
            return fall
    return None


def boundary(evidence: CurveEvidence) -> int | None:
    """The curves part within two steps of a change of the schedule, or once the learning rates do.

    Before it they agree: the difference jumps ten times there, and does not go back.
    """
    points = evidence.points
    differing = differing_rate(evidence)
    if not len(evidence.outside) or not evidence.of_loss or len(points.steps) < BOUNDARY_JUMP:
        return None
    from_step = None if differing is None else differing.first_divergent_step
    if from_step is not None and points.steps[1] < from_step <= evidence.parted_at + 1:
        return from_step
    changes = [rate.steps[find_boundaries(rate)] for rate in evidence.beside.lr if rate is not None]
    steps = np.unique(np.concatenate([np.zeros(0, np.int64), *changes]))
    steps = steps[steps > points.steps[1]]
    if len(steps) * BOUNDARY_REACH > BOUNDARY_DENSITY * (points.steps[-1] - points.steps[0]):
        return None
    return next((step for step in steps.tolist() if _jumps_at(points, step, evidence.parted_at)), None)


def differing_rate(evidence: CurveEvidence) -> OtherMetric | None:
    """Return the comparison of the learning rates if they differ somewhere."""
    rates = (one for one in evidence.beside.others if one.metric == "lr")
    return next((one for one in rates if one.within < one.compared), None)


def _persistent(curve: Curve, skips: Skips) -> int | None:
    """Return where a run of skipped steps starts that is long or lasts to the end, or the first of many."""
    runs, steps = skipped_runs(curve), printed_steps(curve)
    passed = len(steps) * int((skips.ends - skips.starts).max())
    if passed >= OVERFLOW_STEPS and int(skips.counts.sum()) >= OVERFLOW_SHARE * passed:
        return int(runs.first[0])
    lasting = (runs.counts >= OVERFLOWS_IN_A_ROW) | ((runs.counts >= SKIPS_AT_THE_END) & (runs.last == steps[-1]))
    lasting &= runs.whole
    return int(runs.first[lasting][0]) if lasting.any() else None


def _right_before(evidence: CurveEvidence, one: Curve, other: Curve) -> int | None:
    """Return where steps that only one side skipped begin, if the curves part there or soon after."""
    if not len(evidence.outside):
        return None
    runs, steps, parted = skipped_runs(one), evidence.pairs.steps, evidence.parted_at
    lone = runs.counts > count_within(other.skips, runs.first - 1, runs.last)
    since = np.searchsorted(steps, parted) - np.searchsorted(steps, runs.last)
    before = lone & (runs.first < parted) & (since <= BOUNDARY_REACH)
    return int(runs.first[before][0]) if before.any() else None


def _falls(scale: Curve) -> int | None:
    """Return the middle of a log in whose second half the loss scale still falls, by `SCALE_FALLS` or more."""
    middle = len(scale.values) // 2
    if len(scale.values) < SCALE_POINTS or not scale.values[-1] * SCALE_FALLS <= scale.values[middle]:
        return None
    return int(scale.steps[middle])


def _jumps_at(points: FinitePoints, step: int, parted: int) -> bool:
    """Tell whether the sizes of the difference jump at a step and stay; the loss may follow its rate a step later."""
    sizes, at = np.abs(points.difference), int(np.searchsorted(points.steps, step))
    before, after = sizes[max(0, at - BOUNDARY_POINTS) : max(at - 1, 0)], sizes[at + 2 : at + 2 + BOUNDARY_POINTS]
    if len(before) < BOUNDARY_REACH or len(after) < BOUNDARY_REACH or parted < step - 1:
        return False
    rounding = FLOAT32_ROUNDING * float(np.abs(points.reference).max())
    return bool(
        np.median(after[:BOUNDARY_REACH]) >= BOUNDARY_JUMP * max(before.max(), rounding) and after.min() > before.max()
    )
