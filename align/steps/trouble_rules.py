"""How each class of trouble shows in the values of two curves: one function a class, with its thresholds.

A rule returns the global step at which its trouble shows, None if it does not; one that needs many points says no with
fewer. The thresholds keep the classes apart on clear cases: the tests plant each trouble in curves of many kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.steps.curve_shapes import noise_size, part_means
from align.steps.loss_evidence import PARTS

if TYPE_CHECKING:
    from align.core.curves import Floats
    from align.steps.loss_evidence import CurveEvidence, Finite

# The first steps that an update can spoil, and how much more than rounding it has to do.
EARLY, ONSET = 5, 100.0
FLOAT32_ROUNDING = 1e-6
# Fewer points have no course, or no noise.
FEWEST, ENOUGH_FOR_NOISE = 8, 48
# A mean is told from another one by so many standard errors.
SURE = 5.0
MOST_CORRELATED = 0.8
UNLIKE_NOISE = 1.3
# A difference keeps its sign at so many of its points; it grows from half to half, or not from quarter to quarter.
KEPT_SIGN, GROWTH, STILL = 0.9, 1.5, 1.1
# What is much more, and the part of the whole difference that excursions have to make.
MUCH, MOST = 10.0, 0.6
# A descent of less than that part of the reference's is none, one of that part of a loss is clear.
NO_DESCENT, CLEAR = 1 / 7, 0.02


def parts_at_once(evidence: CurveEvidence) -> int | None:
    """The first update is wrong: the difference grows `ONSET` times from step 1 to 2, and an early point is outside.

    One batch may hardly feel a wrong update, so the second step itself can still be within its limit.
    """
    pairs, outside = evidence.pairs, evidence.outside
    if not evidence.of_loss or pairs.steps[:2].tolist() != [1, 2] or not len(outside) or outside[0] == 0:
        return None
    first, second = np.abs(pairs.candidate[:2] - pairs.reference[:2])
    rounding = FLOAT32_ROUNDING * abs(pairs.reference[0])
    return 2 if pairs.steps[outside[0]] <= EARLY and second >= ONSET * max(first, rounding) else None


def other_noise(evidence: CurveEvidence) -> int | None:
    """The difference is noise around 0 from the beginning on: no part of it has a mean of its own, signs change."""
    points = evidence.points
    if len(points.steps) < ENOUGH_FOR_NOISE:
        return None
    difference = points.difference
    means, sizes = part_means(difference, PARTS), part_means(np.abs(difference), PARTS)
    sure = SURE * np.sqrt(part_means(difference**2, PARTS) * PARTS * _alike(difference) / len(difference))
    changes = np.count_nonzero(np.signbit(difference[1:]) != np.signbit(difference[:-1]))
    around_zero = bool(np.all(np.abs(means) < sure)) and changes >= len(difference) / 6
    return int(points.steps[0]) if around_zero and sizes[0] >= sizes.max() / 4 else None


def noise_of_other_size(evidence: CurveEvidence) -> int | None:
    """As above, and the noise of one side is `UNLIKE_NOISE` times that of the other; few points do not tell so well."""
    step = other_noise(evidence)
    if step is None:
        return None
    points = evidence.points
    small, large = sorted((noise_size(points.reference), noise_size(points.candidate)))
    return step if large >= UNLIKE_NOISE * (1.0 + SURE / len(points.steps) ** 0.5) * small else None


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
    if not evidence.of_loss or len(points.steps) < FEWEST:
        return None
    left, right = evidence.courses
    goes_down = left.descent > max(SURE * left.uncertain, CLEAR * abs(left.start))
    flat = np.ptp(right.levels) <= 2 * NO_DESCENT * left.descent and abs(right.descent) <= NO_DESCENT * left.descent
    sure = right.uncertain <= NO_DESCENT * left.descent
    return int(points.steps[0]) if goes_down and flat and sure else None


def rises(evidence: CurveEvidence) -> int | None:
    """The candidate's loss goes up in the end, clearly and by a tenth of the reference's descent; that does not."""
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < 2 * FEWEST:
        return None
    left, right = evidence.courses
    clear = max(SURE * right.uncertain, abs(left.descent) / MUCH, CLEAR * abs(right.levels.min()))
    if right.rise < clear or right.rise < 3.0 * left.rise or right.levels[-1] < right.levels[-2]:
        return None
    lowest = int(np.argmin(right.levels))
    return int(points.steps[min((lowest + 1) * len(points.steps) // PARTS, len(points.steps) - 1)])


def explodes(evidence: CurveEvidence) -> int | None:
    """One side goes up and stays there, and most of the difference lies in that."""
    return _own_excursion(evidence, returns=False)


def spikes(evidence: CurveEvidence) -> int | None:
    """One side goes up and comes back, and most of the difference lies in such spikes."""
    return _own_excursion(evidence, returns=True)


def drifts(evidence: CurveEvidence) -> int | None:
    """The difference keeps its sign in the second half and is there larger than in the first by `GROWTH`."""
    points = evidence.points
    if "drift" in evidence.failed:
        return evidence.parted_at
    if len(points.steps) < FEWEST or not _keeps_sign(points.difference) or _sets_in_at_once(evidence, points):
        return None
    first, second = np.abs(part_means(points.difference, 2))
    return evidence.parted_at if second >= GROWTH * first else None


def stays_above(evidence: CurveEvidence) -> int | None:
    """The candidate stays above: the difference has stopped growing, or only grows as the reference goes on."""
    return _stays(evidence, 1.0)


def stays_below(evidence: CurveEvidence) -> int | None:
    """As above, with the candidate below the reference."""
    return _stays(evidence, -1.0)


def differs_later(evidence: CurveEvidence) -> int | None:
    """Any criterion on values failed."""
    return None if evidence.failed <= {"first", "non-finite", "holes", "length"} else evidence.parted_at


def _alike(noise: Floats) -> float:
    """Return how many neighbouring values count as one, from their correlation as an autoregressive process has it."""
    correlation = min(max(float(np.vdot(noise[1:], noise[:-1]) / np.vdot(noise, noise)), 0.0), MOST_CORRELATED)
    return (1.0 + correlation) / (1.0 - correlation)


def _own_excursion(evidence: CurveEvidence, *, returns: bool) -> int | None:
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < FEWEST:
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
    if not starts or sizes[inside].sum() < MOST * sizes.sum():
        return None
    first = min(starts)
    agreed = np.mean(sizes[:first]) <= np.mean(sizes[inside]) / MUCH
    return int(points.steps[first]) if agreed else None


def _keeps_sign(difference: Floats) -> bool:
    """Tell whether the difference keeps to one side in its second half: point by point, or in each part and surely."""
    second = difference[len(difference) // 2 :]
    if max(np.mean(second > 0), np.mean(second < 0)) >= KEPT_SIGN:
        return True
    if len(second) < ENOUGH_FOR_NOISE / 2:
        return False
    means = part_means(second, PARTS // 2)
    sure = SURE * noise_size(second) / len(second) ** 0.5
    return bool(np.all(means > 0) or np.all(means < 0)) and abs(float(np.mean(second))) >= sure


def _stays(evidence: CurveEvidence, sign: float) -> int | None:
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < 2 * FEWEST:
        return None
    if not _keeps_sign(points.difference) or _sets_in_at_once(evidence, points):
        return None
    gaps = sign * part_means(points.difference, 4)
    if gaps[-1] <= 0:
        return None
    left, right = (course.levels for course in evidence.courses)
    goes_on, stopped = left[-2] - left[-1], right[-2] - right[-1]
    flattened = sign > 0 and goes_on > np.ptp(left) / 50 and abs(stopped) < goes_on / 4
    return evidence.parted_at if gaps[3] <= STILL * gaps[2] or flattened else None


def _sets_in_at_once(evidence: CurveEvidence, points: Finite) -> bool:
    """Tell whether the difference is nothing before the first point outside, after step 2, and there what it stays."""
    at, sizes = int(np.searchsorted(points.steps, evidence.parted_at)), np.abs(points.difference)
    if not 1 < at < len(sizes):
        return False
    before = max(sizes[:at].max(), FLOAT32_ROUNDING * abs(points.reference[0]))
    return bool(sizes[at] >= ONSET * before and sizes[at] >= np.median(sizes[at:]) / 3)
