"""By how much two sides moved otherwise, over all elements, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.training.updates.apply_rule import BLOCK
from align.training.updates.observed_steps import drift, excess, last_places, rounding_limits

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.training.updates.observed_steps import ObservedSteps
    from align.training.updates.update_rules import UpdateRule


@dataclass(frozen=True, slots=True)
class UpdateFigures:
    """The figures of ParameterUpdates; `not_finite` counts elements of each side that are no numbers at the end."""

    difference: float
    places: float
    share: float | None
    first_step: int | None
    judged: float
    by_epsilon: int
    not_finite: tuple[int, int]


def measure_updates(reference: ObservedSteps, candidate: ObservedSteps, rule: UpdateRule | None) -> UpdateFigures:
    """Compare the movements of two sides step by step, with the rounding of the reference's rule if that is known."""
    size, count = len(reference.before[0]), len(reference.before)
    over, gaps, moved = np.zeros(count), np.zeros(count), np.zeros(count)
    places, judged, by_epsilon, drifted = 0.0, 0, 0, 0.0
    for start in range(0, size, BLOCK):
        mine, theirs = (one.some(slice(start, start + BLOCK)) for one in (reference, candidate))
        limits = rounding_limits(mine, rule, theirs)
        beyond = excess(theirs.moved, mine.moved, limits)
        over = np.maximum(over, beyond.max(axis=1))
        drifted = max(drifted, drift(theirs, mine.moved, limits))
        unguarded = excess(theirs.moved, mine.moved, rounding_limits(mine, rule, theirs, guarded=False))
        by_epsilon += int(((unguarded.max(axis=0) > 1) & (beyond.max(axis=0) <= 1)).sum())
        gap = _gaps(mine, theirs)
        gaps, moved = np.maximum(gaps, gap.max(axis=1)), np.maximum(moved, _finite(np.abs(mine.moved)).max(axis=1))
        places = max(places, float((gap / last_places(mine.before[0], mine.dtype)).max()))
        judged += int(np.isfinite(limits[-1]).sum())
    steps = np.flatnonzero(over > 1)
    ends = tuple(int((~np.isfinite(one.after[-1])).sum()) for one in (reference, candidate))
    return UpdateFigures(
        max(float(over.max(initial=0.0)), drifted),
        places,
        float((gaps[moved > 0] / moved[moved > 0]).max()) if np.any(moved) else None,
        int(steps[0]) if len(steps) else (0 if drifted > 1 else None),
        judged / size if size else 1.0,
        by_epsilon,
        (ends[0], ends[1]),
    )


def _gaps(mine: ObservedSteps, theirs: ObservedSteps) -> Array:
    with np.errstate(invalid="ignore"):
        return _finite(np.abs(np.stack(mine.moved) - np.stack(theirs.moved)))


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)
