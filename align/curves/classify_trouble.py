"""The first class of trouble that applies to two curves, and what to run next as far as their logs allow it.

A learning rate that differs comes before all that it may have caused: it is known to be wrong, and cheap to look at.
A small difference of the first loss is as a rule the cause of what differs later: unless the first losses agree to
rounding, the forward pass comes next. Runs of the reference with other seeds never agree at first, so there that says
nothing.

The first class that applies is the answer, so the order of a table is that of the search: a curve with NaN says
nothing about drift. A new class is one more row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves import event_rules as events
from align.curves.curve_shapes import centred_times, noise_size, part_means
from align.curves.judging_thresholds import (
    ANOTHER_FACTOR,
    CLEAR_DESCENT,
    COURSE_PARTS,
    COURSE_POINTS,
    DRIFT_GROWTH,
    EARLY_STEP,
    EXCURSIONS_SHARE,
    FINE_PARTS,
    FIRST_STEPS,
    GAP_PARTS,
    GAP_SHARE,
    JITTER_NOISES,
    KEPT_SIGN,
    LASTING_NOISE,
    LEFT_UNEXPLAINED,
    MUCH_LARGER,
    NEXT_TO_NONE,
    NO_DESCENT,
    NOISE_CORRELATION,
    NOISE_RULE_POINTS,
    POINTS_IN_FINE_PART,
    POINTS_NEAR,
    RARE_SIGN,
    ROUNDING_AT_FIRST,
    ROUNDING_GROWS,
    SAME_FACTOR,
    SIGN_CHANGES,
    SLOWER_BINS,
    SLOWER_TIMES,
    STILL_GROWTH,
    SUDDEN_GROWTH,
    SURE_ERRORS,
    UNLIKE_NOISE,
    UPDATE_JUMP,
)
from align.curves.loss_log import same_metric
from align.curves.next_commands import NEXT, NEXT_OF_METRICS, RATES, forward_first, rates_differ
from align.curves.other_axis import compare_logs
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.curves.event_rules import CurveEvidence, FinitePoints
    from align.curves.loss_log import Floats, TroubleName


# How each class of trouble shows in the values of two curves: one function a class, with its thresholds.
#
# A rule returns the global step at which its trouble shows, None if it does not; one that needs many points says no
# with fewer. The thresholds keep the classes apart on clear cases: the tests plant each trouble in curves of many
# kinds.


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


def goes_up(evidence: CurveEvidence, *, returns: bool) -> int | None:
    """One side goes up and stays there, or comes back, and most of the difference lies in that."""
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


# How a difference between two losses goes on: it stays, it grows, or the candidate only takes longer for the same
# way.
#
# What a growing difference comes from tells more than its size. If the candidate stands still while the reference
# comes down, it has stopped; if the difference grows along a line, whatever the reference does, it drifts; and if
# every level of the reference is reached, a fixed number of times later, the candidate is slower.

# How many times longer a slower candidate takes.
SLOWER = 1.0 + np.geomspace(*SLOWER_TIMES)
# Tests that find a difference that moves.


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


def stays(evidence: CurveEvidence, *, sign: float) -> int | None:
    """The candidate stays above: the difference has stopped growing, or only grows as the reference goes on.

    Or below, with a `sign` of -1.
    """
    points = evidence.points
    if not evidence.of_loss or len(points.steps) < 2 * COURSE_POINTS:
        return None
    # The candidate keeps apart from the runs of the reference on average, and does not move away.
    moves = any(test.drifts for test in evidence.drift if test.of_slope)
    if evidence.run_noise is not None and "drift" in evidence.failed and not moves:
        return evidence.parted_at if sign * np.mean(points.difference) > 0 else None
    if not _keeps_sign(points.difference) or _sets_in_at_once(evidence, points):
        return None
    gaps = sign * part_means(points.difference, 4)
    if gaps[-1] <= 0:
        return None
    still = gaps[3] <= STILL_GROWTH * gaps[2] or gaps[2:].sum() <= gaps[:2].sum()
    return evidence.parted_at if still or (sign > 0 and _has_stopped(points)) else None


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


# Noise of a difference, distinguished from what a fault does: around 0, of both signs, and in many points.
#
# Two trainings that see other batches, or other random numbers, jitter against each other from the beginning on. Two
# that only round in other ways part later: rounding grows, as chaos makes it.


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
    means, squares = (part_means(points.difference**power, COURSE_PARTS) for power in (1, 2))
    around_zero = np.abs(means) <= np.sqrt(squares) / 2
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


# Metrics that are set, not measured.
SET = frozenset({"lr", "loss_scale"})


class Trouble(NamedTuple):
    """One class: its name, and the rule that returns the step at which it shows (or None).

    `forward_first` and `rates_first`: it can come from the forward pass, or from the learning rate, which are looked
    at first where they are not known to agree. `of_values`: it needs values that differ, not only steps that one log
    lacks.
    """

    name: TroubleName
    shows_at: Callable[[CurveEvidence], int | None]
    forward_first: bool = True
    rates_first: bool = True
    of_values: bool = True

    def next_commands(self, evidence: CurveEvidence, step: int) -> list[str]:
        """Return what to run next, where it shows at a step."""
        table = NEXT if evidence.of_loss else NEXT_OF_METRICS
        return [one(evidence, step) for one in table[self.name]]


def classify_trouble(evidence: CurveEvidence) -> tuple[str, str]:
    """Return (name, next command) of the first class that applies, ("", "") if no criterion failed."""
    if not evidence.failed:
        return "", ""
    table = TROUBLES if evidence.of_loss else METRIC_TROUBLES
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        usable = (one for one in table if not one.of_values or not evidence.failed <= {"holes", "length"})
        found = ((trouble, trouble.shows_at(evidence)) for trouble in usable)
        trouble, step = next((trouble, step) for trouble, step in found if step is not None)
    parts = _in_order(trouble, trouble.next_commands(evidence, step), evidence)
    command = sentence("loss_next.one_after_another", parts=parts) if len(parts) > 1 else parts[0] if parts else ""
    return trouble.name, command


def _in_order(trouble: Trouble, commands: list[str], evidence: CurveEvidence) -> list[str]:
    """Put before a class's own commands what may have caused it: learning rates that differ, and the forward pass."""
    rate = events.differing_rate(evidence) if evidence.of_loss and trouble.rates_first else None
    if rate is None:
        return [*_forward_first(trouble, evidence), *commands]
    looked_at = compare_logs(RATES)
    of_rates = [one for one in commands if one.startswith(f"{looked_at} #")] or [rates_differ(rate)]
    others = [one for one in commands if not one.startswith(looked_at)]
    return [*of_rates[:1], *_forward_first(trouble, evidence), *others]


