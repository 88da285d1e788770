"""What can be told of two updates without knowing the rule of either: none on one side, or one times a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.training.updates.observed_steps import excess, rounding_limits
from align.training.updates_result import UpdateCause, UpdateChange

if TYPE_CHECKING:
    from align.training.updates.observed_steps import ObservedSteps

ELEMENTS = 1 << 16


def explain_ratio(reference: ObservedSteps, candidate: ObservedSteps, before: float) -> list[UpdateCause]:
    """Return the cause if one side did not move, or the movements of one are those of the other times one number.

    The number is sought and held against ELEMENTS elements from everywhere.
    """
    if reference.still or candidate.still:
        code = "did-not-move" if candidate.still else "reference-did-not-move"
        change = UpdateChange(code, "moved", not reference.still, not candidate.still)
        return [UpdateCause((change,), before, 0.0, confirmed=False)]
    reference, candidate = reference.spread(ELEMENTS), candidate.spread(ELEMENTS)
    mine, theirs = np.stack(reference.moved), np.stack(candidate.moved)
    ratio = float(np.sum(mine * theirs) / max(np.sum(mine * mine), np.finfo(np.float64).tiny))
    limits = [
        one + abs(ratio) * other
        for one, other in zip(rounding_limits(candidate, None), rounding_limits(reference, None), strict=True)
    ]
    after = float(excess(candidate.moved, list(ratio * mine), limits).max(initial=0.0))
    if not after <= 1:
        return []
    code = "sign" if abs(ratio + 1) < 1e-4 else "learning-rate"
    return [UpdateCause((UpdateChange(code, "movement", 1.0, float(f"{ratio:.4g}")),), before, after, confirmed=False)]
