"""How a difference between two losses goes on: it stays, it grows, or the candidate only takes longer for the same way.

What a growing difference comes from tells more than its size. If the candidate stands still while the reference comes
down, it has stopped; if the difference grows along a line, whatever the reference does, it drifts; and if every level
of the reference is reached, a fixed number of times later, the candidate is slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.criteria.curve_shapes import noise_size, part_means
from align.curves.criteria_thresholds import LEFT_UNEXPLAINED
from align.curves.trouble_thresholds import (
    COURSE_PARTS,
    COURSE_POINTS,
    DRIFT_GROWTH,
    FINE_PARTS,
    GAP_PARTS,
    GAP_SHARE,
    KEPT_SIGN,
    NOISE_RULE_POINTS,
    POINTS_NEAR,
    SLOWER_BINS,
    SLOWER_TIMES,
    STILL_GROWTH,
    SUDDEN_GROWTH,
    SURE_ERRORS,
)
from align.curves.troubles.noise_rules import detrended
from align.words.catalogue import keys_of

if TYPE_CHECKING:
    from align.curves.loss_log import Floats
    from align.curves.troubles.curve_evidence import CurveEvidence, FinitePoints

# How many times longer a slower candidate takes.
SLOWER = 1.0 + np.geomspace(*SLOWER_TIMES)
# Tests that find a difference that moves.
SLOPES = {"drift_test.slope", "drift_test.slope_against_runs"}


def is_multiple(evidence: CurveEvidence) -> int | None:
    """One loss is the other times one factor, all along."""
    differs = evidence.of_loss and evidence.failed & {"first", "mean", "every", "share"}
    return int(evidence.points.steps[0]) if differs and evidence.factor is not None else None


def converges_slower(evidence: CurveEvidence) -> int | None:
    """The candidate comes down the reference's way, a fixed number of times slower: that explains the difference.

    Of a straight line a drift along a line cannot be distinguished from that.
    """
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < NOISE_RULE_POINTS:
        return None
    gaps = part_means(points.difference, FINE_PARTS)
    uncertain = noise_size(points.difference) * (FINE_PARTS / len(points.steps)) ** 0.5
    if gaps.max() < SURE_ERRORS * uncertain:
        return None
    bins = min(SLOWER_BINS, len(points.steps))
    steps, left, right = (
        part_means(column, bins) for column in (points.steps * 1.0, points.reference, points.candidate)
    )
    left_over = right - np.stack([np.interp(steps / times, steps, left) for times in SLOWER])
    unexplained = float(np.abs(part_means(left_over, FINE_PARTS)).max(axis=1).min())
    return evidence.parted_at if unexplained <= LEFT_UNEXPLAINED * gaps.max() + 2.0 * uncertain else None


def drifts(evidence: CurveEvidence) -> int | None:
    """A test finds a drift, or the difference keeps its sign in the second half and grows by `DRIFT_GROWTH` there."""
    points = evidence.points
    if "drift" in evidence.failed:
        return evidence.parted_at
    if len(points.steps) < COURSE_POINTS or not _keeps_sign(points.difference) or _sets_in_at_once(evidence, points):
        return None
    first, second = np.abs(part_means(points.difference, 2))
    return evidence.parted_at if second >= DRIFT_GROWTH * first else None


def stays_above(evidence: CurveEvidence) -> int | None:
    """The candidate stays above: the difference has stopped growing, or only grows as the reference goes on."""
    return _stays(evidence, 1.0)


def stays_below(evidence: CurveEvidence) -> int | None:
    """As above, with the candidate below the reference."""
    return _stays(evidence, -1.0)


def _stays(evidence: CurveEvidence, sign: float) -> int | None:
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < 2 * COURSE_POINTS:
        return None
    if _is_apart_from_runs(evidence):
        return evidence.parted_at if sign * np.mean(points.difference) > 0 else None
    if not _keeps_sign(points.difference) or _sets_in_at_once(evidence, points):
        return None
    gaps = sign * part_means(points.difference, 4)
    if gaps[-1] <= 0:
        return None
    still = gaps[3] <= STILL_GROWTH * gaps[2] or gaps[2:].sum() <= gaps[:2].sum()
    return evidence.parted_at if still or (sign > 0 and _has_stopped(points)) else None


def _is_apart_from_runs(evidence: CurveEvidence) -> bool:
    """Tell whether the candidate keeps apart from the runs of the reference on average, and does not move away."""
    moves = any(test.drifts for test in evidence.drift if not SLOPES.isdisjoint(keys_of(test.name)))
    return evidence.run_noise is not None and "drift" in evidence.failed and not moves


def _has_stopped(points: FinitePoints) -> bool:
    """Tell whether the candidate stands still since the gap is there: that fits well, or better than a line of gaps."""
    gaps, levels = part_means(points.difference, FINE_PARTS), part_means(points.candidate, FINE_PARTS)
    missing = np.flatnonzero(gaps < GAP_SHARE * gaps[-2:].mean())
    since = int(missing[-1]) + 1 if len(missing) else 0
    gaps, levels = gaps[since:], levels[since:]
    if len(gaps) < GAP_PARTS:
        return False
    still, grown = float(np.std(levels)), float(np.std(gaps))
    return still <= grown / 2 and still <= max(float(np.std(detrended(gaps))), LEFT_UNEXPLAINED * grown)


def _keeps_sign(difference: Floats) -> bool:
    """Tell whether the difference keeps to one side in its second half: point by point, or in each part and surely."""
    second = difference[len(difference) // 2 :]
    if max(np.mean(second > 0), np.mean(second < 0)) >= KEPT_SIGN:
        return True
    if len(second) < NOISE_RULE_POINTS / 2:
        return False
    means = part_means(second, COURSE_PARTS // 2)
    sure = SURE_ERRORS * noise_size(second) / len(second) ** 0.5
    return bool(np.all(means > 0) or np.all(means < 0)) and abs(float(np.mean(second))) >= sure


def _sets_in_at_once(evidence: CurveEvidence, points: FinitePoints) -> bool:
    """Tell whether the difference jumps where the curves part, after step 2, to half or more of all that it gets to.

    Whatever the jitter: a difference that grows is as large right before it leaves its limit as right after.
    """
    at, sizes = int(np.searchsorted(points.steps, evidence.parted_at)), np.abs(points.difference)
    if not 1 < at < len(sizes):
        return False
    before, after = np.median(sizes[max(0, at - POINTS_NEAR) : at]), np.median(sizes[at : at + POINTS_NEAR])
    before = max(before, FLOAT32_ROUNDING * abs(points.reference[0]))
    level = part_means(sizes[at:], min(FINE_PARTS, len(sizes) - at)).max()
    return bool(after >= SUDDEN_GROWTH * before and after >= level / 2)
