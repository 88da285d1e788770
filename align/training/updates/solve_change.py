"""Numbers of a change, solved so that the changed rule reproduces what was observed, and then made as round as may be.

Damped least squares (Levenberg, Marquardt) on differences in units of their limits, from several starts.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from align.training.updates.apply_rule import movements
from align.training.updates.observed_steps import rule_excess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.training.updates.observed_steps import ObservedSteps
    from align.training.updates.rule_changes import RuleChange, Unknown
    from align.training.updates.update_rules import UpdateRule

ROUNDS = 20
NUDGE = 1e-6
MOST_STARTS = 12
DIGITS = (1, 2, 3, 4, 5, 6)
FAR = 1e12  # residuals are cut there, so that their squares stay numbers


def solve_change(
    change: RuleChange, reference: UpdateRule, steps: ObservedSteps, limits: Sequence[Array]
) -> tuple[float, ...] | None:
    """Return the numbers with which the changed rule reproduces the steps, None if there are none."""
    if not change.unknown:
        return () if rule_excess(steps, change.rule(reference), reference) <= 1 else None
    residual = _residual(change, reference, steps, limits)
    starts = [_encoded(change.unknown, values) for values in product(*(one.starts for one in change.unknown))]
    costs = [_cost(residual(start)) for start in starts[:MOST_STARTS]]
    for place in np.argsort(costs)[:2]:
        solved = _decoded(change.unknown, _descend(residual, starts[place]))
        if rule_excess(steps, change.rule(reference, solved), reference) <= 1:
            return _rounded(change, reference, steps, solved)
    return None


def _residual(
    change: RuleChange, reference: UpdateRule, steps: ObservedSteps, limits: Sequence[Array]
) -> Callable[[Array], Array]:
    moved = np.stack(steps.moved)
    weights = 1.0 / np.stack(list(limits))

    def residual(place: Array) -> Array:
        rule = change.rule(reference, _decoded(change.unknown, place))
        gap = (np.stack(movements(rule, steps.before, steps.gradients)) - moved) * weights
        return np.asarray(np.clip(np.nan_to_num(gap, nan=FAR, posinf=FAR, neginf=-FAR), -FAR, FAR)).reshape(-1)

    return residual


def _encoded(unknown: Sequence[Unknown], values: Sequence[float]) -> Array:
    return np.array([one.encode(value) for one, value in zip(unknown, values, strict=True)])


def _decoded(unknown: Sequence[Unknown], place: Array) -> tuple[float, ...]:
    return tuple(one.decode(float(value)) for one, value in zip(unknown, place, strict=True))


def _cost(residual: Array) -> float:
    return float(residual @ residual)


def _descend(residual: Callable[[Array], Array], start: Array) -> Array:
    place, rest, damping = start, residual(start), 1e-3
    for _ in range(ROUNDS):
        slopes = _slopes(residual, place, rest)
        normal, downhill = slopes @ slopes.T, -slopes @ rest
        step = _damped(normal, downhill, damping)
        tried = residual(place + step)
        if _cost(tried) < _cost(rest):
            place, rest, damping = place + step, tried, damping / 10
        elif damping > 1e6 or not np.any(step):
            break
        else:
            damping *= 10
        if np.all(np.abs(step) < 1e-13 * (1 + np.abs(place))):
            break
    return place


def _slopes(residual: Callable[[Array], Array], place: Array, rest: Array) -> Array:
    nudges = NUDGE * np.maximum(np.abs(place), 1e-3) * np.eye(len(place))
    return np.stack([(residual(place + one) - rest) / one.sum() for one in nudges])


def _damped(normal: Array, downhill: Array, damping: float) -> Array:
    diagonal = np.diag(normal) * damping
    matrix = normal + np.diag(np.where(diagonal > 0, diagonal, 1.0))
    return np.asarray(np.linalg.lstsq(matrix, downhill, rcond=None)[0])


def _rounded(
    change: RuleChange, reference: UpdateRule, steps: ObservedSteps, solved: tuple[float, ...]
) -> tuple[float, ...]:
    """The roundest numbers that reproduce the steps as well, one after the other."""
    kept = list(solved)
    for place, value in enumerate(solved):
        for candidate in _rounder(value):
            tried = [*kept[:place], candidate, *kept[place + 1 :]]
            if rule_excess(steps, change.rule(reference, tried), reference) <= 1:
                kept = tried
                break
    return tuple(kept)


def _rounder(value: float) -> Iterator[float]:
    """Numbers of few digits near a value, then parts of one by such a number."""
    for digits in DIGITS:
        yield float(f"{value:.{digits}g}")
        if value and digits <= 4:
            yield 1.0 / float(f"{1 / value:.{digits}g}")
