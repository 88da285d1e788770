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

import warnings
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

import ml_dtypes
import numpy as np

from align.core.parameters import EPSILON, numpy_dtype
from align.rules.training_rules import update_rule_form
from align.training.thresholds import (
    BLOCK_ELEMENTS,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import ParameterGroup


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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*smallest subnormal", UserWarning)
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
    still = [np.zeros_like(values) for values in steps.before]
    allowed = still if rule is None or not noisy else _noise(steps, rule, guarded=guarded)
    limits, largest = [], np.zeros_like(steps.before[0])
    moved = [side.moved for side in sides]
    with np.errstate(all="ignore"):
        for number, noise in enumerate(allowed):
            for movement in moved:
                largest = np.fmax(largest, np.abs(movement[number]))
            ends = [np.abs(values[number]) for side in sides for values in (side.before, side.after)]
            places = last_places(np.fmax.reduce(ends), steps.dtype)
            limits.append(LAST_PLACES * places + epsilon * largest + noise)
    return [np.where(np.isnan(limit), np.inf, limit) for limit in limits]


def _relative(rule: UpdateRule | None) -> float:
    if rule is None:
        return MOVEMENT_UNITS_UNKNOWN
    squared = rule.kind in ("adam", "rmsprop", "adadelta")
    return MOVEMENT_UNITS + (0.5 / max(1 - rule.beta2, 1e-6) if squared else 0.0)


def _noise(steps: ObservedSteps, rule: UpdateRule, *, guarded: bool) -> list[Array]:
    """What rounded moments change, and the place of a small epsilon."""
    exact = movements(rule, steps.before, steps.gradients)
    rounded = movements(rule, steps.before, steps.gradients, steps.dtype)
    noise = [MOMENT_NOISE_FACTOR * gap for gap in _largest_gaps(exact, rounded)]
    if not guarded or rule.kind != "adam" or not 0 < rule.epsilon <= GUARD_EPSILON:
        return noise
    moved = movements(replace(rule, epsilon_scaled=not rule.epsilon_scaled), steps.before, steps.gradients)
    return [rounding + GUARD_EXCESS * gap for rounding, gap in zip(noise, _largest_gaps(exact, moved), strict=True)]


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
    """Return how far in limits each step is from the expected one, (steps, elements); infinite where one is no number.

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
    """Return by how many limits the steps drift away from expected movements in proportion to the values.

    With the rates of fine-tuning (2e-5 times a decay of 0.01) one step takes about one unit in the last place off.
    Rounding errors go both ways and cancel over many elements, a decay does not. So the share of its value that an
    element lost, over all steps, is estimated from all elements and held against the error of that estimate.
    """
    with np.errstate(all="ignore"):
        gaps = [one - other for one, other in zip(steps.moved, expected, strict=True)]
        places = last_places(steps.before[0], steps.dtype)
        return _drift_excess(gaps, [one - LAST_PLACES * places for one in limits], steps.before[0], places, steps.dtype)


def _drift_excess(gaps: Sequence[Array], others: Sequence[Array], values: Array, places: Array, dtype: str) -> float:
    """Return by how many limits all elements together drift in proportion to their values; up to 1 it is rounding.

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
    """Return by how many limits a rule misses the steps, at its worst element; up to 1 it reproduces them.

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
    """Return by how many limits a rule misses each element, in its worst step."""
    expected = movements(rule, steps.before, steps.gradients)
    return np.asarray(excess(steps.moved, expected, rounding_limits(steps, rule)).max(axis=0))


# A rule of updates, computed in float64: how far each kind of optimizer moves a value.
#
# The formulas are those of the papers and of torch's documentation, one function a kind: it is handed the gradient as
# it stands behind scaling, clipping and decay, and returns the movement downhill. With a dtype given, gradients,
# moments and movements are rounded to it wherever an implementation would keep them, and what it cannot hold normally
# is flushed to zero: where that makes a difference, two implementations of one rule may differ by as much.

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


# The family of usual optimizers as one value: what makes a parameter's next value of its gradients.
#
# All conventions that tell one implementation from another are fields, so that "the same but for one setting" is a
# value too. How far the formulas are true is tested against the real optimizers of both frameworks.

Kind = Literal["sgd", "adam", "rmsprop", "adagrad", "adadelta", "adamax", "lion"]
DecayForm = Literal["gradient", "rate", "plain", "after"]
ADAPTIVE = (
    "adam",
    "rmsprop",
    "adagrad",
    "adadelta",
    "adamax",
)  # steps are divided by what is gathered of the gradients
ROOTED = ("adam", "rmsprop", "adagrad")  # epsilon stands at a root, inside it or behind it
AVERAGED = ("adam", "adamax", "lion")  # have a first moment of their own, beta1
SQUARED = ("adam", "rmsprop", "adadelta", "adamax", "lion")  # beta2 is the decay of what they gather


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """How a parameter is updated, `rates` being the learning rate of each step: the last one holds from there on.

    The gradient is multiplied by `gradient_scale` (negative where the loss is maximised), clipped to `clip_value` and
    to the norm `clip_norm` of the parameter's own gradient or `clip_global_norm` of all. `decay_form` says where
    `weight_decay` times the value goes: into the `gradient`, or off the value, times the `rate` or `plain`, or `after`
    the rest of the step, times the rate. `dampens_first`: the first gradient is dampened too. `rate_in_momentum`: the
    momentum gathers gradients times their rates. `beta2` is the decay of the squares in all kinds that have one.
    Epsilon stands `epsilon_inside` the root or behind it; it is `epsilon_scaled` if it is added before the bias
    correction of the squares, which is `corrected` or not; with `count_held` as in the first step in all of them, as of
    a counter that is not counted up. `second_start` is what the squares start from. `skipped`
    are steps that are not taken, counted from 0; `rate_decay` divides the rate as Adagrad's lr_decay.
    """

    kind: Kind
    rates: tuple[float, ...]
    momentum: float = 0.0
    dampening: float = 0.0
    dampens_first: bool = False
    nesterov: bool = False
    rate_in_momentum: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 0.0
    epsilon_inside: bool = False
    epsilon_scaled: bool = False
    corrected: bool = True
    count_held: bool = False
    amsgrad: bool = False
    centered: bool = False
    second_start: float = 0.0
    weight_decay: float = 0.0
    decay_form: DecayForm = "gradient"
    gradient_scale: float = 1.0
    clip_value: float | None = None
    clip_norm: float | None = None
    clip_global_norm: float | None = None
    rate_decay: float = 0.0
    skipped: tuple[int, ...] = ()

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        return self.rates[min(step, len(self.rates) - 1)] / (1 + step * self.rate_decay)


def read_rule(group: ParameterGroup | None) -> UpdateRule | None:
    """Return what a group's optimizer computes.

    None for a class that `mappings/update_rules.toml` does not know, which a class derived from a known one is too,
    and where settings or rates could not be read.
    """
    if group is None or group.problems or group.rates.problem or not group.rates.values:
        return None
    form = update_rule_form(group.settings.classes)
    settings = form.fields(group.settings.values) if form else None
    return None if settings is None else UpdateRule(**settings, rates=group.rates.values)


def plain_rule(rule: UpdateRule) -> UpdateRule:
    """Bring what has no effect to its default, so that rules that do the same are equal."""
    idle = [name for has_effect, names in _EFFECTS if not has_effect(rule) for name in names]
    return replace(rule, **{name: _DEFAULTS[name] for name in idle})  # type: ignore[arg-type]


def _gathers(rule: UpdateRule) -> bool:
    return bool(rule.momentum) and rule.kind in ("sgd", "rmsprop")


def _scales_epsilon(rule: UpdateRule) -> bool:
    return bool(rule.epsilon) and (rule.kind == "adamax" or (rule.kind == "adam" and rule.corrected))


_DEFAULTS = {one.name: one.default for one in fields(UpdateRule)}
# When fields have an effect at all.
_EFFECTS: tuple[tuple[Callable[[UpdateRule], bool], tuple[str, ...]], ...] = (
    (lambda rule: bool(rule.weight_decay), ("decay_form",)),
    (_gathers, ("momentum", "dampening", "rate_in_momentum")),
    (lambda rule: _gathers(rule) and bool(rule.dampening), ("dampens_first",)),
    (lambda rule: _gathers(rule) or rule.kind == "adam", ("nesterov",)),
    (lambda rule: rule.kind in AVERAGED, ("beta1",)),
    (lambda rule: rule.kind in SQUARED, ("beta2",)),
    (lambda rule: rule.kind in ADAPTIVE, ("epsilon", "second_start")),
    (lambda rule: rule.kind in ROOTED and bool(rule.epsilon), ("epsilon_inside",)),
    (_scales_epsilon, ("epsilon_scaled",)),
    (lambda rule: rule.kind in ("adam", "adamax"), ("corrected",)),
    (lambda rule: rule.kind in ("adam", "adamax") and rule.corrected, ("count_held",)),
)
