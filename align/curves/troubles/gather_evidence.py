"""The evidence for a class of trouble, gathered from a judged case and from what the logs tell beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.curves.axis.place_on_axis import cut_after, pair_curves
from align.curves.criteria.one_step_shift import find_shift
from align.curves.loss_log import RAW
from align.curves.metric_names import is_loss
from align.curves.troubles.curve_evidence import CurveEvidence

if TYPE_CHECKING:
    from align.curves.criteria.examined_curves import ExaminedCurves
    from align.curves.criteria.other_metrics import OtherMetrics
    from align.curves.curve_result import Side


def gather_evidence(
    case: ExaminedCurves, failed: frozenset[str], divergent: int | None, last_step: int | None, beside: OtherMetrics
) -> CurveEvidence:
    """Gather what there is of a case; `failed` and `divergent` are what the verdict found, `beside` what logs tell."""
    ahead = _ahead(case, beside)
    return CurveEvidence(
        pairs=case.pairs,
        metric=case.reference.metric,
        outside=case.outside,
        failed=failed,
        divergent=divergent,
        first_compared=case.judged.first_compared,
        first_agrees=case.judged.first_agrees,
        shift_option=case.shift.option if case.shift and not ahead else "",
        update_behind=_update_behind(case),
        steps_per=case.ratio.option if case.ratio else "",
        ahead=ahead,
        run_noise=case.run_noise,
        drift=case.drift,
        curves=(cut_after(case.reference, last_step), cut_after(case.candidate, last_step)),
        beside=beside,
    )


def _update_behind(case: ExaminedCurves) -> Side | None:
    if case.shift is None or not case.shift.behind:
        return None
    return "reference" if case.shift.side == "candidate" else "candidate"


def _ahead(case: ExaminedCurves, beside: OtherMetrics) -> Side | None:
    """Return the side that is a step ahead in a metric that is no loss: the losses show that its steps are right."""
    if case.shift is None or is_loss(case.reference.metric):
        return None
    left, right = beside.losses
    if left is None or right is None:
        return None if case.shift.option else case.shift.side
    raw = left.window == right.window == RAW and left.axis == right.axis
    losses = find_shift(left, right, pair_curves(left, right)) if raw else None
    return None if losses is not None and losses.side == case.shift.side else case.shift.side
