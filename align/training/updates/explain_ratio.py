"""What can be told of two updates without knowing the rule of either: none on one side, or one times a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.training.updates.observed_steps import excess, rounding_limits
from align.training.updates_result import UpdateCause, UpdateChange

if TYPE_CHECKING:
    from align.training.updates.observed_steps import ObservedSteps


def explain_ratio(reference: ObservedSteps, candidate: ObservedSteps, before: float) -> list[UpdateCause]:
    """Return the cause if one side did not move, or the movements of one are those of the other times one number."""
    mine, theirs = np.stack(reference.moved), np.stack(candidate.moved)
    if not np.any(theirs) or not np.any(mine):
        code = "reference-did-not-move" if np.any(theirs) else "did-not-move"
        change = UpdateChange(code, "moved", bool(np.any(mine)), bool(np.any(theirs)))
        return [UpdateCause((change,), before, 0.0, confirmed=False)]
    ratio = float(np.sum(mine * theirs) / np.sum(mine * mine))
    limits = [
        one + abs(ratio) * other
        for one, other in zip(rounding_limits(candidate, None), rounding_limits(reference, None), strict=True)
    ]
    after = float(excess(candidate.moved, list(ratio * mine), limits).max(initial=0.0))
    if not after <= 1:
        return []
    code = "sign" if abs(ratio + 1) < 1e-4 else "learning-rate"
    return [UpdateCause((UpdateChange(code, "movement", 1.0, float(f"{ratio:.4g}")),), before, after, confirmed=False)]
