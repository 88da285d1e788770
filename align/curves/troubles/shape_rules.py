"""How each class of trouble shows in the values of two curves: one function a class, with its thresholds.

A rule returns the global step at which its trouble shows, None if it does not; one that needs many points says no with
fewer. The thresholds keep the classes apart on clear cases: the tests plant each trouble in curves of many kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.trouble_thresholds import (
    CLEAR_DESCENT,
    COURSE_PARTS,
    COURSE_POINTS,
    EARLY_STEP,
    EXCURSIONS_SHARE,
    MUCH_LARGER,
    NO_DESCENT,
    SURE_ERRORS,
    UPDATE_JUMP,
)
from align.curves.troubles.noise_rules import is_jitter

if TYPE_CHECKING:
    from align.curves.troubles.curve_evidence import CurveEvidence


def parts_at_once(evidence: CurveEvidence) -> int | None:
    """The first update is wrong: the difference grows far from step 1 to 2, and an early point is outside.

    One batch may hardly feel a wrong update, so the second step itself can still be within its limit.
    """
    pairs, outside = evidence.pairs, evidence.outside
    if not evidence.of_loss or pairs.steps[:2].tolist() != [1, 2] or not len(outside) or outside[0] == 0:
        return None
    first, second = np.abs(pairs.candidate[:2] - pairs.reference[:2])
    rounding = FLOAT32_ROUNDING * abs(pairs.reference[0])
    jumps = second >= UPDATE_JUMP * max(first, rounding) and not is_jitter(evidence, float(second))
    return 2 if pairs.steps[outside[0]] <= EARLY_STEP and jumps else None


def first_differs(evidence: CurveEvidence) -> int | None:
    """The first loss is outside, and by more than the losses jitter against each other from the beginning on."""
    if not evidence.of_loss or "first" not in evidence.failed:
        return None
    pairs = evidence.pairs
    return None if is_jitter(evidence, abs(float(pairs.candidate[0] - pairs.reference[0]))) else 1


def stands_still(evidence: CurveEvidence) -> int | None:
    """The candidate's loss keeps all its digits, while the reference's goes down."""
    points = evidence.points
    rounding = FLOAT32_ROUNDING * float(np.abs(points.candidate).max(initial=0.0))
    if does_not_descend(evidence) is None or np.ptp(points.candidate) > rounding:
        return None
    return int(points.steps[0])


def does_not_descend(evidence: CurveEvidence) -> int | None:
    """The reference's loss goes down clearly, the candidate's hardly, and at no time much."""
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < COURSE_POINTS:
        return None
    left, right = evidence.courses
    goes_down = left.descent > max(SURE_ERRORS * left.uncertain, CLEAR_DESCENT * abs(left.start))
    flat = np.ptp(right.levels) <= 2 * NO_DESCENT * left.descent and abs(right.descent) <= NO_DESCENT * left.descent
    sure = right.uncertain <= NO_DESCENT * left.descent
    return int(points.steps[0]) if goes_down and flat and sure else None


def rises(evidence: CurveEvidence) -> int | None:
    """The candidate's loss goes up in the end, clearly and by a tenth of the reference's descent; that does not."""
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < 2 * COURSE_POINTS:
        return None
    left, right = evidence.courses
    clear = max(SURE_ERRORS * right.uncertain, abs(left.descent) / MUCH_LARGER, CLEAR_DESCENT * abs(right.levels.min()))
    if right.rise < clear or right.rise < 3.0 * left.rise or right.levels[-1] < right.levels[-2]:
        return None
    lowest = int(np.argmin(right.levels))
    return int(points.steps[min((lowest + 1) * len(points.steps) // COURSE_PARTS, len(points.steps) - 1)])


def explodes(evidence: CurveEvidence) -> int | None:
    """One side goes up and stays there, and most of the difference lies in that."""
    return _own_excursion(evidence, returns=False)


def spikes(evidence: CurveEvidence) -> int | None:
    """One side goes up and comes back, and most of the difference lies in such spikes."""
    return _own_excursion(evidence, returns=True)


def differs_later(evidence: CurveEvidence) -> int | None:
    """Any criterion on values failed."""
    return None if evidence.failed <= {"first", "non-finite", "holes", "length"} else evidence.parted_at


def _own_excursion(evidence: CurveEvidence, *, returns: bool) -> int | None:
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < COURSE_POINTS:
        return None
    sizes = np.abs(points.difference)
    inside = np.zeros(len(sizes), np.bool_)
    starts = []
    sides = points.reference, points.candidate
    for one, other, excursions in zip(sides, sides[::-1], evidence.excursions, strict=True):
        for excursion in excursions:
            stretch = slice(excursion.start, excursion.end)
            if excursion.returns is returns and np.max(other[stretch]) < one[excursion.peak] - excursion.height / 2:
                inside[stretch] = True
                starts.append(excursion.start)
    if not starts or sizes[inside].sum() < EXCURSIONS_SHARE * sizes.sum():
        return None
    first = min(starts)
    agreed = np.mean(sizes[:first]) <= np.mean(sizes[inside]) / MUCH_LARGER
    return int(points.steps[_lead(evidence, first)]) if agreed else None


def _lead(evidence: CurveEvidence, first: int) -> int:
    """Go back from where an excursion leaves the noise of its curve over the points that lead to it.

    They are outside on the same side, and by much more than usual before.
    """
    points = evidence.points
    before = points.difference[:first] * np.sign(points.difference[first])
    apart = np.isin(points.steps[:first], evidence.pairs.steps[evidence.outside])
    usual = np.flatnonzero(~apart | (before < MUCH_LARGER * np.median(np.abs(before)))) if first else before
    return int(usual[-1]) + 1 if len(usual) else 0
