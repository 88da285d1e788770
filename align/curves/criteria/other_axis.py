"""Two curves that agree on another axis: with one of them counted a step later, or several steps taken as one.

A log that counts from 0 and has lost its first line looks like one that counts from 1, and all its losses then stand
one step too early. With twice the batch size, or with gradients accumulated over two batches, a training takes half as
many steps for the same samples. Nothing is moved or regrouped here: what agrees is reported, with the option for it.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.group_steps import group_steps
from align.curves.axis.place_on_axis import common_places, pair_curves, steps_until
from align.curves.criteria.loss_commands import without_option
from align.curves.criteria_thresholds import (
    COURSE_ONCE,
    EXPLAINING_POINTS,
    LEFT_UNEXPLAINED,
    MOST_STEPS_AS_ONE,
    SHIFTED_MEANS,
    UNEXPLAINED_BY_RATIO,
    UNEXPLAINED_COURSE,
)
from align.curves.loss_log import RAW
from align.curves.metric_names import is_loss
from align.curves.presets import GUIDE, limits_for
from align.errors import GroupedStepsError, UnlikeCurvesError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.curve_result import Side
    from align.curves.loss_log import Curve, Floats, PairedCurves
    from align.curves.presets import Preset


class Shift(NamedTuple):
    """The side whose steps should count one later; `option` would do it, "" where there is none, and `why` says more.

    `behind`: both sides agree at step 1, so it is the other one that is an update behind.
    """

    side: Side
    option: str
    why: str
    behind: bool
    points: int
    before: float
    after: float

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        facts = {"side": self.side, "points": self.points, "after": self.after, "before": self.before}
        return sentence("loss_note.shift", **facts, why=self.why)


class Ratio(NamedTuple):
    """How many steps of the reference and of the candidate see the same samples, and how the curves then agree."""

    reference: int
    candidate: int
    points: int
    before: float
    after: float

    @property
    def option(self) -> str:
        """The option that says so."""
        return f"--steps-per {self.reference}:{self.candidate}"

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        return sentence("loss_note.ratio", option=self.option, points=self.points, after=self.after, before=self.before)


class OtherAxis(NamedTuple):
    """The other axes on which two curves agree: with a side counted one later, or with several steps as one."""

    shift: Shift | None = None
    ratio: Ratio | None = None


def find_other_axis(
    reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE, *, whole: bool = True
) -> OtherAxis:
    """Find on which other axis two curves agree clearly; `whole` asks for their numbers of steps, too."""
    ratio = find_ratio(reference, candidate, pairs, preset) if whole else None
    return OtherAxis(find_shift(reference, candidate, pairs, preset), ratio)


def find_common_base(reference: Curve, candidate: Curve) -> str:
    """Return `--reference-base 0` or `--candidate-base 0` if most steps meet so, "" if not.

    A log that prints steps 9, 19, 29 ... may count from 0: only where nothing showed its first step is that looked for.
    """
    for side, moved, other in (("reference", reference, candidate), ("candidate", candidate, reference)):
        common = len(common_places(moved.steps + 1, other.steps)[0])
        if moved.base_guessed and 2 * common >= min(len(moved.steps), len(other.steps)) > 0:
            return f"--{side}-base 0"
    return ""


def find_shift(reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE) -> Shift | None:
    """Find the side that should count one later, if that makes the curves agree clearly and at enough steps.

    The limit is that of the preset on a single point, widened by what rounding can add.
    """
    if reference.axis != "step" or not len(pairs.steps):
        return None
    if not reference.window == candidate.window == RAW:
        return _find_shifted_means(pairs)
    scale, before = _mean(pairs.reference), _mean_difference(pairs.candidate, pairs.reference)
    if not before:
        return None
    allowed = min(_allowed(reference.metric, pairs, scale, preset), LEFT_UNEXPLAINED * before)
    last = int(pairs.steps[-1])
    ways: tuple[tuple[Side, Curve, Curve], ...] = (
        ("candidate", candidate, reference),
        ("reference", reference, candidate),
    )
    for side, moved, other in ways:
        points, after = _one_later(moved, other, last)
        if points >= max(EXPLAINING_POINTS, len(pairs.steps) - 2) and (after < allowed or after == 0.0):
            behind = _agree_first(moved, other, allowed)
            return Shift(side, *_explain(side, moved, other, behind=behind), behind, points, before, after)
    return None


def _find_shifted_means(pairs: PairedCurves) -> Shift | None:
    """Find the side whose means are taken a step later than they say, by all of their differences added up.

    Two means of k steps that lie a step apart differ by (loss after the last step - first loss) / k. Added up over
    means side by side that is the loss on the next step, less a constant: the course of the loss once, whatever k is,
    with the noise of single steps. Nothing else adds up so; what drifts adds up to more.
    """
    steps, levels = pairs.steps, (pairs.reference + pairs.candidate) / 2.0
    with np.errstate(over="ignore", invalid="ignore"):
        difference = pairs.candidate - pairs.reference
    apart = np.diff(steps)
    if len(steps) < SHIFTED_MEANS or apart.min() != apart.max() or not np.isfinite(difference).all():
        return None
    before = _mean(difference)
    if not before > float(np.mean(pairs.widening)):
        return None
    summed = np.cumsum(difference[:-1]) * int(apart[0])
    slope, left = _along(summed - summed.mean(), (levels[1:] + levels[:-1]) / 2.0)
    most_left = UNEXPLAINED_COURSE * _mean(summed - summed.mean())
    if not COURSE_ONCE[0] <= abs(slope) <= COURSE_ONCE[1] or not _mean(left) <= most_left:
        return None
    side: Side = "candidate" if slope > 0 else "reference"
    why = sentence("shift_reason.means_apart")
    return Shift(side, "", why, False, len(steps), before, _mean(np.diff(left)) / int(apart[0]))


def _along(values: Floats, course: Floats) -> tuple[float, Floats]:
    """Return how many times a course is in the values, by least squares, and what is left of them."""
    course = course - course.mean()
    spread = float(course @ course)
    times = float(course @ values) / spread if spread else 0.0
    return times, values - times * course


def _agree_first(moved: Curve, other: Curve, allowed: float) -> bool:
    """Tell whether both curves begin alike at step 1, and go on from there: then no first line is lost."""
    if not len(moved.steps) > 1 or moved.steps[:2].tolist() != [1, 2] or other.steps[0] != 1:
        return False
    if not np.isfinite([*moved.values[:2], other.values[0]]).all():
        return False
    start, going_on = abs(moved.values[0] - other.values[0]), abs(moved.values[1] - moved.values[0])
    return bool(start <= allowed < going_on)


def _explain(side: Side, moved: Curve, other: Curve, *, behind: bool) -> tuple[str, str]:
    """Return the option that would make the curves agree, "" if there is none, and what may be behind it."""
    other_side = "reference" if side == "candidate" else "candidate"
    if not is_loss(moved.metric):
        why = sentence("shift_reason.metric_ahead", metric=moved.metric, side=side)
        return (f"--{side}-base 0" if moved.base_guessed else ""), why
    if behind:
        return "", sentence("shift_reason.update_behind", side=other_side)
    if other.base_given == 0:
        option = f"--{other_side}-base"
        return without_option(option), sentence("shift_reason.base_given", option=option)
    if moved.base_guessed:
        option = f"--{side}-base 0"
        return option, sentence("shift_reason.counts_from_zero", option=option)
    return "", sentence("shift_reason.told_late")


def _one_later(moved: Curve, other: Curve, last: int) -> tuple[int, float]:
    """Return the number of common steps, up to `last`, and their mean difference if `moved` is counted one later."""
    at_moved, at_other = common_places(moved.steps + 1, steps_until(other.steps, last))
    return len(at_moved), _mean_difference(moved.values[at_moved], other.values[at_other])


def find_ratio(reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE) -> Ratio | None:
    """Find how many times as many steps one curve has, if the curves agree so, within the limits, and else do not."""
    if reference.axis != "step" or not len(pairs.steps):
        return None
    ends = int(reference.steps[-1]), int(candidate.steps[-1])
    times = max(ends) // min(ends)
    if not 1 < times <= MOST_STEPS_AS_ONE or max(ends) - times * min(ends) >= times:
        return None
    sizes = (times, 1) if ends[0] > ends[1] else (1, times)
    try:
        grouped = pair_curves(group_steps(reference, sizes[0]), group_steps(candidate, sizes[1]))
    except (GroupedStepsError, UnlikeCurvesError):
        return None
    if len(grouped.steps) < EXPLAINING_POINTS:
        return None
    before, after = _difference_of_all(pairs), _difference_of_all(grouped)
    scale = float(np.mean(np.abs(grouped.reference)))
    if not after <= min(_allowed(reference.metric, grouped, scale, preset), UNEXPLAINED_BY_RATIO * before):
        return None
    # What was taken together already counts as well.
    left, right = sizes[0] * reference.grouped, sizes[1] * candidate.grouped
    common = gcd(left, right)
    return Ratio(left // common, right // common, len(grouped.steps), before, after)


def _allowed(metric: str, pairs: PairedCurves, scale: float, preset: Preset) -> float:
    """Return the limit of the preset on a single point of such a size, widened by what rounding can add."""
    absolute, relative = limits_for(metric, scale, preset).of_each()
    return max(absolute, relative * scale) + float(np.mean(pairs.widening))


def _difference_of_all(pairs: PairedCurves) -> float:
    """Return the mean size of the difference, NaN where a side is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.mean(np.abs(pairs.candidate - pairs.reference)))


def _mean_difference(one: Floats, other: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return _mean(one - other)


def _mean(values: Floats) -> float:
    """Return the mean size of what is finite, infinity for nothing."""
    sizes = np.abs(values[np.isfinite(values)])
    with np.errstate(over="ignore"):
        return float(np.mean(sizes)) if len(sizes) else float("inf")
