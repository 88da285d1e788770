"""The evidence for a class of trouble, gathered from the examined curves and from what the logs tell beside them."""

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
    examined: ExaminedCurves, failed: frozenset[str], divergent: int | None, last_step: int | None, beside: OtherMetrics
) -> CurveEvidence:
    """Gather what the curves tell; `failed` and `divergent` are what the verdict found, `beside` what logs tell."""
    ahead = _ahead(examined, beside)
    return CurveEvidence(
        pairs=examined.pairs,
        metric=examined.reference.metric,
        outside=examined.outside,
        failed=failed,
        divergent=divergent,
        first_compared=examined.judged.first_compared,
        first_agrees=examined.judged.first_agrees,
        shift_option=examined.shift.option if examined.shift and not ahead else "",
        update_behind=_update_behind(examined),
        last_common=min(examined.ends.reference, examined.ends.candidate),
        steps_per=examined.ratio.option if examined.ratio else "",
        window=examined.means.option if examined.means else "",
        ahead=ahead,
        run_noise=examined.run_noise,
        drift=examined.drift,
        curves=(cut_after(examined.reference, last_step), cut_after(examined.candidate, last_step)),
        beside=beside,
    )


def _update_behind(examined: ExaminedCurves) -> Side | None:
    if examined.shift is None or not examined.shift.behind:
        return None
    return "reference" if examined.shift.side == "candidate" else "candidate"


def _ahead(examined: ExaminedCurves, beside: OtherMetrics) -> Side | None:
    """Return the side that is a step ahead in a metric that is no loss: the losses show that its steps are right."""
    if examined.shift is None or is_loss(examined.reference.metric):
        return None
    left, right = beside.losses
    if left is None or right is None:
        return None if examined.shift.option else examined.shift.side
    raw = left.window == right.window == RAW and left.axis == right.axis
    losses = find_shift(left, right, pair_curves(left, right)) if raw else None
    return None if losses is not None and losses.side == examined.shift.side else examined.shift.side
