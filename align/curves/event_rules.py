"""Classes of trouble that more than losses tell: a point that is no number, skipped steps, learning rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.curve_shapes import fill_non_finite, find_excursions, noise_size, part_means, runs_of
from align.curves.evaluate_criteria import OtherMetrics
from align.curves.global_steps import count_within, printed_steps, skipped_runs
from align.curves.judging_thresholds import (
    BEGINNING_POINTS,
    BOUNDARY_DENSITY,
    BOUNDARY_JUMP,
    BOUNDARY_POINTS,
    BOUNDARY_REACH,
    COURSE_PARTS,
    COURSE_POINTS,
    FACTOR_COURSE,
    FACTOR_NOISE,
    MOST_EVENTS,
    MOST_EXCURSIONS,
    OVERFLOW_SHARE,
    OVERFLOW_STEPS,
    OVERFLOWS_IN_A_ROW,
    POINTS_AROUND,
    RATE_UNITS,
    SCALE_FALLS,
    SCALE_POINTS,
    SLOPE_CHANGES,
    SLOPE_POINTS,
    SURE_ERRORS,
    WHOLE_FACTOR,
)
from align.curves.loss_log import RAW, CurveEvent, is_loss
from align.curves.other_axis import find_shift
from align.curves.place_on_axis import common_places, cut_after, pair_curves
from align.curves.thresholds import SKIPS_AT_THE_END
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.curve_shapes import Excursion
    from align.curves.examined_curves import ExaminedCurves
    from align.curves.loss_log import (
        Curve,
        DriftTest,
        EventKind,
        Floats,
        Integers,
        OtherMetric,
        PairedCurves,
        Side,
        Skips,
    )
    from align.curves.other_axis import UnlikeEpochs


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
    for curve, other in (evidence.curves, evidence.curves[::-1]) if evidence.curves else ():
        if curve.skips is not None:
            lacking = 0 if other.skips is None else int(other.skips.counts.sum())
            start = _persistent(curve, curve.skips)
            if start is not None and 2 * lacking < int(curve.skips.counts.sum()):
                return start
            if (start := _right_before(evidence, curve, other)) is not None:
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


def _right_before(evidence: CurveEvidence, curve: Curve, other: Curve) -> int | None:
    """Return where steps that only one side skipped begin, if the curves part there or soon after."""
    if not len(evidence.outside):
        return None
    runs, steps, parted = skipped_runs(curve), evidence.pairs.steps, evidence.parted_at
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


# What happened on the way of each side: spikes, explosions, points not finite, skipped steps, changes of the
# schedule.
#
# They are facts about one curve and no verdict: a spike that both curves have is no trouble of a port.


class _Happened(NamedTuple):
    """All events of one kind on one side, in columns."""

    kind: EventKind
    side: Side
    steps: Integers
    values: Floats


def find_events(
    reference: Curve, candidate: Curve, lr: tuple[Curve | None, Curve | None] = (None, None)
) -> tuple[tuple[CurveEvent, ...], tuple[str, ...]]:
    """Find the events of both sides in the order of steps, of each kind and side the first `MOST_EVENTS`; and notes.

    A note tells how many there are where some were left out. `value` is the highest loss of a spike or an explosion,
    the number of points in a row that are not finite or were skipped, the learning rate from a boundary on, the loss
    with which a resumed run begins.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        happened = [*_of_side("reference", reference, lr[0]), *_of_side("candidate", candidate, lr[1])]
    events = [
        CurveEvent(series.kind, step, series.side, value)
        for series in happened
        for step, value in zip(series.steps[:MOST_EVENTS].tolist(), series.values[:MOST_EVENTS].tolist(), strict=True)
    ]
    notes = [_left_out(series) for series in happened if len(series.steps) > MOST_EVENTS]
    return tuple(sorted(events, key=lambda event: event.step)), tuple(notes)


def _of_side(side: Side, curve: Curve, rate: Curve | None) -> Iterator[_Happened]:
    if is_loss(curve.metric):  # a learning rate or an accuracy that goes up is no spike
        found = find_excursions(curve.values, float(curve.resolution.max(initial=0.0)))
        kinds: dict[EventKind, bool] = {"spike": True, "explosion": False}
        for kind, returns in kinds.items():
            own = [excursion for excursion in found if excursion.returns is returns]
            starts, peaks = (np.array([one[at] for one in own], np.int64) for at in (0, 2))
            yield _Happened(kind, side, curve.steps[starts], curve.values[peaks])
    starts, lengths = runs_of(~np.isfinite(curve.values))
    yield _Happened("not finite", side, curve.steps[starts], lengths.astype(np.float64))
    if curve.skips is not None:
        runs = skipped_runs(curve)
        yield _Happened("skipped", side, runs.steps, runs.counts.astype(np.float64))
    if curve.resumed is not None:
        yield _Happened("resumed", side, curve.steps[curve.resumed], curve.values[curve.resumed])
    if rate is not None:
        at = find_boundaries(rate)
        yield _Happened("schedule boundary", side, rate.steps[at], rate.values[at])


