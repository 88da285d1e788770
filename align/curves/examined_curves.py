"""All that is known of two curves before they are judged: figures, criteria, holes, a shift that would explain them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import scipy

from align.curves.change_test import find_stretch
from align.curves.curve_shapes import average_blocks, centred_times, noise_size
from align.curves.evaluate_criteria import (
    Ends,
    drift_against_runs,
    evaluate_steps,
    evaluate_values,
    measure_points,
    pair_with_runs,
)
from align.curves.global_steps import find_missing_steps, printed_steps, starts_late, steps_to_the_end, usual_distance
from align.curves.judging_thresholds import (
    ALIKE_AFTER,
    COMMON_POINTS,
    COURSE_CORRELATION,
    DRIFT_BLOCKS,
    DRIFT_CORRELATION,
    EXPLAINING_POINTS,
    FALSE_ALARM_RATE,
    LEAST_COVERED,
    LEAST_PART,
    LEAST_SCATTER,
    LEFT_UNEXPLAINED,
    NOISE_POINTS,
    RUNNING_LENGTHS,
    SCATTER_PARTS,
    SMALLER_AFTER,
    SMOOTHER,
    SUM_ROUNDING,
    UNLIKE_BEFORE,
    WELL_COVERED,
)
from align.curves.loss_log import RAW, DriftTest, Window, is_loss
from align.curves.other_axis import allowed_difference, find_other_axis
from align.curves.place_on_axis import cadence, common_places, cut_after, pair_curves
from align.curves.presets import GUIDE
from align.errors import UnlikeCurvesError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.curves.change_test import Stretch
    from align.curves.curve_shapes import Blocks
    from align.curves.evaluate_criteria import Envelope, JudgedPoints
    from align.curves.global_steps import MissingSteps
    from align.curves.loss_log import Criterion, Curve, Floats, Integers, PairedCurves, Side
    from align.curves.other_axis import OtherAxis
    from align.curves.presets import Preset


OF_VALUES = frozenset({"first", "mean", "every", "share", "drift", "non-finite"})


@dataclass(frozen=True, slots=True, eq=False)
class ExaminedCurves:
    """Two curves, their pairs, and what was found; `holes` and `too_few` speak of what the logs lack.

    `too_few` says why the common points are too few to pass, `part` of which part of the curves a pass speaks alone; ""
    if they are not, and of all. `not_finite` are the steps at which a loss of one side alone is NaN or Inf, common or
    not. `stretch` is where the difference leaves its limit and stays. With an `envelope` the pairs are those with the
    mean of the reference runs.
    """

    reference: Curve
    candidate: Curve
    pairs: PairedCurves
    judged: JudgedPoints
    criteria: dict[str, Criterion]
    holes: dict[str, tuple[MissingSteps, ...]]
    other_axis: OtherAxis
    means: UnsaidMeans | None
    too_few: str
    part: str
    not_finite: Integers
    ends: Ends
    drift: tuple[DriftTest, ...]
    stretch: Stretch | None
    envelope: Envelope | None

    @property
    def run_noise(self) -> float | None:
        """The noise of one reference run, the median of all; None without such runs. Their mean has less."""
        if self.envelope is None:
            return None
        runs = self.pairs.reference + self.envelope.deviations
        return float(np.median([noise_size(run[np.isfinite(run)]) for run in runs]))

    @property
    def outside(self) -> Integers:
        """The indices of the points outside their limit."""
        return np.flatnonzero(~self.judged.within)

    @property
    def failed(self) -> frozenset[str]:
        """The keys of the criteria that failed."""
        return frozenset(key for key, criterion in self.criteria.items() if not criterion.passed)

    @property
    def values_differ(self) -> bool:
        """True if a criterion on values failed, not only one on which steps there are."""
        return not OF_VALUES.isdisjoint(self.failed)


def examine_curves(
    reference: Curve,
    candidate: Curve,
    pairs: PairedCurves,
    last_step: int | None = None,
    preset: Preset = GUIDE,
    runs: Sequence[Curve] = (),
) -> ExaminedCurves:
    """Find what can be found of two curves up to `last_step`; raises UsageError for runs that make no envelope."""
    other_axis = find_other_axis(reference, candidate, pairs, preset, whole=last_step is None and not runs)
    envelope = None
    if runs:
        pairs, envelope = pair_with_runs(runs, candidate, last_step)
    judged = measure_points(reference.metric, reference.axis == "step", pairs, preset, envelope)
    drift = _drift(pairs, envelope)
    curves = [cut_after(curve, last_step) for curve in (reference, candidate)]
    left, right = map(printed_steps, curves)
    holes = {"reference": find_missing_steps(left, right), "candidate": find_missing_steps(right, left)}
    missing = sum(hole.missing for side in holes.values() for hole in side)
    last, last_of_candidate = (int(steps_to_the_end(curve).max(initial=0)) for curve in curves)
    ends = Ends(last, last_of_candidate, max(cadence(left), cadence(right)))
    not_finite = _not_finite(curves[0], curves[1], pairs, judged)
    criteria = evaluate_values(pairs, judged, drift, envelope, len(not_finite))
    small, part = ("", "") if runs else _covered(curves[0], curves[1], pairs)
    return ExaminedCurves(
        reference=reference,
        candidate=candidate,
        pairs=pairs,
        judged=judged,
        criteria=criteria | evaluate_steps(ends, missing) if criteria else {},
        holes=holes,
        other_axis=other_axis,
        means=None if runs else find_unsaid_means(curves[0], curves[1], pairs, preset),
        too_few=_too_few(pairs, judged, missing) or _late(pairs, judged, left, right) or small,
        part=part,
        not_finite=not_finite,
        ends=ends,
        drift=drift,
        stretch=find_stretch(judged.difference, judged.limit, judged.within),
        envelope=envelope,
    )


def _drift(pairs: PairedCurves, envelope: Envelope | None) -> tuple[DriftTest, ...]:
    """Test what rounding cannot explain: printed digits of a slow curve are off to one side for many steps."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = pairs.candidate - pairs.reference
        difference = np.sign(difference) * np.maximum(np.abs(difference) - pairs.widening, 0.0)
    if envelope is not None:
        return drift_against_runs(envelope, difference)
    return find_drift(difference[np.isfinite(difference)])


