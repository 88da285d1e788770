"""How far each kind of optimizer moves a value, one function a kind, by the papers and torch's documentation.

A function is handed the gradient as it stands behind scaling, clipping and decay, and returns the movement downhill.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.dtypes import Array
    from align.training.updates.update_rules import Kind, UpdateRule


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
    powers = (rule.beta1**memory.steps, rule.beta2**memory.steps) if rule.corrected else (0.0, 0.0)
    return rate / (1 - powers[0]) * first / _root(rule, second, 1 - powers[1])


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
    correction = 1 - rule.beta1**memory.steps if rule.corrected else 1.0
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
