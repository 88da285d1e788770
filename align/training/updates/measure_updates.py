"""By how much two sides moved otherwise, over all elements, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.training.thresholds import BLOCK_ELEMENTS
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
    places, drifted, unjudged, by_epsilon = 0.0, 0.0, 0, 0
    for start in range(0, size, BLOCK_ELEMENTS):
        mine, theirs = (one.some(slice(start, start + BLOCK_ELEMENTS)) for one in (reference, candidate))
        block = _beyond(mine, theirs, rule)
        over, drifted = np.maximum(over, block.steps), max(drifted, block.drifted)
        unjudged, by_epsilon = unjudged + block.unjudged, by_epsilon + block.by_epsilon
        gap = _gaps(mine, theirs)
        gaps, moved = np.maximum(gaps, gap.max(axis=1)), np.maximum(moved, _finite(np.abs(mine.moved)).max(axis=1))
        places = max(places, float((gap / last_places(mine.before[0], mine.dtype)).max()))
    ends = tuple(int((~np.isfinite(one.after[-1])).sum()) for one in (reference, candidate))
    return UpdateFigures(
        max(float(over.max(initial=0.0)), drifted),
        places,
        float((gaps[moved > 0] / moved[moved > 0]).max()) if np.any(moved) else None,
        _first(over, drifted),
        1 - unjudged / size if size else 1.0,
        by_epsilon,
        (ends[0], ends[1]),
    )


@dataclass(frozen=True, slots=True)
class _Beyond:
    """What of a block is beyond rounding: the worst of each step, in limits, and elements that are set aside."""

    steps: Array
    drifted: float
    unjudged: int = 0
    by_epsilon: int = 0


def _beyond(mine: ObservedSteps, theirs: ObservedSteps, rule: UpdateRule | None) -> _Beyond:
    """Noise is asked for where the plain limits do not hold."""
    plain = rounding_limits(mine, rule, theirs, noisy=False)
    beyond, drifted = excess(theirs.moved, mine.moved, plain), drift(theirs, mine.moved, plain)
    if rule is None or max(float(beyond.max()), drifted) <= 1:
        return _Beyond(beyond.max(axis=1), drifted)
    limits = rounding_limits(mine, rule, theirs)
    allowed = excess(theirs.moved, mine.moved, limits)
    unguarded = excess(theirs.moved, mine.moved, rounding_limits(mine, rule, theirs, guarded=False))
    by_epsilon = int(((unguarded.max(axis=0) > 1) & (allowed.max(axis=0) <= 1)).sum())
    unjudged = int(np.isinf(limits[-1]).sum())
    return _Beyond(allowed.max(axis=1), drift(theirs, mine.moved, limits), unjudged, by_epsilon)


def _first(over: Array, drifted: float) -> int | None:
    """The first step that is beyond its limit; a drift is there from the first on."""
    steps = np.flatnonzero(over > 1)
    return int(steps[0]) if len(steps) else (0 if drifted > 1 else None)


def _gaps(mine: ObservedSteps, theirs: ObservedSteps) -> Array:
    with np.errstate(invalid="ignore"):
        return _finite(np.abs(np.stack(mine.moved) - np.stack(theirs.moved)))


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)
