"""A rule of updates, computed in float64.

With a dtype given, gradients, moments and movements are rounded to it wherever an implementation would keep them, and
what it cannot hold normally is flushed to zero: where that makes a difference, two implementations of one rule may
differ by as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from align.core.dtypes import numpy_dtype
from align.training.thresholds import BLOCK_ELEMENTS
from align.training.updates.update_formulas import FORMULAS, Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.training.updates.update_rules import UpdateRule

CLIP_GUARD = 1e-6  # format: what torch's clip_grad_norm_ adds to the norm


@dataclass(frozen=True, slots=True)
class GradientStep:
    """One gradient, with its norm and that of the gradients of all parameters.

    The norms are given, since the values may be some of a parameter only.
    """

    values: Array
    norm: float
    global_norm: float


def gradient_norm(gradient: Array) -> float:
    """The Euclidean norm in float64, block by block."""
    flat = gradient.reshape(-1)
    blocks = (flat[one].astype(np.float64) for one in blocks_of(len(flat)))
    return float(np.sqrt(sum(float(block @ block) for block in blocks)))


def blocks_of(size: int) -> Iterator[slice]:
    """Slices that together are so many elements, so that float64 is made of a few at a time."""
    return (slice(start, start + BLOCK_ELEMENTS) for start in range(0, size, BLOCK_ELEMENTS))


def moved_norm(before: Array, after: Array) -> float:
    """The Euclidean norm of a movement in float64, block by block."""
    start, end = before.reshape(-1), after.reshape(-1)
    squares = 0.0
    for block in blocks_of(len(start)):
        with np.errstate(invalid="ignore"):  # infinities
            change = end[block].astype(np.float64) - start[block].astype(np.float64)
            squares += float(change @ change)
    return float(np.sqrt(squares))


def gradient_steps(gradients: Sequence[Array], global_norms: Sequence[float] | None = None) -> list[GradientStep]:
    """Take whole gradients, with their own norms where those of all are not given."""
    own = [gradient_norm(one) for one in gradients]
    given = own if global_norms is None else global_norms
    return [GradientStep(*parts) for parts in zip(gradients, own, given, strict=True)]


def apply_rule(
    rule: UpdateRule, before: Array, gradients: Sequence[GradientStep], memory: Memory | None = None
) -> list[Array]:
    """Return the values after each step in float64; the `memory`, if given, goes on from where it is."""
    own = memory if memory is not None else Memory()
    values = [before.astype(np.float64)]
    for gradient in gradients:
        values.append(values[-1] + _movement(rule, values[-1], gradient, own))
    return values[1:]


def movements(
    rule: UpdateRule, positions: Sequence[Array], gradients: Sequence[GradientStep], dtype: str = ""
) -> list[Array]:
    """Return how far each step moves from the position that is given for it, so that rounding does not add up."""
    memory = Memory(_rounded_to(dtype)) if dtype else Memory()
    with np.errstate(all="ignore"):
        return [
            _movement(rule, position, gradient, memory) for position, gradient in zip(positions, gradients, strict=True)
        ]


def _rounded_to(dtype: str) -> Callable[[Array], Array]:
    kind = numpy_dtype(dtype)
    least = float(ml_dtypes.finfo(kind).smallest_normal)  # type: ignore[no-untyped-call]

    def rounded(values: Array) -> Array:
        return np.where(np.abs(values) < least, 0.0, values.astype(kind).astype(np.float64))

    return rounded


def _movement(rule: UpdateRule, position: Array, step: GradientStep, memory: Memory) -> Array:
    """One step: the decay of the value, and what the kind makes of the gradient."""
    number, memory.calls = memory.calls, memory.calls + 1
    if number in rule.skipped:
        return np.zeros_like(position)
    memory.steps += 1
    rate = rule.rate(number)
    gradient = _clipped(rule, step)
    if rule.weight_decay and rule.decay_form == "gradient":
        gradient = gradient + rule.weight_decay * position
    moved = -memory.kept(FORMULAS[rule.kind](rule, memory, memory.kept(gradient), rate))
    return moved + _decay(rule, position, moved, rate)


def _clipped(rule: UpdateRule, step: GradientStep) -> Array:
    scale = rule.gradient_scale
    limits = ((rule.clip_norm, step.norm), (rule.clip_global_norm, step.global_norm))
    for limit, norm in limits:
        if limit is not None:
            scale *= min(1.0, limit / (norm + CLIP_GUARD))
    scaled = np.asarray(step.values, np.float64) * scale
    return scaled if rule.clip_value is None else np.clip(scaled, -rule.clip_value, rule.clip_value)


def _decay(rule: UpdateRule, position: Array, moved: Array, rate: float) -> Array | float:
    if not rule.weight_decay or rule.decay_form == "gradient":
        return 0.0
    if rule.decay_form == "plain":
        return -rule.weight_decay * position
    return -rate * rule.weight_decay * (position + moved if rule.decay_form == "after" else position)