def _too_few(pairs: PairedCurves, judged: JudgedPoints, missing: int) -> str:
    common = len(pairs.steps)
    if 0 < common < COMMON_POINTS and 2 * missing >= common:
        return sentence("loss_verdict.more_missing", count=common, missing=missing)
    if common == 1 and not judged.first_compared:
        return sentence("loss_verdict.one_point", step=pairs.steps[0], metric=judged.metric)
    return ""


def _late(pairs: PairedCurves, judged: JudgedPoints, left: Integers, right: Integers) -> str:
    if judged.first_compared or not 0 < len(pairs.steps) < COMMON_POINTS:
        return ""
    late = {"reference": starts_late(left, right), "candidate": starts_late(right, left)}
    sides = [side for side, is_late in late.items() if is_late]
    return sentence("loss_verdict.lacks_beginning", count=len(pairs.steps), side=sides[0]) if sides else ""


def _not_finite(reference: Curve, candidate: Curve, pairs: PairedCurves, judged: JudgedPoints) -> Integers:
    """Return the steps at which one side alone is NaN or Inf: of losses also those that the other log does not print.

    What a log prints between two points of the other is alike if one of these is no number either.
    """
    lone_steps = [pairs.steps[~judged.finite & ~judged.within]]
    for one, other in ((reference, candidate), (candidate, reference)) if is_loss(reference.metric) else ():
        steps = np.setdiff1d(one.steps[~np.isfinite(one.values)], pairs.steps, assume_unique=True)
        if len(steps) and len(other.steps):
            after = np.searchsorted(other.steps, steps)
            beside = [np.clip(after - 1, 0, None), np.clip(after, None, len(other.steps) - 1)]
            alike = np.any([~np.isfinite(other.values[at]) for at in beside], axis=0)
            lone_steps.append(steps[~alike])
    all_steps: Integers = np.unique(np.concatenate(lone_steps))
    return all_steps


def _covered(reference: Curve, candidate: Curve, pairs: PairedCurves) -> tuple[str, str]:
    """Say why the common points are of too small a part of either curve, and of which part they speak alone."""
    common, curves = pairs.steps, {"reference": reference, "candidate": candidate}
    if not len(common):
        return "", ""
    reach = max(usual_distance(common), *(usual_distance(curve.steps) for curve in curves.values()))
    small, part = "", ""
    for side, curve in curves.items():
        other = candidate if side == "reference" else reference
        after = np.searchsorted(common, curve.steps)
        before = curve.steps - common[np.clip(after - 1, 0, None)]
        until = common[np.clip(after, None, len(common) - 1)] - curve.steps
        near = ((before >= 0) & (before <= reach)) | ((until >= 0) & (until <= reach))
        share = np.count_nonzero(near) / len(near)
        facts = {"count": int(np.count_nonzero(~near)), "total": len(near), "side": side}
        facts |= {"first": int(common[0]), "last": int(common[-1])}
        lone = curve.steps[~near]
        both = np.count_nonzero((lone >= other.steps[0]) & (lone <= other.steps[-1])) / len(near)
        if both > 1 - LEAST_COVERED or share < LEAST_PART:
            small = small or sentence("loss_verdict.small_part", **facts)
        elif share < WELL_COVERED:
            part = part or sentence("loss_verdict.part_alone", **facts)
    return small, part


