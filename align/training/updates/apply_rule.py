"""A rule of updates, computed in float64: how far each kind of optimizer moves a value.

The formulas are those of the papers and of torch's documentation, one function a kind: it is handed the gradient as it
stands behind scaling, clipping and decay, and returns the movement downhill. With a dtype given, gradients, moments and
movements are rounded to it wherever an implementation would keep them, and what it cannot hold normally is flushed to
zero: where that makes a difference, two implementations of one rule may differ by as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from align.core.dtypes import numpy_dtype
from align.training.thresholds import BLOCK_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.training.updates.update_rules import Kind, UpdateRule

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


def _exactly(values: Array) -> Array:
    return values


@dataclass(slots=True)
class Memory:
    """What an optimizer keeps of a parameter: moments by name, how often it was called and how many steps it took.

    `kept` is what becomes of values that are written into memory.
    """

    kept: Callable[[Array], Array] = _exactly
    moments: dict[str, Array] = field(default_factory=dict)
    calls: int = 0
    steps: int = 0

    def average(self, name: str, values: Array, decay: float, weight: float, start: float = 0.0) -> Array:
        """Mix values into a moment: decay * old + weight * values."""
        old = self.moments.get(name, start)
        self.moments[name] = self.kept(decay * old + weight * values)
        return self.moments[name]


def _through_momentum(rule: UpdateRule, memory: Memory, direction: Array, rate: float) -> Array:
    """The movement along a direction, gathered in a momentum if there is one."""
    if not rule.momentum:
        return rate * direction
    own, outer = (rate, 1.0) if rule.rate_in_momentum else (1.0, rate)
    weight = 1.0 if memory.steps == 1 and not rule.dampens_first else 1.0 - rule.dampening
    gathered = memory.average("momentum", own * direction, rule.momentum, weight)
    return outer * (own * direction + rule.momentum * gathered if rule.nesterov else gathered)


def _adam(rule: UpdateRule, memory: Memory, gradient: Array, rate: float) -> Array:
    first = memory.average("first", gradient, rule.beta1, 1 - rule.beta1)
    second = memory.average("second", _squared(memory, gradient), rule.beta2, 1 - rule.beta2, rule.second_start)
    if rule.amsgrad:
        second = memory.moments["largest"] = np.maximum(memory.moments.get("largest", 0.0), second)
    if rule.nesterov:
        first = rule.beta1 * first + (1 - rule.beta1) * gradient
    count = _counted(rule, memory)
    powers = (rule.beta1**count, rule.beta2**count) if rule.corrected else (0.0, 0.0)
    return rate / (1 - powers[0]) * first / _root(rule, second, 1 - powers[1])


def _counted(rule: UpdateRule, memory: Memory) -> int:
    return 1 if rule.count_held else memory.steps


def _squared(memory: Memory, gradient: Array) -> Array:
    return memory.kept(gradient * gradient)


def _root(rule: UpdateRule, second: Array, correction: float = 1.0) -> Array:
    """The root of corrected squares with epsilon where the rule has it."""
    inside, behind = (rule.epsilon, 0.0) if rule.epsilon_inside else (0.0, rule.epsilon)
    if rule.epsilon_scaled:
        return np.asarray((np.sqrt(second + inside) + behind) / np.sqrt(correction))
    return np.asarray(np.sqrt(second / correction + inside) + behind)


def _rmsprop(rule: UpdateRule, memory: Memory, gradient: Array, rate: float) -> Array:
    second = memory.average("second", _squared(memory, gradient), rule.beta2, 1 - rule.beta2, rule.second_start)
    if rule.centered:
        second = np.maximum(second - memory.average("mean", gradient, rule.beta2, 1 - rule.beta2) ** 2, 0.0)
    return _through_momentum(rule, memory, gradient / _root(rule, second), rate)


def _adagrad(rule: UpdateRule, memory: Memory, gradient: Array, rate: float) -> Array:
    second = memory.average("second", _squared(memory, gradient), 1.0, 1.0, rule.second_start)
    return np.asarray(rate * gradient / _root(rule, second))


def _adadelta(rule: UpdateRule, memory: Memory, gradient: Array, rate: float) -> Array:
    second = memory.average("second", _squared(memory, gradient), rule.beta2, 1 - rule.beta2, rule.second_start)
    before = memory.moments.get("moved", np.zeros_like(gradient))
    moved = gradient * np.sqrt(before + rule.epsilon) / np.sqrt(second + rule.epsilon)
    memory.average("moved", moved * moved, rule.beta2, 1 - rule.beta2)
    return np.asarray(rate * moved)


def _adamax(rule: UpdateRule, memory: Memory, gradient: Array, rate: float) -> Array:
    """Epsilon is added to the gradient's size as in torch, or `epsilon_scaled` behind the largest one."""
    first = memory.average("first", gradient, rule.beta1, 1 - rule.beta1)
    inner, outer = (0.0, rule.epsilon) if rule.epsilon_scaled else (rule.epsilon, 0.0)
    old = memory.moments.get("largest", np.full_like(gradient, rule.second_start))
    largest = memory.moments["largest"] = memory.kept(np.maximum(rule.beta2 * old, np.abs(gradient) + inner))
    correction = 1 - rule.beta1 ** _counted(rule, memory) if rule.corrected else 1.0
    return rate / correction * first / (largest + outer)


def _lion(rule: UpdateRule, memory: Memory, gradient: Array, rate: float) -> Array:
    old = memory.moments.get("first", np.zeros_like(gradient))
    memory.average("first", gradient, rule.beta2, 1 - rule.beta2)
    return np.asarray(rate * np.sign(rule.beta1 * old + (1 - rule.beta1) * gradient))


FORMULAS: dict[Kind, Callable[[UpdateRule, Memory, Array, float], Array]] = {
    "sgd": _through_momentum,
    "adam": _adam,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
    "adamax": _adamax,
    "lion": _lion,
}
