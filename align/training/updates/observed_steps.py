"""What one side did to some elements of a parameter, step by step, and how far rounding alone may take it.

The limit of an element at a step has three parts, added up:

- LAST_PLACES units in the last place of the value: a side rounds it when it stores it, and once more where the decay
  is taken off first.
- MOVEMENT_UNITS parts in 1/epsilon of the largest movement so far, for the roundings of moments and root. Betas are
  kept in float32, which changes 1 - beta by epsilon / (1 - beta), and the movement by half of that.
- MOMENT_NOISE_FACTOR times what the movement changes by if moments are rounded to the dtype of the values and squares
  that underflow are flushed. Where that is not finite, as for Adam in float16, the element is not judged.

Where Adam's epsilon is a mere guard (GUARD_EPSILON), what its place before or behind the bias correction makes is
allowed too: torch and MindSpore put it in different places, and it shows only where gradients are next to nothing.

So what is below rounding is no difference: a tiny movement of a large value, squares that underflow, a cancelled sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from align.core.dtypes import EPSILON, numpy_dtype
from align.training.thresholds import (
    DRIFT_DEVIATIONS,
    DRIFT_ROUNDING,
    GUARD_EPSILON,
    GUARD_EXCESS,
    LAST_PLACES,
    MOMENT_NOISE_FACTOR,
    MOVEMENT_UNITS,
    MOVEMENT_UNITS_UNKNOWN,
    TRIAL_MOVEMENT_SHARE,
)
from align.training.updates.apply_rule import GradientStep, movements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array
    from align.training.updates.update_rules import UpdateRule


@dataclass(frozen=True, slots=True)
class ObservedSteps:
    """Values before and after each step, and the gradients of the steps, all of the same elements, flat.

    They are as they were given until `some` takes part of them, in float64. `dtype` is that which they are judged as.
    """

    before: tuple[Array, ...]
    after: tuple[Array, ...]
    gradients: tuple[GradientStep, ...]
    dtype: str

    @property
    def moved(self) -> list[Array]:
        """How far each step went."""
        with np.errstate(invalid="ignore"):
            return [new - old for old, new in zip(self.before, self.after, strict=True)]

    @property
    def still(self) -> bool:
        """True if no step moved anything."""
        return all(np.array_equal(old, new) for old, new in zip(self.before, self.after, strict=True))

    def some(self, chosen: Array | slice) -> ObservedSteps:
        """Some elements only, in float64; norms stay those of all."""
        before, after = (tuple(one[chosen].astype(np.float64) for one in own) for own in (self.before, self.after))
        gradients = tuple(replace(one, values=one.values[chosen].astype(np.float64)) for one in self.gradients)
        return ObservedSteps(before, after, gradients, self.dtype)

    def spread(self, count: int) -> ObservedSteps:
        """So many elements from everywhere, all if there are no more."""
        size = len(self.before[0])
        return self.some(np.unique(np.linspace(0, size - 1, min(size, count)).astype(np.int64)))


def observed_steps(
    before: Sequence[Array], after: Sequence[Array], gradients: Sequence[GradientStep], dtype: str
) -> ObservedSteps:
    """Take what a side did: its values before and after each step, of any shape, to be judged as a dtype."""
    old, new = (tuple(one.reshape(-1) for one in own) for own in (before, after))
    return ObservedSteps(old, new, tuple(replace(one, values=one.values.reshape(-1)) for one in gradients), dtype)


def last_places(values: Array, dtype: str) -> Array:
    """The unit in the last place of each value in a dtype; that of 0 is the least number that the dtype has.

    Where a library has the processor flush subnormal numbers to zero, the least is taken in float64, never 0.
    """
    info = ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]
    least = float(info.smallest_normal) * float(info.eps) or float(info.smallest_normal)
    units = np.ldexp(EPSILON[dtype], np.frexp(values)[1] - 1)
    return np.maximum(np.where(values == 0, 0.0, units), least)


def rounding_limits(
    steps: ObservedSteps,
    rule: UpdateRule | None,
    other: ObservedSteps | None = None,
    *,
    noisy: bool = True,
    guarded: bool = True,
) -> list[Array]:
    """How far each step may be from another computation of the same, in the units of the values, element by element.

    `other` is the side that it is compared with, whose movements count too. There is no noise part without a `rule` and
    unless `noisy`; the place of a small epsilon is not allowed for unless `guarded` too.
    """
    sides = [steps] if other is None else [steps, other]
    epsilon = EPSILON[steps.dtype] * _relative(rule)
    still = [np.zeros_like(one) for one in steps.before]
    allowed = still if rule is None or not noisy else _noise(steps, rule, guarded=guarded)
    limits, largest = [], np.zeros_like(steps.before[0])
    moved = [side.moved for side in sides]
    with np.errstate(all="ignore"):
        for number, own in enumerate(allowed):
            for one in moved:
                largest = np.fmax(largest, np.abs(one[number]))
            ends = [np.abs(one[number]) for side in sides for one in (side.before, side.after)]
            places = last_places(np.fmax.reduce(ends), steps.dtype)
            limits.append(LAST_PLACES * places + epsilon * largest + own)
    return [np.where(np.isnan(one), np.inf, one) for one in limits]


def _relative(rule: UpdateRule | None) -> float:
    if rule is None:
        return MOVEMENT_UNITS_UNKNOWN
    squared = rule.kind in ("adam", "rmsprop", "adadelta")
    return MOVEMENT_UNITS + (0.5 / max(1 - rule.beta2, 1e-6) if squared else 0.0)


def _noise(steps: ObservedSteps, rule: UpdateRule, *, guarded: bool) -> list[Array]:
    """What rounded moments change, and the place of a small epsilon."""
    exact = movements(rule, steps.before, steps.gradients)
    rounded = movements(rule, steps.before, steps.gradients, steps.dtype)
    noise = [MOMENT_NOISE_FACTOR * one for one in _largest_gaps(exact, rounded)]
    if not guarded or rule.kind != "adam" or not 0 < rule.epsilon <= GUARD_EPSILON:
        return noise
    moved = movements(replace(rule, epsilon_scaled=not rule.epsilon_scaled), steps.before, steps.gradients)
    return [one + GUARD_EXCESS * other for one, other in zip(noise, _largest_gaps(exact, moved), strict=True)]


def _largest_gaps(ones: Sequence[Array], others: Sequence[Array]) -> list[Array]:
    """The largest difference up to each step, infinite from where it is no number."""
    largest, gaps = np.zeros_like(ones[0]), []
    with np.errstate(invalid="ignore"):
        for one, other in zip(ones, others, strict=True):
            gap = np.abs(one - other)
            largest = np.maximum(largest, np.where(np.isfinite(gap), gap, np.inf))
            gaps.append(largest)
    return gaps


def excess(moved: Sequence[Array], expected: Sequence[Array], limits: Sequence[Array]) -> Array:
    """By how many limits each step went elsewhere, (steps, elements); infinite where one only is no number.

    Elements that cannot be judged, or are no numbers on both sides, count 0.
    """
    rows = []
    with np.errstate(all="ignore"):
        for one, other, limit in zip(moved, expected, limits, strict=True):
            finite = np.isfinite(one), np.isfinite(other)
            ratio = np.where(np.isinf(limit), 0.0, np.abs(one - other) / limit)
            rows.append(np.where(finite[0] & finite[1], ratio, np.where(finite[0] == finite[1], 0.0, np.inf)))
    return np.stack(rows)


def drift(steps: ObservedSteps, expected: Sequence[Array], limits: Sequence[Array]) -> float:
    """By how many limits the steps drift away from expected movements in proportion to the values.

    With the rates of fine-tuning (2e-5 times a decay of 0.01) one step takes about one unit in the last place off.
    Rounding errors go both ways and cancel over many elements, a decay does not. So the share of its value that an
    element lost, over all steps, is estimated from all elements and held against the error of that estimate.
    """
    with np.errstate(all="ignore"):
        gaps = [one - other for one, other in zip(steps.moved, expected, strict=True)]
        places = last_places(steps.before[0], steps.dtype)
        return _drift_excess(gaps, [one - LAST_PLACES * places for one in limits], steps.before[0], places, steps.dtype)


def _drift_excess(gaps: Sequence[Array], others: Sequence[Array], values: Array, places: Array, dtype: str) -> float:
    """By how many limits all elements together drift in proportion to their values; up to 1 it is rounding.

    `gaps` are the differences of the movements of each step, `others` what these may be for another reason than
    rounding of the value, `values` those before the first step, and `places` their units in the last place. A factor
    of the value is itself rounded, alike for all elements: half an epsilon for each step is no drift.
    """
    total, rest = np.sum(gaps, axis=0), np.sum(others, axis=0)
    judged = np.isfinite(total) & np.isfinite(rest) & (values != 0)
    relative = np.where(judged, values / places, 0.0)
    weight = float(relative @ relative)
    if not weight:
        return 0.0
    scaled = [np.where(judged, one / places, 0.0) for one in (total, rest)]
    drift = abs(float(scaled[0] @ relative)) / weight
    allowed = float(scaled[1] @ np.abs(relative)) / weight
    chance = DRIFT_DEVIATIONS * DRIFT_ROUNDING * np.sqrt(len(gaps) / weight)
    return float(drift / (allowed + chance + len(gaps) * EPSILON[dtype] / 2))


def trial_caps(steps: ObservedSteps, reference: UpdateRule) -> list[Array]:
    """The most that a changed rule may be off: as much as the reference's, and TRIAL_MOVEMENT_SHARE of the movement.

    A change may make a rule so unstable that noise would excuse everything; that explains nothing.
    """
    largest, caps = np.zeros_like(steps.before[0]), []
    for moved, limit in zip(steps.moved, rounding_limits(steps, reference), strict=True):
        largest = np.fmax(largest, np.abs(moved))
        caps.append(limit + TRIAL_MOVEMENT_SHARE * largest)
    return caps


def rule_excess(steps: ObservedSteps, rule: UpdateRule, caps: Sequence[Array] | None) -> float:
    """By how many limits a rule fails to reproduce the steps, at its worst element; up to 1 it reproduces them.

    All elements together count too, by their drift. `caps` are as trial_caps gives them. With them a rule that the
    dtype cannot hold, as of a factor of 1e90, reproduces nothing.
    """
    limits = rounding_limits(steps, rule)
    if caps is not None:
        if any(np.any(np.isinf(one) & np.isfinite(cap)) for one, cap in zip(limits, caps, strict=True)):
            return np.inf
        limits = [np.minimum(one, cap) for one, cap in zip(limits, caps, strict=True)]
    expected = movements(rule, steps.before, steps.gradients)
    worst = float(excess(steps.moved, expected, limits).max(initial=0.0))
    return max(worst, drift(steps, expected, limits))


def reproduces(steps: ObservedSteps, rule: UpdateRule, caps: Sequence[Array]) -> bool:
    """Tell whether rule_excess is at most 1. No limit is wider than its cap: most rules fail before theirs is known."""
    expected = movements(rule, steps.before, steps.gradients)
    return float(excess(steps.moved, expected, caps).max(initial=0.0)) <= 1 and rule_excess(steps, rule, caps) <= 1


def missed_by(steps: ObservedSteps, rule: UpdateRule) -> Array:
    """By how many limits a rule fails to reproduce each element, the worst step of it."""
    expected = movements(rule, steps.before, steps.gradients)
    return np.asarray(excess(steps.moved, expected, rounding_limits(steps, rule)).max(axis=0))
