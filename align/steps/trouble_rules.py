"""How each class of trouble shows in the values of two curves: one function a class, with its thresholds.

A rule returns the global step at which its trouble shows, None if it does not. Levels are means of parts of a curve,
noise is what is left beside its running median; a rule that needs many points says no with fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.steps.curve_shapes import noise_size, part_means
from align.steps.loss_evidence import PARTS

if TYPE_CHECKING:
    from align.core.curves import Floats, Integers
    from align.steps.loss_evidence import CurveEvidence, Finite

EARLY = 5
ONSET = 100.0
FLOAT32_ROUNDING = 1e-6
FEWEST = 8
ENOUGH_FOR_NOISE = 48
SURE = 5.0
KEPT_SIGN = 0.9
GROWTH = 1.5
STILL = 1.1
MUCH = 10.0
MOST = 0.6
UNLIKE = 1.3
MOST_CORRELATED = 0.8


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
    """As above, and the noise of one side is `UNLIKE` times that of the other; few points do not tell so well."""
    step = other_noise(evidence)
    if step is None:
        return None
    points = evidence.points
    small, large = sorted((noise_size(points.reference), noise_size(points.candidate)))
    return step if large >= UNLIKE * (1.0 + SURE / len(points.steps) ** 0.5) * small else None


def stands_still(evidence: CurveEvidence) -> int | None:
    """The candidate's loss keeps all its digits, while the reference's goes down."""
    points = evidence.points
    rounding = FLOAT32_ROUNDING * float(np.abs(points.candidate).max(initial=0.0))
    if does_not_descend(evidence) is None or np.ptp(points.candidate) > rounding:
        return None
    return int(points.steps[0])


def does_not_descend(evidence: CurveEvidence) -> int | None:
    """The reference's loss goes down clearly, the candidate's by less than a seventh of that, at no time."""
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < FEWEST:
        return None
    left, right = evidence.courses
    goes_down = left.descent > max(SURE * left.uncertain, 0.02 * abs(left.start))
    flat = np.ptp(right.levels) <= left.descent / 4 and abs(right.descent) <= left.descent / 7
    sure = right.uncertain <= left.descent / 7
    return int(points.steps[0]) if goes_down and flat and sure else None


def rises(evidence: CurveEvidence) -> int | None:
    """The candidate's loss goes up in the end, clearly and by a tenth of the reference's descent; that does not."""
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < 2 * FEWEST:
        return None
    left, right = evidence.courses
    clear = max(SURE * right.uncertain, abs(left.descent) / MUCH, 0.02 * abs(right.levels.min()))
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
    sure = SURE * float(np.std(second - np.repeat(means, _lengths(len(second), PARTS // 2)))) / len(second) ** 0.5
    return abs(float(np.sum(np.sign(means)))) == len(means) and abs(float(np.mean(second))) >= sure


def _lengths(count: int, parts: int) -> Integers:
    lengths: Integers = np.diff(np.arange(parts + 1) * count // parts)
    return lengths


def _stays(evidence: CurveEvidence, sign: float) -> int | None:
    points = evidence.points
    if len(points.steps) < 2 * FEWEST or not _keeps_sign(points.difference) or _sets_in_at_once(evidence, points):
        return None
    gaps = sign * part_means(points.difference, 4)
    if gaps[-1] <= 0:
        return None
    left, right = (part_means(one, PARTS) for one in (points.reference, points.candidate))
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
