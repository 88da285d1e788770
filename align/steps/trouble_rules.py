"""How each class of trouble shows in the values of two curves: one function a class, with its thresholds.

A rule returns the global step at which its trouble shows, None if it does not; one that needs many points says no with
fewer. The thresholds keep the classes apart on clear cases: the tests plant each trouble in curves of many kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, stdtrit

from align.steps.blocks import centred_times
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
# A mean of that part of the noise is small beside it, however sure it is.
NEXT_TO_NONE = 0.25
# Noise is there from the beginning on if its first part is not smaller by more; few values are off by more times it.
LASTING, OUTLYING = 4.0, 4.0
# Noise changes its sign at so many of its points; one of the signs is as rare in the first steps by 4 chances in 1000.
OFTEN, FIRST_STEPS, ONE_SIDED = 1 / 6, 16, 1 / 8
MOST_CORRELATED = 0.8
UNLIKE_NOISE = 1.3
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
    jumps = second >= ONSET * max(first, rounding) and not is_jitter(evidence, float(second))
    return 2 if pairs.steps[outside[0]] <= EARLY and jumps else None


def first_differs(evidence: CurveEvidence) -> int | None:
    """The first loss is outside, and by more than the losses jitter against each other from the beginning on."""
    if not evidence.of_loss or "first" not in evidence.failed:
        return None
    pairs = evidence.pairs
    return None if is_jitter(evidence, abs(float(pairs.candidate[0] - pairs.reference[0]))) else 1


def is_jitter(evidence: CurveEvidence, difference: float) -> bool:
    """Tell whether an early difference is no larger than noise of the difference that is there from the beginning.

    The first steps have either sign then, unlike those after a fault that shows at once.
    """
    whole = evidence.points.difference
    if len(whole) < ENOUGH_FOR_NOISE:
        return False
    below = float(np.mean(whole[1 : 1 + FIRST_STEPS] < 0.0))
    if min(below, 1.0 - below) <= ONE_SIDED:
        return False
    deviation = _deviations(_noise(whole))
    return bool(
        deviation[0] >= deviation.max() / LASTING and difference <= OUTLYING * noise_size(whole[: len(whole) // PARTS])
    )


def other_noise(evidence: CurveEvidence) -> int | None:
    """The difference is noise around 0 from the beginning on. Runs of the reference have some of their own each."""
    return None if evidence.run_noise is not None or "drift" in evidence.failed else _is_noise(evidence.points)


def _is_noise(points: Finite) -> int | None:
    """Tell from which step on the difference is noise around 0, if it is from the beginning on.

    No part has a mean of its own, or next to none, and the sign changes in both halves.
    """
    if len(points.steps) < ENOUGH_FOR_NOISE or _lies_in_few(points):
        return None
    difference = points.difference
    means, sizes = part_means(difference, PARTS), part_means(np.abs(difference), PARTS)
    noise = _noise(difference)
    deviation, worth = _deviations(noise), _worth(noise)
    errors = float(stdtrit(worth, float(ndtr(SURE))))
    sure = errors * deviation / worth**0.5
    changes = part_means(1.0 * (np.signbit(difference[1:]) != np.signbit(difference[:-1])), 2).min()
    around_zero = bool(np.all(np.abs(means) < np.maximum(sure, NEXT_TO_NONE * deviation)))
    lasting = changes >= OFTEN and sizes[0] >= sizes.max() / LASTING
    return int(points.steps[0]) if around_zero and lasting else None


def _lies_in_few(points: Finite) -> bool:
    """Tell whether few points make the difference, also as a part of the loss, which noise may come down with."""
    lengths = np.diff(np.arange(PARTS + 1) * len(points.steps) // PARTS)
    levels = np.repeat(part_means(np.abs(points.reference), PARTS), lengths)
    return all(
        float(np.sqrt(np.mean(noise**2))) > MUCH * float(np.median(np.abs(noise)))
        for noise in (points.difference, points.difference / np.where(levels, levels, 1.0))
    )


def noise_of_other_size(evidence: CurveEvidence) -> int | None:
    """As above, and the noise of one side is `UNLIKE_NOISE` times that of the other; few points do not tell so well.

    The mean of noise that is larger than that of the runs leaves theirs, and drifts in that sense.
    """
    step = other_noise(evidence) if evidence.run_noise is None else _is_noise(evidence.points)
    if step is None:
        return None
    small, large = sorted(evidence.noises)
    return step if large >= UNLIKE_NOISE * (1.0 + SURE / len(evidence.points.steps) ** 0.5) * small else None


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


def differs_later(evidence: CurveEvidence) -> int | None:
    """Any criterion on values failed."""
    return None if evidence.failed <= {"first", "non-finite", "holes", "length"} else evidence.parted_at


def off_line(values: Floats) -> Floats:
    """Return what the values are off the straight line through them."""
    times = centred_times(len(values))
    off: Floats = values - values.mean() - times * (times @ values) / (times @ times)
    return off


def _noise(difference: Floats) -> Floats:
    """Return what each value is off the straight line through its part, of `PARTS` parts of two points or more."""
    return np.concatenate(
        [off_line(part) for part in np.split(difference, np.arange(1, PARTS) * len(difference) // PARTS)]
    )


def _deviations(noise: Floats) -> Floats:
    """Return the standard deviation of the noise in each of the `PARTS` parts."""
    deviations: Floats = np.sqrt(part_means(noise**2, PARTS))
    return deviations


def _worth(noise: Floats) -> float:
    """Return how many independent values a part is worth, less the two that its line takes; at least 1.

    The correlation of neighbours is that of an autoregressive process, without the bias of taking a line out.
    """
    length, whole = len(noise) / PARTS, float(np.vdot(noise, noise))
    correlation = float(np.vdot(noise[1:], noise[:-1])) / whole if whole else 0.0
    correlation = min(max((correlation * length + 2.0) / (length - 4.0), 0.0), MOST_CORRELATED)
    return max(length * (1.0 - correlation) / (1.0 + correlation) - 2.0, 1.0)


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
    return int(points.steps[_lead(evidence, first)]) if agreed else None


def _lead(evidence: CurveEvidence, first: int) -> int:
    """Go back from where an excursion leaves the noise of its curve over the points that lead to it.

    They are outside on the same side, and by much more than usual before.
    """
    points = evidence.points
    before = points.difference[:first] * np.sign(points.difference[first])
    apart = np.isin(points.steps[:first], evidence.pairs.steps[evidence.outside])
    usual = np.flatnonzero(~apart | (before < MUCH * np.median(np.abs(before)))) if first else before
    return int(usual[-1]) + 1 if len(usual) else 0
