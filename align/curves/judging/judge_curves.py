"""Two paired curves judged: all criteria have to pass, and the reason says what a pass does not cover.

A difference is a difference however few points show it. To pass takes more: a few points out of many, of a log whose
own cadence does not explain that there are so few, could not be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Coverage, Outcome, Verdict
from align.curves.axis.place_on_axis import cadence
from align.curves.criteria.common_base_option import find_common_base
from align.curves.criteria.drift import FEWEST, drift_note
from align.curves.criteria.examined_curves import ExaminedCurves, examine_curves
from align.curves.curve_result import CurveComparison, CurvePoints
from align.curves.judging.curve_notes import curve_notes, hidden_by_rounding
from align.curves.judging.locate_divergence import change_events, locate_divergence
from align.curves.presets import GUIDE
from align.curves.troubles.classify_trouble import classify_trouble
from align.curves.troubles.curve_evidence import NOTHING_BESIDE
from align.curves.troubles.gather_evidence import gather_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.criteria.other_metrics import OtherMetrics
    from align.curves.curve_result import Criterion
    from align.curves.loss_log import Curve, PairedCurves
    from align.curves.presets import Preset

LOOK_AT_EACH = "align loss REFERENCE, and align loss CANDIDATE: each shows what is understood of one log"


def judge_curves(  # noqa: PLR0913 - one argument for each thing that a verdict may rest on
    reference: Curve,
    candidate: Curve,
    pairs: PairedCurves,
    last_step: int | None = None,
    preset: Preset = GUIDE,
    reference_runs: Sequence[Curve] = (),
    beside: OtherMetrics = NOTHING_BESIDE,
) -> CurveComparison:
    """Judge two curves up to `last_step`, by the limits of a preset or against several runs of the reference.

    `beside` is what the logs tell beside these curves: evidence for the class of trouble, not for the verdict.
    Without a common point that can be judged, or with too few of them to pass, the outcome is NOT_COMPARED. Raises
    UsageError for reference runs that make no envelope (one, equal ones), UnlikeCurvesError.
    """
    examined = examine_curves(reference, candidate, pairs, last_step, preset, reference_runs)
    verdict = _verdict(examined)
    judged = verdict.outcome is not Outcome.NOT_COMPARED
    points = _points(examined)
    failed = _failed(examined)
    divergence = locate_divergence(examined, failed, points)
    divergent = None if divergence.point is None else int(points.step[divergence.point])
    evidence = gather_evidence(examined, failed, divergent, last_step, beside)
    trouble, command = classify_trouble(evidence) if judged else ("", _look_again(examined))
    return CurveComparison(
        metric=reference.metric,
        preset="reference runs" if examined.envelope else preset.name,
        reference=reference,
        candidate=candidate,
        points=points,
        criteria=tuple(examined.criteria.values()),
        first_divergent_step=divergent,
        trouble=trouble,
        next_command=command.replace("{last_common}", str(min(examined.ends.reference, examined.ends.candidate))),
        verdict=verdict,
        notes=(*curve_notes(examined), *_drift_notes(examined, points)),
        reference_runs=examined.envelope.labels if examined.envelope else (),
        drift=examined.drift,
        events=change_events(examined, divergence.changed, points),
        divergent_steps=divergence.steps,
    )


def _look_again(examined: ExaminedCurves) -> str:
    """Return what to run where nothing could be compared."""
    option = "" if len(examined.pairs.steps) else find_common_base(examined.reference, examined.candidate)
    return f"align loss REFERENCE CANDIDATE {option} # if that log counts from 0" if option else LOOK_AT_EACH


def _drift_notes(examined: ExaminedCurves, points: CurvePoints) -> list[str]:
    told = drift_note(examined.drift, points.difference[np.isfinite(points.difference)])
    within = "" if examined.values_differ else ", within the limits"
    return [*_untested(examined), *([told + within] if told else [])]


def _untested(examined: ExaminedCurves) -> list[str]:
    """Say what was to be tested and could not be; drift is where there are points enough."""
    asked = examined.judged.limits.drift or len(examined.pairs.steps) >= FEWEST
    untested = ["drift"] if asked and examined.criteria and not examined.drift else []
    if examined.envelope and examined.criteria and "share" not in examined.criteria:
        untested.append("how many points are outside")
    return [f"{what} could not be tested: too few points are independent of their neighbours" for what in untested]


def _failed(examined: ExaminedCurves) -> frozenset[str]:
    """Return the keys of the criteria that failed, and "first" and "mean" where others failed for these points."""
    failed = examined.failed
    if failed.isdisjoint({"every", "share", "drift"}):
        return failed
    stays = examined.envelope is None or (examined.stretch is not None and examined.stretch.first == 0)
    first = examined.judged.first_compared and not examined.judged.within[0] and stays
    return failed | {"mean"} | ({"first"} if first else set())


def _points(examined: ExaminedCurves) -> CurvePoints:
    pairs, judged = examined.pairs, examined.judged
    with np.errstate(invalid="ignore", over="ignore"):
        difference = pairs.candidate - pairs.reference
    return CurvePoints(
        len(pairs.steps), pairs.steps, pairs.reference, pairs.candidate, difference, judged.limit, judged.within
    )


def _verdict(examined: ExaminedCurves) -> Verdict:
    alike = int(np.count_nonzero(~examined.judged.finite & examined.judged.within))
    coverage = Coverage(
        unit="steps" if examined.reference.axis == "step" else "epochs",
        compared=len(examined.pairs.steps) - alike,
        excluded=alike,
        unmatched_reference=examined.pairs.unmatched_reference,
        unmatched_candidate=examined.pairs.unmatched_candidate,
    )
    if not coverage.compared:
        return Verdict(Outcome.NOT_COMPARED, _why_not_compared(examined.reference, examined.candidate, alike), coverage)
    if examined.too_few and not examined.values_differ:
        return Verdict(Outcome.NOT_COMPARED, f"too little to tell: {examined.too_few}", coverage)
    failed = [criterion for criterion in examined.criteria.values() if not criterion.passed]
    if failed:
        return Verdict(Outcome.NOT_ALIGNED, "; ".join(map(_said_of, failed)), coverage)
    return Verdict(Outcome.ALIGNED, "; ".join(_what_a_pass_covers(examined, coverage)), coverage)


def _said_of(failed: Criterion) -> str:
    """Tell a criterion in as many digits as show that it failed; counts in all."""
    for digits in (3, 6, 17):
        value, bound = (
            f"{one:,.0f}" if float(one).is_integer() and abs(one) >= 1 else f"{one:.{digits}g}"
            for one in (failed.value, failed.bound)
        )
        if value != bound:
            break
    return f"{failed.name}: {value}, allowed {bound}"


def _why_not_compared(reference: Curve, candidate: Curve, alike: int) -> str:
    if alike:
        return f"all {alike} common steps are NaN or Inf on both sides"
    spans = (f"{_where(curve)} in the {side}" for side, curve in (("reference", reference), ("candidate", candidate)))
    return f"no common step: {', '.join(spans)}"


def _where(curve: Curve) -> str:
    every = f", every {cadence(curve.steps)}" if len(curve.steps) > 1 else ""
    return f"{curve.axis}s {curve.steps[0]} to {curve.steps[-1]}{every}"


def _what_a_pass_covers(examined: ExaminedCurves, coverage: Coverage) -> list[str]:
    """Say over how much the curves agree, and what the reader should know before relying on it."""
    judged = examined.judged
    said = [f"within the limits over {coverage.compared} common {coverage.unit}"]
    if examined.envelope is None and coverage.compared < judged.limits.points:
        said[0] += f" ({judged.limits.points} are asked for by the source of the limits)"
    if examined.envelope and coverage.unmatched_candidate:
        said.append(f"{coverage.unmatched_candidate} of the candidate were not judged, as not all runs have them")
    if not judged.first_compared and examined.envelope is None and judged.limits.asks("first"):
        in_steps = examined.reference.axis == "step"
        why = "step 1 is not a finite point of both logs" if in_steps else "the logs count epochs"
        said.append(f"the first {judged.metric} was not compared: {why}")
    if len(examined.outside):
        first = examined.pairs.steps[examined.outside[0]]
        said.append(f"{len(examined.outside)} single points are beyond their own limit, first at step {first}")
    return [*said, *_untested(examined), *hidden_by_rounding(judged)]
