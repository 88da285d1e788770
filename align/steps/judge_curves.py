"""Two paired curves judged: all criteria have to pass, and the reason says what a pass does not cover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.comparisons import CurveComparison, CurvePoint
from align.core.verdicts import Coverage, Outcome, Verdict
from align.steps.curves import cadence
from align.steps.loss_criteria import Ends, evaluate_criteria, measure_points
from align.steps.loss_limits import is_loss
from align.steps.loss_troubles import CurveEvidence, classify

if TYPE_CHECKING:
    from align.core.comparisons import Criterion
    from align.core.curves import Curve, PairedCurves
    from align.steps.loss_criteria import JudgedPoints


def judge_curves(
    reference: Curve, candidate: Curve, pairs: PairedCurves, last_step: int | None = None
) -> CurveComparison:
    """Judge two curves up to `last_step`; without a common point that can be judged the outcome is NOT_COMPARED."""
    judged = measure_points(reference.metric, reference.axis == "step", pairs)
    ends = Ends(_last(reference, last_step), _last(candidate, last_step), _coarser(reference, candidate))
    criteria = evaluate_criteria(pairs, judged, ends)
    outside = np.flatnonzero(~judged.within)
    failed = frozenset(key for key, criterion in criteria.items() if not criterion.passed)
    trouble, command = classify(CurveEvidence(pairs, outside, failed, is_loss(reference.metric)))
    return CurveComparison(
        metric=reference.metric,
        reference=reference,
        candidate=candidate,
        points=_points(pairs, judged),
        criteria=tuple(criteria.values()),
        first_divergent_step=int(pairs.steps[outside[0]]) if len(outside) and failed else None,
        trouble=trouble,
        next_command=command.replace("{last_common}", str(min(ends.reference, ends.candidate))),
        verdict=_verdict(reference, candidate, pairs, judged, criteria),
        notes=(*pairs.notes, *_notes(reference, candidate, pairs, judged)),
    )


def _last(curve: Curve, last_step: int | None) -> int:
    return max((step for step in curve.steps if last_step is None or step <= last_step), default=0)


def _coarser(reference: Curve, candidate: Curve) -> int:
    return max(cadence(np.array(curve.steps, np.int64)) for curve in (reference, candidate))


def _points(pairs: PairedCurves, judged: JudgedPoints) -> tuple[CurvePoint, ...]:
    columns = (pairs.steps, pairs.reference, pairs.candidate, judged.difference, judged.limit, judged.within)
    return tuple(CurvePoint(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def _verdict(
    reference: Curve, candidate: Curve, pairs: PairedCurves, judged: JudgedPoints, criteria: dict[str, Criterion]
) -> Verdict:
    alike = int(np.count_nonzero(~judged.finite & judged.within))
    coverage = Coverage(
        unit="steps" if reference.axis == "step" else "epochs",
        compared=len(pairs.steps) - alike,
        excluded=alike,
        unmatched_reference=pairs.unmatched_reference,
        unmatched_candidate=pairs.unmatched_candidate,
    )
    if not coverage.compared:
        return Verdict(Outcome.NOT_COMPARED, _why_not_compared(reference, candidate, alike), coverage)
    failed = [criterion for criterion in criteria.values() if not criterion.passed]
    if failed:
        found = "; ".join(f"{c.name}: {c.value:.3g}, allowed {c.bound:.3g}" for c in failed)
        return Verdict(Outcome.NOT_ALIGNED, found, coverage)
    return Verdict(Outcome.ALIGNED, "; ".join(_what_a_pass_covers(pairs, judged, coverage)), coverage)


def _why_not_compared(reference: Curve, candidate: Curve, alike: int) -> str:
    if alike:
        return f"all {alike} common steps are NaN or Inf on both sides"
    spans = (f"{_where(curve)} in the {side}" for side, curve in (("reference", reference), ("candidate", candidate)))
    return f"no common step: {', '.join(spans)}"


def _where(curve: Curve) -> str:
    every = f", every {cadence(np.array(curve.steps, np.int64))}" if len(curve.steps) > 1 else ""
    return f"{curve.axis}s {curve.steps[0]} to {curve.steps[-1]}{every}"


def _what_a_pass_covers(pairs: PairedCurves, judged: JudgedPoints, coverage: Coverage) -> list[str]:
    """Say over how much the curves agree, and what the reader should know before relying on it."""
    said = [f"within the limits over {coverage.compared} common {coverage.unit}"]
    if coverage.compared < judged.limits.points:
        said[0] += f" ({judged.limits.points} are asked for by the source of the limits)"
    if not judged.first_compared:
        said.append(f"the first {judged.metric} was not compared: step 1 is not a finite point of both logs")
    outside = np.flatnonzero(~judged.within)
    if len(outside):
        said.append(f"{len(outside)} single points are beyond their own limit, first at step {pairs.steps[outside[0]]}")
    widest = float(pairs.widening.max())
    if widest > judged.limits.mean_abs > 0.0:
        said.append(f"the printed digits hide differences of up to {widest:.2g}")
    return said


def _notes(reference: Curve, candidate: Curve, pairs: PairedCurves, judged: JudgedPoints) -> list[str]:
    notes = []
    cadences = [cadence(np.array(curve.steps, np.int64)) for curve in (reference, candidate)]
    if cadences[0] != cadences[1]:
        apart = f"{cadences[0]} and {cadences[1]} {reference.axis}s"
        notes.append(f"the points of the reference and of the candidate are {apart} apart")
    for side, curve, other in (("reference", reference, candidate), ("candidate", candidate, reference)):
        lone = _lone_steps(curve, other)
        if lone and cadences[0] == cadences[1]:
            notes.append(f"{len(lone)} {curve.axis}s are only in the {side} (first: {lone[0]})")
    alike = np.flatnonzero(~judged.finite & judged.within)
    if len(alike):
        notes.append(f"exception: NaN or Inf alike on both sides at {len(alike)} steps, first {pairs.steps[alike[0]]}")
    return notes


def _lone_steps(curve: Curve, other: Curve) -> list[int]:
    there = set(other.steps)
    return [step for step in curve.steps if step not in there]