def _forward_first(trouble: Trouble, evidence: CurveEvidence) -> list[str]:
    """Return the forward pass as the command, unless the first losses are known to agree or say nothing."""
    if not trouble.forward_first or not evidence.of_loss or evidence.first_agrees or evidence.run_noise is not None:
        return []
    return [forward_first(compared=evidence.first_compared)]


def _if(applies: Callable[[CurveEvidence], object], *criteria: str) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that something is so, and that one of these criteria failed."""
    return lambda evidence: 1 if applies(evidence) and (not criteria or evidence.failed & {*criteria}) else None


def _parted(applies: Callable[[CurveEvidence], object]) -> Callable[[CurveEvidence], int | None]:
    """Make the rule that something is so from where the curves part."""
    return lambda evidence: evidence.parted_at if applies(evidence) else None


_ALONE = {"forward_first": False, "rates_first": False}
_OF_STEPS = {**_ALONE, "of_values": False}
TROUBLES = (
    Trouble("persistent overflow", events.overflows, rates_first=False, of_values=False),
    Trouble("NaN", events.not_finite, forward_first=False, of_values=False),
    Trouble("a multiple of the reference", is_multiple, forward_first=False),
    Trouble("counted one step apart", _if(lambda one: one.shift_option, "first", "mean"), **_ALONE),
    Trouble("an update behind", _if(lambda one: one.update_behind, "first", "mean"), **_ALONE),
    Trouble("steps of unlike batches", _if(lambda one: one.steps_per), **_ALONE),
    Trouble("means against single steps", _if(lambda one: one.window, "first", "mean", "every", "drift"), **_ALONE),
    Trouble("gradients not finite", events.gradients_not_finite, forward_first=False),
    Trouble("noise of another size", noise_of_other_size),
    Trouble("noise of its own", other_noise),
    Trouble("first loss differs", first_differs, forward_first=False),
    Trouble("constant loss", stands_still),
    Trouble("not descending", does_not_descend),
    Trouble("differs from the second step", parts_at_once),
    Trouble("explosion", partial(goes_up, returns=False)),
    Trouble("spike", partial(goes_up, returns=True)),
    Trouble("differs from a change of the learning rate", events.boundary),
    Trouble("rising", rises),
    Trouble("epochs of unlike length", _parted(lambda one: one.unlike_epochs), forward_first=False),
    Trouble("slower than the reference", converges_slower),
    Trouble("plateau above the reference", partial(stays, sign=1.0)),
    Trouble("stays below the reference", partial(stays, sign=-1.0)),
    Trouble("slow drift", drifts),
    Trouble("rounding that grows", rounding_that_grows),
    Trouble("differs later", _parted(lambda one: not one.failed <= {"first", "non-finite", "holes", "length"})),
    Trouble("points missing", _if(lambda one: "holes" in one.failed), **_OF_STEPS),
    Trouble("broken off", _if(lambda one: "length" in one.failed), **_OF_STEPS),
    Trouble("differs", lambda _: 1, **_OF_STEPS),
)


def _another_factor(evidence: CurveEvidence) -> int | None:
    """All values are the reference's times one factor, but for their digits."""
    points = evidence.points
    size = np.abs(points.reference)
    if len(size) < COURSE_POINTS or not size.all():
        return None
    factors = points.candidate / points.reference
    middle = float(np.median(factors))
    same = np.abs(factors - middle) <= SAME_FACTOR * abs(middle) + points.widening / size
    return int(points.steps[0]) if same.all() and abs(middle - 1.0) > ANOTHER_FACTOR else None


def _differs(evidence: CurveEvidence) -> bool:
    return not evidence.failed <= {"non-finite", "holes", "length"}


_BY_NAME = {trouble.name: trouble for trouble in TROUBLES}


# A learning rate is set and not found by training, so it has no plateau and no noise.
METRIC_TROUBLES = (
    _BY_NAME["NaN"],
    _BY_NAME["counted one step apart"],
    Trouble("a step ahead", _if(lambda one: one.ahead == "candidate" and _differs(one))),
    Trouble("a step behind", _if(lambda one: one.ahead == "reference" and _differs(one))),
    Trouble("another factor", _another_factor),
    Trouble("noise of its own", lambda one: None if same_metric(one.metric) in SET else other_noise(one)),
    Trouble("differs from the beginning", _parted(lambda one: one.parted_at == one.pairs.steps[0] and _differs(one))),
    Trouble("differs later", _parted(_differs)),
    _BY_NAME["points missing"],
    _BY_NAME["broken off"],
    Trouble("differs", lambda _: 1),
)