# A log whose values are means of several steps and do not say so, against one that prints single steps.
#
# Where the single steps, averaged, agree with it, or have its noise and did not before, that is what the log prints.
# Only the user knows: what is found is noted with the option that says so, and nothing is averaged unasked.

MEAN_OF_LAST: Final = "mean of last"


class UnsaidMeans(NamedTuple):
    """The side whose values are means of `length` steps, by all that its log and the other tell."""

    side: Side
    length: int
    points: int
    before: float
    after: float

    @property
    def option(self) -> str:
        """The option that says so."""
        return f"--{self.side}-window '{MEAN_OF_LAST} {self.length}'"

    @property
    def note(self) -> str:
        """What a reader should know of it."""
        return sentence("loss_note.unsaid_means", **self._asdict(), option=self.option)


def find_unsaid_means(
    reference: Curve, candidate: Curve, pairs: PairedCurves, preset: Preset = GUIDE
) -> UnsaidMeans | None:
    """Find the side that prints means as if they were single steps; None if neither does, or one says what it prints.

    Of several lengths the one that leaves least is taken.
    """
    raw = reference.window == candidate.window == RAW and reference.axis == candidate.axis == "step"
    if not raw or not is_loss(reference.metric) or len(pairs.steps) < EXPLAINING_POINTS:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        of_candidate = _of_side("candidate", candidate, reference, preset)
        found = [*of_candidate, *_of_side("reference", reference, candidate, preset)]
    return min(found, key=lambda one: one.after, default=None)


def _of_side(side: Side, curve: Curve, other: Curve, preset: Preset) -> Iterator[UnsaidMeans]:
    every = cadence(curve.steps)
    if cadence(other.steps) != 1 or (every == 1 and _roughness(curve) >= SMOOTHER * _roughness(other)):
        return
    for length in (every,) if every > 1 else RUNNING_LENGTHS:
        try:
            pairs = pair_curves(other, replace(curve, window=Window(MEAN_OF_LAST, length)))
        except UnlikeCurvesError:
            continue
        at, at_other = common_places(curve.steps, pairs.steps)
        single = other.values[common_places(other.steps, pairs.steps[at_other])[0]]
        if len(pairs.steps) < EXPLAINING_POINTS or not len(at) == len(single) == len(pairs.steps):
            continue
        before, after = _mean_size(single - curve.values[at]), _mean_size(pairs.reference - pairs.candidate)
        if not np.isfinite([before, after]).all():
            continue
        if every == 1 and not _scatters(single - pairs.reference):
            continue
        allowed = allowed_difference("loss", pairs, float(np.mean(np.abs(pairs.reference))), preset)
        agree = after < before and after <= min(allowed, LEFT_UNEXPLAINED * before)
        if agree or _of_one_noise(single, pairs, before, after):
            yield UnsaidMeans(side, length, len(pairs.steps), before, after)


def _of_one_noise(single: Floats, pairs: PairedCurves, before: float, after: float) -> bool:
    """Tell whether averaging makes the noise of both sides alike that was not, and brings them together."""
    if len(single) < NOISE_POINTS or not after <= SMALLER_AFTER * before:
        return False
    averaged, means, alone = (noise_size(values) for values in (pairs.reference, pairs.candidate, single))
    small, large = sorted((averaged, means))
    return bool(0.0 < large <= ALIKE_AFTER * small and alone >= UNLIKE_BEFORE * means)


def _roughness(curve: Curve) -> float:
    """Return how far neighbouring values are apart, as a rule; a running mean of k steps has one k-th of it."""
    apart = np.abs(np.diff(curve.values))
    known = apart[np.isfinite(apart)]
    return float(np.median(known)) if len(known) else 0.0


