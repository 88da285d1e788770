"""Numbers of a change, solved so that the changed rule reproduces what was observed, and then made as round as may be.

Damped least squares (Levenberg, Marquardt) on differences in units of their limits, from several starts.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from align.training.thresholds import (
    SOLVER_DAMPING,
    SOLVER_DIGITS,
    SOLVER_GAIN,
    SOLVER_NUDGE,
    SOLVER_RESIDUAL,
    SOLVER_ROUNDS,
    SOLVER_STARTS,
)
from align.training.updates.apply_rule import movements
from align.training.updates.observed_steps import reproduces, rounding_limits, trial_caps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.training.updates.observed_steps import ObservedSteps
    from align.training.updates.rule_changes import RuleChange, Unknown
    from align.training.updates.update_rules import UpdateRule

LEAST = 1e-300  # format: a float64 that may be divided by


class ChangeSolver:
    """Solves changes of one rule on the steps of one candidate."""

    def __init__(self, steps: ObservedSteps, reference: UpdateRule) -> None:
        self._steps, self._reference = steps, reference
        self._caps = trial_caps(steps, reference)
        self._moved = np.stack(steps.moved)
        self._weights = 1.0 / np.stack(rounding_limits(steps, reference))

    def solve(self, change: RuleChange) -> tuple[float, ...] | None:
        """Return the numbers with which the changed rule reproduces the steps, None if there are none."""
        if not change.unknown:
            return () if self._holds(change, ()) else None
        residual = self._residual(change)
        starts = [_encoded(change.unknown, values) for values in product(*(one.starts for one in change.unknown))]
        costs = [_cost(residual(start)) for start in starts[:SOLVER_STARTS]]
        for place in np.argsort(costs)[:2]:
            solved = _decoded(change.unknown, _descend(residual, starts[place]))
            if self._holds(change, solved):
                return self._rounded(change, solved)
        return None

    def _holds(self, change: RuleChange, numbers: Sequence[float]) -> bool:
        return reproduces(self._steps, change.rule(self._reference, numbers), self._caps)

    def _residual(self, change: RuleChange) -> Callable[[Array], Array]:
        def residual(place: Array) -> Array:
            rule = change.rule(self._reference, _decoded(change.unknown, place))
            expected = np.stack(movements(rule, self._steps.before, self._steps.gradients))
            gap = (expected - self._moved) * self._weights
            return np.asarray(np.maximum(np.fmin(gap, SOLVER_RESIDUAL), -SOLVER_RESIDUAL)).reshape(
                -1
            )  # what is no number is SOLVER_RESIDUAL too

        return residual

    def _rounded(self, change: RuleChange, solved: tuple[float, ...]) -> tuple[float, ...]:
        """The roundest numbers that reproduce the steps as well, one after the other."""
        kept = list(solved)
        for place, value in enumerate(solved):
            for candidate in _rounder(value):
                tried = [*kept[:place], candidate, *kept[place + 1 :]]
                if self._holds(change, tried):
                    kept = tried
                    break
        return tuple(kept)


def _encoded(unknown: Sequence[Unknown], values: Sequence[float]) -> Array:
    return np.array([one.encode(value) for one, value in zip(unknown, values, strict=True)])


def _decoded(unknown: Sequence[Unknown], place: Array) -> tuple[float, ...]:
    return tuple(one.decode(float(value)) for one, value in zip(unknown, place, strict=True))


def _cost(residual: Array) -> float:
    return float(residual @ residual)


def _descend(residual: Callable[[Array], Array], start: Array) -> Array:
    place, rest, damping = start, residual(start), 1e-3
    slopes = _slopes(residual, place, rest)
    for _ in range(SOLVER_ROUNDS):
        normal, downhill = slopes @ slopes.T, -slopes @ rest
        step = _damped(normal, downhill, damping)
        tried = residual(place + step)
        gain = 1 - _cost(tried) / max(_cost(rest), LEAST)
        if gain > 0:
            place, rest, damping = place + step, tried, damping / 10
        elif damping > SOLVER_DAMPING:
            break
        else:
            damping *= 10
        if 0 <= gain < SOLVER_GAIN or not np.any(step):
            break
        if gain > 0:
            slopes = _slopes(residual, place, rest)
    return place


def _slopes(residual: Callable[[Array], Array], place: Array, rest: Array) -> Array:
    nudges = SOLVER_NUDGE * np.maximum(np.abs(place), 1e-3) * np.eye(len(place))
    return np.stack([(residual(place + one) - rest) / one.sum() for one in nudges])


def _damped(normal: Array, downhill: Array, damping: float) -> Array:
    diagonal = np.diag(normal) * damping
    matrix = normal + np.diag(np.where(diagonal > 0, diagonal, 1.0))
    return np.asarray(np.linalg.lstsq(matrix, downhill, rcond=None)[0])


def _rounder(value: float) -> Iterator[float]:
    """Numbers of few digits near a value, then parts of one by such a number."""
    for digits in SOLVER_DIGITS:
        yield float(f"{value:.{digits}g}")
        if value and digits <= 4:
            yield 1.0 / float(f"{1 / value:.{digits}g}")
