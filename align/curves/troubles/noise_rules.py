"""Noise of a difference, distinguished from what a fault does: around 0, of both signs, and in many points.

Two trainings that see other batches, or other random numbers, jitter against each other from the beginning on. Two that
only round in other ways part later: rounding grows, as chaos makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded where they are first used

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.criteria.block_averages import centred_times
from align.curves.criteria.curve_shapes import noise_size, part_means
from align.curves.trouble_thresholds import (
    COURSE_PARTS,
    FINE_PARTS,
    FIRST_STEPS,
    JITTER_NOISES,
    LASTING_NOISE,
    MUCH_LARGER,
    NEXT_TO_NONE,
    NOISE_CORRELATION,
    NOISE_RULE_POINTS,
    POINTS_IN_FINE_PART,
    RARE_SIGN,
    ROUNDING_AT_FIRST,
    ROUNDING_GROWS,
    SIGN_CHANGES,
    SURE_ERRORS,
    UNLIKE_NOISE,
)

if TYPE_CHECKING:
    from align.curves.loss_log import Floats
    from align.curves.troubles.curve_evidence import CurveEvidence, FinitePoints


def other_noise(evidence: CurveEvidence) -> int | None:
    """The difference is noise around 0 from the beginning on. Runs of the reference have some of their own each."""
    return None if evidence.run_noise is not None or "drift" in evidence.failed else _is_noise(evidence.points)


def noise_of_other_size(evidence: CurveEvidence) -> int | None:
    """As above, and the noise of one side is `UNLIKE_NOISE` times that of the other; few points do not tell so well.

    The mean of noise that is larger than that of the runs leaves theirs, and drifts in that sense.
    """
    step = other_noise(evidence) if evidence.run_noise is None else _is_noise(evidence.points)
    if step is None:
        return None
    small, large = sorted(evidence.noises)
    return step if large >= UNLIKE_NOISE * (1.0 + SURE_ERRORS / len(evidence.points.steps) ** 0.5) * small else None


def rounding_that_grows(evidence: CurveEvidence) -> int | None:
    """The difference is around 0 all the time, begins as rounding and grows by and by: as the paths of chaos part.

    A fault may hide behind it; only other runs of the reference can tell that they part as far.
    """
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < FINE_PARTS * POINTS_IN_FINE_PART or not np.any(points.reference):
        return None
    sizes = np.sqrt(part_means(points.difference**2, FINE_PARTS) / part_means(points.reference**2, FINE_PARTS))
    sizes = np.maximum(sizes, FLOAT32_ROUNDING)
    around_zero = (
        np.abs(part_means(points.difference, COURSE_PARTS))
        <= np.sqrt(part_means(points.difference**2, COURSE_PARTS)) / 2
    )
    smoothly = bool(np.all(sizes[1:] <= MUCH_LARGER * sizes[:-1])) and sizes.max() >= ROUNDING_GROWS * sizes[0]
    return evidence.parted_at if sizes[0] <= ROUNDING_AT_FIRST and smoothly and around_zero.all() else None


def is_jitter(evidence: CurveEvidence, difference: float) -> bool:
    """Tell whether an early difference is no larger than noise of the difference that is there from the beginning.

    The first steps have either sign then, unlike those after a fault that shows at once.
    """
    whole = evidence.points.difference
    if len(whole) < NOISE_RULE_POINTS:
        return False
    below = float(np.mean(whole[1 : 1 + FIRST_STEPS] < 0.0))
    if min(below, 1.0 - below) <= RARE_SIGN:
        return False
    deviation = _deviations(_noise(whole))
    return bool(
        deviation[0] >= deviation.max() / LASTING_NOISE
        and difference <= JITTER_NOISES * noise_size(whole[: len(whole) // COURSE_PARTS])
    )


def _is_noise(points: FinitePoints) -> int | None:
    """Tell from which step on the difference is noise around 0, if it is from the beginning on.

    No part has a mean of its own, or next to none, and the sign changes in both halves.
    """
    if len(points.steps) < NOISE_RULE_POINTS or _lies_in_few(points):
        return None
    difference = points.difference
    means, sizes = part_means(difference, COURSE_PARTS), part_means(np.abs(difference), COURSE_PARTS)
    noise = _noise(difference)
    deviation, worth = _deviations(noise), _worth(noise)
    errors = float(scipy.special.stdtrit(worth, float(scipy.special.ndtr(SURE_ERRORS))))
    sure = errors * deviation / worth**0.5
    changes = part_means(1.0 * (np.signbit(difference[1:]) != np.signbit(difference[:-1])), 2).min()
    around_zero = bool(np.all(np.abs(means) < np.maximum(sure, NEXT_TO_NONE * deviation)))
    lasting = changes >= SIGN_CHANGES and sizes[0] >= sizes.max() / LASTING_NOISE
    return int(points.steps[0]) if around_zero and lasting else None


def _lies_in_few(points: FinitePoints) -> bool:
    """Tell whether few points make the difference, also as a part of the loss, which noise may come down with."""
    lengths = np.diff(np.arange(COURSE_PARTS + 1) * len(points.steps) // COURSE_PARTS)
    levels = np.repeat(part_means(np.abs(points.reference), COURSE_PARTS), lengths)
    return all(
        float(np.sqrt(np.mean(noise**2))) > MUCH_LARGER * float(np.median(np.abs(noise)))
        for noise in (points.difference, points.difference / np.where(levels, levels, 1.0))
    )


def detrended(values: Floats) -> Floats:
    """Return what the values are off the straight line through them."""
    times = centred_times(len(values))
    off: Floats = values - values.mean() - times * (times @ values) / (times @ times)
    return off


def _noise(difference: Floats) -> Floats:
    """Return what each value is off the straight line through its part, of COURSE_PARTS of two points or more."""
    return np.concatenate(
        [detrended(part) for part in np.split(difference, np.arange(1, COURSE_PARTS) * len(difference) // COURSE_PARTS)]
    )


def _deviations(noise: Floats) -> Floats:
    """Return the standard deviation of the noise in each of the `COURSE_PARTS` parts."""
    deviations: Floats = np.sqrt(part_means(noise**2, COURSE_PARTS))
    return deviations


def _worth(noise: Floats) -> float:
    """Return how many independent values a part is worth, less the two that its line takes; at least 1.

    The correlation of neighbours is that of an autoregressive process, without the bias of taking a line out.
    """
    length, whole = len(noise) / COURSE_PARTS, float(np.vdot(noise, noise))
    correlation = float(np.vdot(noise[1:], noise[:-1])) / whole if whole else 0.0
    correlation = min(max((correlation * length + 2.0) / (length - 4.0), 0.0), NOISE_CORRELATION)
    return max(length * (1.0 - correlation) / (1.0 + correlation) - 2.0, 1.0)