def _scatters(differences: Floats) -> bool:
    """Tell whether single steps lie about their running means all the time, and without a course of their own."""
    values = differences - np.mean(differences)
    sizes = [float(np.median(np.abs(part))) for part in np.array_split(values, SCATTER_PARTS)]
    alike = float(values[1:] @ values[:-1]) <= COURSE_CORRELATION * float(values @ values)
    return alike and min(sizes) > LEAST_SCATTER * max(sizes)


def _mean_size(difference: Floats) -> float:
    finite = np.abs(difference[np.isfinite(difference)])
    return float(np.mean(finite)) if len(finite) == len(difference) and len(finite) else float("inf")


# Drift distinguished from jitter: whether a difference keeps to one side, or moves.
#
# Without drift the sides could change places, so the difference is symmetric about zero. Neighbouring points are
# alike, so the tests look at averages over blocks that are not (`block_averages`); what correlation is left in the
# longest blocks is allowed for. A curve too short for that is not tested: there a wandering difference cannot be
# known from a drifting one.


def find_drift(difference: Floats) -> tuple[DriftTest, ...]:
    """Test a difference, candidate - reference, shape (points,), all finite; () where too little is independent.

    The sign test asks whether the block averages keep to one side, the slope test whether they move: the slope of a
    straight line, with the standard error HC3 of MacKinnon and White (J. Econometrics 29, 305, 1985), as the jitter of
    a training grows or shrinks.
    """
    scale = float(np.abs(difference).max(initial=0.0)) or 1.0
    blocks = average_blocks(difference / scale, DRIFT_BLOCKS, detrend=True)
    count, correlation = len(blocks.means), _at_most(blocks)
    if correlation > DRIFT_CORRELATION:
        return ()
    worth = int(count * (1.0 - correlation) / (1.0 + correlation))
    slope, *slope_test = _slope(blocks.means, worth)
    facts = {"length": blocks.length, "worth": worth}
    sign, line = sentence("drift_test.symmetric", **facts), sentence("drift_test.about_a_line", **facts)
    level, moves = FALSE_ALARM_RATE / 2, sentence("drift_test.slope")
    return tuple(
        DriftTest(name, statistic, p, level, p < level, slope * count * scale, assumption, name is moves)
        for name, (statistic, p), assumption in (
            (sentence("drift_test.sign"), _sign(blocks.means, worth / count), sign),
            (moves, slope_test, line),
        )
    )


def drift_note(tests: tuple[DriftTest, ...], difference: Floats, *, within_limits: bool = False) -> str:
    """Say how the difference drifts, "" if no test finds that it does."""
    drifting = [sentence("drift_test.found", test=test.name, p_value=test.p_value) for test in tests if test.drifts]
    if not drifting:
        return ""
    facts = {"level": tests[0].level, "mean": float(np.mean(difference)), "change": tests[0].slope}
    return sentence("drift_test.note", found=drifting, within=within_limits, **facts)


def _at_most(blocks: Blocks) -> float:
    """Return what the correlation may be: without the bias of taking a line out, and a standard error more."""
    count = len(blocks.means)
    if count < DRIFT_BLOCKS:
        return 1.0
    return max(0.0, (blocks.correlation * count + 2) / (count - 4) + 1 / sqrt(count))


def _sign(means: Floats, worth: float) -> tuple[float, float]:
    """Return the share of averages above zero, of those that are not zero, and the p-value of the exact sign test.

    `worth` is how many independent ones each average is worth.
    """
    above, count = int(np.count_nonzero(means > 0.0)), int(np.count_nonzero(means))
    independent = int(count * worth)
    if not independent:
        return 0.5, 1.0
    fewer = min(ceil(min(above, count - above) * worth), independent)
    return above / count, min(1.0, 2.0 * float(scipy.special.bdtr(fewer, independent, 0.5)))


def _slope(means: Floats, worth: int) -> tuple[float, float, float]:
    """Return the slope a block, its t value with the standard error HC3, and the two-sided p-value.

    `worth` is how many independent averages the `means` are worth.
    """
    count, times = len(means), centred_times(len(means))
    spread = float(times @ times)
    slope = float(times @ means) / spread
    residual = means - means.mean() - slope * times
    leverage = 1.0 / count + times * times / spread
    error = sqrt(float(np.sum((times * residual / (1.0 - leverage)) ** 2)) * count / worth) / spread
    if abs(slope) * count <= SUM_ROUNDING * float(np.abs(means).max()):
        return 0.0, 0.0, 1.0
    if error == 0.0:
        return slope, float(np.copysign(np.inf, slope)), 0.0
    return slope, slope / error, 2.0 * float(scipy.special.stdtr(worth - 2, -abs(slope / error)))
