"""What the rules on classes of trouble look at, each view of the curves made once.

Levels are means of parts of a curve, noise is what makes neighbouring points differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.place_on_axis import common_places, cut_after, pair_curves
from align.curves.criteria.curve_shapes import find_excursions, noise_size, part_means
from align.curves.criteria.other_axis import find_shift
from align.curves.criteria.other_metrics import OtherMetrics
from align.curves.loss_log import RAW
from align.curves.metric_names import is_loss
from align.curves.trouble_thresholds import (
    BEGINNING_POINTS,
    COURSE_PARTS,
    COURSE_POINTS,
    FACTOR_COURSE,
    FACTOR_NOISE,
    SURE_ERRORS,
    WHOLE_FACTOR,
)

if TYPE_CHECKING:
    from align.curves.criteria.curve_shapes import Excursion
    from align.curves.criteria.examined_curves import ExaminedCurves
    from align.curves.criteria.unlike_epochs import UnlikeEpochs
    from align.curves.curve_result import DriftTest, Side
    from align.curves.loss_log import Curve, Floats, Integers, PairedCurves

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
    return CurveEvidence(
        pairs=examined.pairs,
        metric=examined.reference.metric,
        outside=examined.outside,
        failed=failed,
        divergent=divergent,
        first_compared=examined.judged.first_compared,
        first_agrees=examined.judged.first_agrees,
        shift_option=shift.option if shift and not ahead else "",
        update_behind=_update_behind(examined),
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


def _update_behind(examined: ExaminedCurves) -> Side | None:
    shift = examined.other_axis.shift
    if shift is None or not shift.behind:
        return None
    return "reference" if shift.side == "candidate" else "candidate"


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