def _left_out(happened: _Happened) -> str:
    count = len(happened.steps)
    key = "loss_note.more_events" if count != MOST_EXCURSIONS else "loss_note.many_more_events"
    return sentence(key, kind=happened.kind, side=happened.side, count=count, listed=MOST_EVENTS)


def find_boundaries(rate: Curve) -> Integers:
    """Return the indices of the points that are the first of another level or slope of a schedule.

    Schedules are smooth between such points, so there the slope changes far more than around them. Printed digits turn
    a slope into stairs: a change of a few units of the last digit is none.
    """
    if len(rate.values) < SLOPE_POINTS or not np.isfinite(rate.values).any():
        return np.zeros(0, np.int64)
    values, gaps = fill_non_finite(rate.values), np.diff(rate.steps)
    slopes = np.diff(values) / gaps
    changes = np.abs(np.diff(slopes)) * np.minimum(gaps[1:], gaps[:-1])
    noise = max(RATE_UNITS * float(rate.resolution.max()), FLOAT32_ROUNDING * float(np.abs(values).max()))
    found = _outstanding(changes, noise)
    if not rate.resolution.any():
        found = np.union1d(found, _starts_and_stops(slopes))
    return found[np.diff(found, prepend=-SLOPE_POINTS) >= SLOPE_POINTS] + 2


def _outstanding(changes: Floats, noise: float) -> Integers:
    """Return where the slope changes by more than `noise`, and by far more than around."""
    large = np.flatnonzero(changes > noise)
    around = np.clip(large[:, None] + np.arange(-POINTS_AROUND, POINTS_AROUND + 1), 0, len(changes) - 1)
    outstanding: Integers = large[changes[large] > SLOPE_CHANGES * np.median(changes[around], axis=1)]
    return outstanding


def _starts_and_stops(slopes: Floats) -> Integers:
    """Return where the sign of the slope changes, and stays for `SLOPE_POINTS` on each side: a smooth decay sets in."""
    kinds = np.sign(slopes)
    at = np.flatnonzero(kinds[1:] != kinds[:-1])
    before, after = np.diff(at, prepend=-1), np.diff(at, append=len(slopes) - 1)
    return at[(before >= SLOPE_POINTS) & (after >= SLOPE_POINTS)]


# What the rules on classes of trouble look at, each view of the curves made once.
#
# Levels are means of parts of a curve, noise is what makes neighbouring points differ.

NOTHING_BESIDE = OtherMetrics()


class FinitePoints(NamedTuple):
    """The common points that are finite on both sides, columns of shape (points,)."""

    steps: Integers
    reference: Floats
    candidate: Floats
    difference: Floats
    widening: Floats


class Course(NamedTuple):
    """Where a loss starts, the levels of its `COURSE_PARTS` parts, and how uncertain a level is."""

    start: float
    levels: Floats
    uncertain: float

    @property
    def descent(self) -> float:
        """How far the loss has come down in the end."""
        return self.start - float(self.levels[-1])

    @property
    def rise(self) -> float:
        """How far the end is above the lowest part."""
        return float(self.levels[-1] - self.levels.min())


