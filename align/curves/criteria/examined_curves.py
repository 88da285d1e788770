"""All that is known of two curves before they are judged: figures, criteria, holes, a shift that would explain them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.curves.axis.missing_steps import find_missing_steps, starts_late, usual_distance
from align.curves.axis.place_on_axis import cadence, cut_after
from align.curves.axis.skipped_steps import printed_steps, steps_to_the_end
from align.curves.criteria.change_test import find_stretch
from align.curves.criteria.curve_shapes import noise_size
from align.curves.criteria.drift import find_drift
from align.curves.criteria.evaluate_criteria import Ends, evaluate_steps, evaluate_values, measure_points
from align.curves.criteria.other_axis import find_other_axis
from align.curves.criteria.runs_envelope import drift_against_runs, pair_with_runs
from align.curves.criteria.unsaid_means import find_unsaid_means
from align.curves.criteria_thresholds import COMMON_POINTS, LEAST_COVERED, LEAST_PART, WELL_COVERED
from align.curves.metric_names import is_loss
from align.curves.presets import GUIDE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.axis.missing_steps import MissingSteps
    from align.curves.criteria.change_test import Stretch
    from align.curves.criteria.evaluate_criteria import JudgedPoints
    from align.curves.criteria.other_axis import OtherAxis
    from align.curves.criteria.runs_envelope import Envelope
    from align.curves.criteria.unsaid_means import UnsaidMeans
    from align.curves.curve_result import Criterion, DriftTest
    from align.curves.loss_log import Curve, Integers, PairedCurves
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
    found = [pairs.steps[~judged.finite & ~judged.within]]
    for one, other in ((reference, candidate), (candidate, reference)) if is_loss(reference.metric) else ():
        steps = np.setdiff1d(one.steps[~np.isfinite(one.values)], pairs.steps, assume_unique=True)
        if len(steps) and len(other.steps):
            after = np.searchsorted(other.steps, steps)
            beside = [np.clip(after - 1, 0, None), np.clip(after, None, len(other.steps) - 1)]
            alike = np.any([~np.isfinite(other.values[at]) for at in beside], axis=0)
            found.append(steps[~alike])
    all_steps: Integers = np.unique(np.concatenate(found))
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
