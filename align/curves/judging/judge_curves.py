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
from align.curves.curve_result import CurveComparison, CurveEvent, CurvePoints
from align.curves.judging.curve_notes import curve_notes, hidden_by_rounding
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
    case = examine_curves(reference, candidate, pairs, last_step, preset, reference_runs)
    verdict = _verdict(case)
    judged = verdict.outcome is not Outcome.NOT_COMPARED
    divergent = _first_divergent_step(case)
    evidence = gather_evidence(case, _failed(case), divergent, last_step, beside)
    trouble, command = classify_trouble(evidence) if judged else ("", _look_again(case))
    points = _points(case)
    return CurveComparison(
        metric=reference.metric,
        preset="reference runs" if case.envelope else preset.name,
        reference=reference,
        candidate=candidate,
        points=points,
        criteria=tuple(case.criteria.values()),
        first_divergent_step=divergent,
        trouble=trouble,
        next_command=command.replace("{last_common}", str(min(case.ends.reference, case.ends.candidate))),
        verdict=verdict,
        notes=(*curve_notes(case), *_drift_notes(case, points)),
        reference_runs=case.envelope.labels if case.envelope else (),
        drift=case.drift,
        events=_change_points(case, points),
    )


def _look_again(case: ExaminedCurves) -> str:
    """Return what to run where nothing could be compared."""
    option = "" if len(case.pairs.steps) else find_common_base(case.reference, case.candidate)
    return f"align loss REFERENCE CANDIDATE {option}, if that log counts from 0" if option else LOOK_AT_EACH


def _first_divergent_step(case: ExaminedCurves) -> int | None:
    """Return where the values part and stay apart, or before that a point that must not differ even alone."""
    if not case.values_differ:
        return None
    failed, finite = _failed(case), case.judged.finite
    alone = case.outside if "every" in failed else case.outside[~finite[case.outside]]
    places = [*alone[:1].tolist(), *([0] if "first" in failed else []), *([case.stretch.first] if case.stretch else [])]
    return int(case.pairs.steps[min(places)]) if places else None


def _change_points(case: ExaminedCurves, points: CurvePoints) -> tuple[CurveEvent, ...]:
    """Return where the stretch that differs begins, with the mean difference over it, and where it ends if it does."""
    if case.stretch is None or not case.values_differ:
        return ()
    first, last, ended = case.stretch
    inside = points.difference[first : last + 1]
    known = inside[np.isfinite(inside)]
    mean = float(np.mean(known)) if len(known) else None
    if not ended:
        return (CurveEvent("change point", int(points.step[first]), value=mean),)
    apart = CurveEvent("apart for a while", int(points.step[first]), value=mean)
    return apart, CurveEvent("together again", int(points.step[last + 1]))


def _drift_notes(case: ExaminedCurves, points: CurvePoints) -> list[str]:
    told = drift_note(case.drift, points.difference[np.isfinite(points.difference)])
    within = "" if case.values_differ else ", within the limits"
    return [*_untested(case), *([told + within] if told else [])]


def _untested(case: ExaminedCurves) -> list[str]:
    """Say what was to be tested and could not be; drift is where there are points enough."""
    asked = case.judged.limits.drift or len(case.pairs.steps) >= FEWEST
    untested = ["drift"] if asked and case.criteria and not case.drift else []
    if case.envelope and case.criteria and "share" not in case.criteria:
        untested.append("how many points are outside")
    return [f"{what} could not be tested: too few points are independent of their neighbours" for what in untested]


def _failed(case: ExaminedCurves) -> frozenset[str]:
    """Return the keys of the criteria that failed, and "first" and "mean" where others failed for these points."""
    failed = case.failed
    if failed.isdisjoint({"every", "share", "drift"}):
        return failed
    stays = case.envelope is None or (case.stretch is not None and case.stretch.first == 0)
    first = case.judged.first_compared and not case.judged.within[0] and stays
    return failed | {"mean"} | ({"first"} if first else set())


def _points(case: ExaminedCurves) -> CurvePoints:
    pairs, judged = case.pairs, case.judged
    with np.errstate(invalid="ignore", over="ignore"):
        difference = pairs.candidate - pairs.reference
    return CurvePoints(
        len(pairs.steps), pairs.steps, pairs.reference, pairs.candidate, difference, judged.limit, judged.within
    )


def _verdict(case: ExaminedCurves) -> Verdict:
    alike = int(np.count_nonzero(~case.judged.finite & case.judged.within))
    coverage = Coverage(
        unit="steps" if case.reference.axis == "step" else "epochs",
        compared=len(case.pairs.steps) - alike,
        excluded=alike,
        unmatched_reference=case.pairs.unmatched_reference,
        unmatched_candidate=case.pairs.unmatched_candidate,
    )
    if not coverage.compared:
        return Verdict(Outcome.NOT_COMPARED, _why_not_compared(case.reference, case.candidate, alike), coverage)
    if case.too_few and not case.values_differ:
        return Verdict(Outcome.NOT_COMPARED, f"too little to tell: {case.too_few}", coverage)
    failed = [criterion for criterion in case.criteria.values() if not criterion.passed]
    if failed:
        return Verdict(Outcome.NOT_ALIGNED, "; ".join(map(_said_of, failed)), coverage)
    return Verdict(Outcome.ALIGNED, "; ".join(_what_a_pass_covers(case, coverage)), coverage)


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


def _what_a_pass_covers(case: ExaminedCurves, coverage: Coverage) -> list[str]:
    """Say over how much the curves agree, and what the reader should know before relying on it."""
    judged = case.judged
    said = [f"within the limits over {coverage.compared} common {coverage.unit}"]
    if case.envelope is None and coverage.compared < judged.limits.points:
        said[0] += f" ({judged.limits.points} are asked for by the source of the limits)"
    if case.envelope and coverage.unmatched_candidate:
        said.append(f"{coverage.unmatched_candidate} of the candidate were not judged, as not all runs have them")
    if not judged.first_compared and case.envelope is None and judged.limits.asks("first"):
        why = "step 1 is not a finite point of both logs" if case.reference.axis == "step" else "the logs count epochs"
        said.append(f"the first {judged.metric} was not compared: {why}")
    if len(case.outside):
        first = case.pairs.steps[case.outside[0]]
        said.append(f"{len(case.outside)} single points are beyond their own limit, first at step {first}")
    return [*said, *_untested(case), *hidden_by_rounding(judged)]