@dataclass(frozen=True)
class CurveEvidence:
    """Two curves and what was found: the indices of points outside their limit, the keys of failed criteria.

    `divergent` is the first divergent step, if there is one. `first_compared` and `first_agrees` tell of the losses of
    step 1. `shift_option` is the option that would make the curves agree by counting one a step later, `steps_per` the
    one that takes several steps as one, `window` the one that takes the values of a side as means, "" if there is none;
    `update_behind` is the side whose losses come an update late though both agree at step 1, `last_common` the step at
    which the shorter log ends, `ahead` the side whose values come a step early though its steps are counted right.
    `run_noise` is the noise of one reference run, where there are some: `pairs` then hold their mean. `drift` are the
    tests for one. `not_finite_at` is the first step, common or not, at which one side alone is NaN or Inf;
    `unlike_epochs` says that their epochs have unlike numbers of steps. `curves` are the reference and the candidate
    whole, `beside` is what the logs tell beside them; without these, fewer classes can be named.
    """

    metric: str
    pairs: PairedCurves
    outside: Integers
    failed: frozenset[str]
    divergent: int | None
    first_compared: bool
    first_agrees: bool
    shift_option: str = ""
    update_behind: Side | None = None
    last_common: int = 0
    steps_per: str = ""
    window: str = ""
    ahead: Side | None = None
    run_noise: float | None = None
    drift: tuple[DriftTest, ...] = ()
    curves: tuple[Curve, ...] = ()
    beside: OtherMetrics = NOTHING_BESIDE
    not_finite_at: int | None = None
    unlike_epochs: bool = False

    @property
    def of_loss(self) -> bool:
        """True if the metric is a loss, by its name."""
        return is_loss(self.metric)

    @cached_property
    def points(self) -> FinitePoints:
        """The points at which both sides are finite."""
        pairs = self.pairs
        use = np.isfinite(pairs.reference) & np.isfinite(pairs.candidate)
        left, right = pairs.reference[use], pairs.candidate[use]
        return FinitePoints(pairs.steps[use], left, right, right - left, pairs.widening[use])

    @cached_property
    def courses(self) -> tuple[Course, Course]:
        """The courses of both sides; there have to be `COURSE_PARTS` points."""
        return _course(self.points.reference), _course(self.points.candidate)

    @cached_property
    def excursions(self) -> tuple[tuple[Excursion, ...], tuple[Excursion, ...]]:
        """Where each side goes up, as indices of `points`."""
        return find_excursions(self.points.reference), find_excursions(self.points.candidate)

    @cached_property
    def noises(self) -> tuple[float, float]:
        """The noise of the reference, of one run if there are several, and of the candidate."""
        own = noise_size(self.points.reference) if self.run_noise is None else self.run_noise
        return own, noise_size(self.points.candidate)

    @cached_property
    def factor(self) -> float | None:
        """The whole factor, or one over one, between all losses of curves that have a course; None if there is none."""
        points = self.points
        size = np.abs(points.reference)
        if len(size) < COURSE_POINTS or not size.all() or np.ptp(points.reference) < FACTOR_COURSE * np.mean(size):
            return None
        factors = points.candidate / points.reference
        middle = float(np.median(factors))
        if not 0.0 < middle < np.inf:
            return None
        times, off = max(middle, 1.0 / middle), np.abs(factors / middle - 1.0)
        if round(times) < 2 or abs(times / round(times) - 1.0) > WHOLE_FACTOR:
            return None
        alike = np.median(off) <= FACTOR_NOISE and off.max() <= SURE_ERRORS * FACTOR_NOISE
        return (float(round(times)) if middle > 1.0 else 1.0 / round(times)) if alike else None

    @cached_property
    def factor_of_norms(self) -> float | None:
        """The median factor between the gradient norms; None if not both logs tell them."""
        left, right = self.beside.grad_norm
        if left is None or right is None:
            return None
        at, at_right = common_places(left.steps, right.steps)
        factors = right.values[at_right] / left.values[at]
        known = factors[np.isfinite(factors)]
        return float(np.median(known)) if len(known) else None

    @property
    def parted_at(self) -> int:
        """The first divergent step; if there is none that of the first point outside, or of the first point."""
        if self.divergent is not None:
            return self.divergent
        return int(self.pairs.steps[self.outside[0] if len(self.outside) else 0])


def _course(values: Floats) -> Course:
    """Take the start from few points, as a loss may do most of its way in them."""
    beginning = min(BEGINNING_POINTS, max(1, len(values) // 20))
    uncertain = noise_size(values) / min(beginning, len(values) / COURSE_PARTS) ** 0.5
    return Course(float(np.mean(values[:beginning])), part_means(values, COURSE_PARTS), uncertain)


def gather_evidence(
    examined: ExaminedCurves,
    failed: frozenset[str],
    divergent: int | None,
    last_step: int | None,
    beside: OtherMetrics,
    epochs: UnlikeEpochs | None = None,
) -> CurveEvidence:
    """Gather what the curves tell; `failed` and `divergent` are what the verdict found, `beside` what logs tell."""
    ahead, (shift, ratio) = _ahead(examined, beside), examined.other_axis
    behind: Side | None = None
    if shift is not None and shift.behind:
        behind = "reference" if shift.side == "candidate" else "candidate"
    return CurveEvidence(
        pairs=examined.pairs,
        metric=examined.reference.metric,
        outside=examined.outside,
        failed=failed,
        divergent=divergent,
        first_compared=examined.judged.first_compared,
        first_agrees=examined.judged.first_agrees,
        shift_option=shift.option if shift and not ahead else "",
        update_behind=behind,
        last_common=min(examined.ends.reference, examined.ends.candidate),
        steps_per=ratio.option if ratio else "",
        window=examined.means.option if examined.means else "",
        ahead=ahead,
        run_noise=examined.run_noise,
        drift=examined.drift,
        curves=(cut_after(examined.reference, last_step), cut_after(examined.candidate, last_step)),
        beside=beside,
        not_finite_at=int(examined.not_finite[0]) if len(examined.not_finite) else None,
        unlike_epochs=epochs is not None,
    )


def _ahead(examined: ExaminedCurves, beside: OtherMetrics) -> Side | None:
    """Return the side that is a step ahead in a metric that is no loss: the losses show that its steps are right."""
    shift = examined.other_axis.shift
    if shift is None or is_loss(examined.reference.metric):
        return None
    left, right = beside.losses
    if left is None or right is None:
        return None if shift.option else shift.side
    raw = left.window == right.window == RAW and left.axis == right.axis
    losses = find_shift(left, right, pair_curves(left, right)) if raw else None
    return None if losses is not None and losses.side == shift.side else shift.side
