"""Two paired curves judged: all criteria have to pass, and the reason says what a pass does not cover.

A difference is a difference however few points show it. To pass takes more: a few points out of many, of a log whose
own cadence does not explain that there are so few, could not be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.curve_results import CurveComparison, CurvePoints
from align.core.verdicts import Coverage, Outcome, Verdict
from align.steps.curves import cadence
from align.steps.loss_case import LossCase, examine
from align.steps.loss_limits import is_loss
from align.steps.loss_notes import curve_notes, hidden_by_rounding
from align.steps.loss_troubles import CurveEvidence, classify

if TYPE_CHECKING:
    from align.core.curves import Curve, PairedCurves

LOOK_AT_EACH = "align loss REFERENCE, and align loss CANDIDATE: each shows what is understood of one log"


def judge_curves(
    reference: Curve, candidate: Curve, pairs: PairedCurves, last_step: int | None = None
) -> CurveComparison:
    """Judge two curves up to `last_step`.

    Without a common point that can be judged, or with too few of them to pass, the outcome is NOT_COMPARED.
    """
    case = examine(reference, candidate, pairs, last_step)
    verdict = _verdict(case)
    trouble, command = ("", LOOK_AT_EACH) if verdict.outcome is Outcome.NOT_COMPARED else classify(_evidence(case))
    return CurveComparison(
        metric=reference.metric,
        preset=case.judged.limits.source,
        reference=reference,
        candidate=candidate,
        points=_points(case),
        criteria=tuple(case.criteria.values()),
        first_divergent_step=int(pairs.steps[case.outside[0]]) if len(case.outside) and case.values_differ else None,
        trouble=trouble,
        next_command=command.replace("{last_common}", str(min(case.ends.reference, case.ends.candidate))),
        verdict=verdict,
        notes=curve_notes(case),
    )


def _evidence(case: LossCase) -> CurveEvidence:
    return CurveEvidence(
        pairs=case.pairs,
        outside=case.outside,
        failed=case.failed,
        of_loss=is_loss(case.reference.metric),
        first_compared=case.judged.first_compared,
        first_agrees=case.judged.first_agrees,
        shift_option=case.shift.option if case.shift else "",
    )


def _points(case: LossCase) -> CurvePoints:
    pairs, judged = case.pairs, case.judged
    with np.errstate(invalid="ignore", over="ignore"):
        difference = pairs.candidate - pairs.reference
    return CurvePoints(
        len(pairs.steps), pairs.steps, pairs.reference, pairs.candidate, difference, judged.limit, judged.within
    )


def _verdict(case: LossCase) -> Verdict:
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
        found = "; ".join(f"{c.name}: {c.value:.3g}, allowed {c.bound:.3g}" for c in failed)
        return Verdict(Outcome.NOT_ALIGNED, found, coverage)
    return Verdict(Outcome.ALIGNED, "; ".join(_what_a_pass_covers(case, coverage)), coverage)


def _why_not_compared(reference: Curve, candidate: Curve, alike: int) -> str:
    if alike:
        return f"all {alike} common steps are NaN or Inf on both sides"
    spans = (f"{_where(curve)} in the {side}" for side, curve in (("reference", reference), ("candidate", candidate)))
    return f"no common step: {', '.join(spans)}"


def _where(curve: Curve) -> str:
    every = f", every {cadence(curve.steps)}" if len(curve.steps) > 1 else ""
    return f"{curve.axis}s {curve.steps[0]} to {curve.steps[-1]}{every}"


def _what_a_pass_covers(case: LossCase, coverage: Coverage) -> list[str]:
    """Say over how much the curves agree, and what the reader should know before relying on it."""
    judged = case.judged
    said = [f"within the limits over {coverage.compared} common {coverage.unit}"]
    if coverage.compared < judged.limits.points:
        said[0] += f" ({judged.limits.points} are asked for by the source of the limits)"
    if not judged.first_compared:
        said.append(f"the first {judged.metric} was not compared: step 1 is not a finite point of both logs")
    if len(case.outside):
        first = case.pairs.steps[case.outside[0]]
        said.append(f"{len(case.outside)} single points are beyond their own limit, first at step {first}")
    return [*said, *hidden_by_rounding(judged)]
