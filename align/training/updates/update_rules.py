"""The family of usual optimizers as one value: what makes a parameter's next value of its gradients.

All conventions that tell one implementation from another are fields, so that "the same but for one setting" is a value
too. How far the formulas are true is tested against the real optimizers of both frameworks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

from align.rules.training_rules import update_rule_form

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.layer_settings import ParameterGroup


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
