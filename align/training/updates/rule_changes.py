"""All single changes of a rule that are worth trying: what is switched, and which number is to be solved from the data.

A change that leaves the rule as it is, or has no effect on it, is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from align.training.thresholds import LARGEST_MOMENTUM
from align.training.updates.update_rules import ADAPTIVE, AVERAGED, ROOTED, SQUARED, plain_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.training.updates.update_rules import UpdateRule

DECAY_FORMS = ("gradient", "rate", "plain", "after")
DECAY_CODES = {
    "gradient": "decay-coupled",
    "rate": "decay-decoupled",
    "plain": "decay-without-rate",
    "after": "decay-after-step",
}


@dataclass(frozen=True, slots=True)
class Unknown:
    """A number to be solved: a field of the rule, or `rates` times the number, or the rate of one step `rates.0`.

    Searches begin at `starts`. It is sought along its logarithm (`log`), as 1 - exp(x) between 0 and 1 (`share`), or
    as it is (`plain`, not below 0).
    """

    field: str
    starts: tuple[float, ...]
    scale: str = "log"

    def encode(self, value: float) -> float:
        """Where a value stands along the search."""
        if self.scale == "log":
            return float(np.log(max(value, 1e-300)))
        return float(np.log(max(1 - value, 1e-12))) if self.scale == "share" else value

    def decode(self, place: float) -> float:
        """The value at a place of the search."""
        if self.scale == "log":
            return float(np.exp(min(max(place, -500.0), 500.0)))
        return (
            min(max(1 - float(np.exp(min(place, 0.0))), 0.0), LARGEST_MOMENTUM)
            if self.scale == "share"
            else max(0.0, place)
        )

    def setting(self, rates: tuple[float, ...], value: float) -> dict[str, Any]:
        """The field of a rule with these rates that holds the number."""
        if self.field == "rates":
            return {"rates": tuple(one * value for one in rates)}
        if not self.field.startswith("rates."):
            return {self.field: value}
        step = int(self.field.partition(".")[2])
        return {"rates": (*rates[:step], value, *rates[step + 1 :])}


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One change of a rule: fields that are set, and numbers to be solved; `code` is the stable name of the cause."""

    code: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[Unknown, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        """The fields of the rule that it touches."""
        return frozenset(self.fixed) | {one.field.partition(".")[0] for one in self.unknown}

    def rule(self, reference: UpdateRule, numbers: Sequence[float] = ()) -> UpdateRule:
        """The rule of the reference with the change."""
        settings = dict(self.fixed)
        for one, value in zip(self.unknown, numbers, strict=True):
            settings |= one.setting(settings.get("rates", reference.rates), value)
        return replace(reference, **settings)


def rule_changes(rule: UpdateRule, steps: int, norms: Sequence[float], sizes: Sequence[float]) -> list[RuleChange]:
    """All changes of a rule over so many steps, likelier ones first.

    `norms` are the largest norm of a gradient and of all gradients together, `sizes` typical and largest values of one.
    """
    listed = [*_switches(rule), *_rates(rule, steps), *_numbers(rule), *_scales(rule, norms, sizes)]
    plain = plain_rule(rule)
    return [one for one in listed if one.unknown or plain_rule(one.rule(rule)) != plain]


def _switches(rule: UpdateRule) -> Iterator[RuleChange]:
    yield RuleChange("sign", {"gradient_scale": -rule.gradient_scale})
    if rule.kind in ("adam", "adamax"):
        code = "no-bias-correction" if rule.corrected else "bias-correction"
        yield from (
            RuleChange(code, {"corrected": not rule.corrected, "epsilon_scaled": scaled}) for scaled in (False, True)
        )
        yield RuleChange("step-count-held", {"corrected": True, "count_held": not rule.count_held})
    yield from _decay_switches(rule)
    if rule.momentum or rule.kind == "adam":
        yield RuleChange("nesterov", {"nesterov": not rule.nesterov})
    if rule.momentum and rule.kind in ("sgd", "rmsprop"):
        yield RuleChange("rate-in-momentum", {"rate_in_momentum": not rule.rate_in_momentum})
        yield RuleChange("first-dampening", {"dampens_first": not rule.dampens_first})
    if rule.kind in ROOTED:
        yield RuleChange(
            "epsilon-outside-root" if rule.epsilon_inside else "epsilon-inside-root",
            {"epsilon_inside": not rule.epsilon_inside},
        )
    if rule.kind == "adam":
        after = "epsilon-after-correction" if rule.epsilon_scaled else "epsilon-before-correction"
        yield RuleChange(after, {"epsilon_scaled": not rule.epsilon_scaled})
        yield RuleChange("amsgrad", {"amsgrad": not rule.amsgrad})
    if rule.kind == "rmsprop":
        yield RuleChange("centered", {"centered": not rule.centered})


def _decay_switches(rule: UpdateRule) -> Iterator[RuleChange]:
    if rule.weight_decay:
        yield RuleChange("weight-decay", {"weight_decay": 0.0})
        yield from (RuleChange(DECAY_CODES[one], {"decay_form": one}) for one in DECAY_FORMS if one != rule.decay_form)
        yield RuleChange("weight-decay", {}, (Unknown("weight_decay", (rule.weight_decay, 1e-4, 1e-2, 1.0)),))
    else:
        amount = Unknown("weight_decay", (1e-4, 1e-2, 1.0))
        yield from (RuleChange("weight-decay", {"decay_form": one}, (amount,)) for one in DECAY_FORMS)


def _rates(rule: UpdateRule, steps: int) -> Iterator[RuleChange]:
    """The rate of all steps times a number, that of another step, or each by itself."""
    yield RuleChange("learning-rate", {}, (Unknown("rates", (1.0, 0.1, 10.0)),))
    known = tuple(rule.rates[min(step, len(rule.rates) - 1)] for step in range(steps + 1))
    if len(set(rule.rates)) > 1:
        yield RuleChange("schedule-shifted", {"rates": known[1:]})
        yield RuleChange("schedule-shifted", {"rates": (0.0, *known[:-2])})
        yield RuleChange("schedule-shifted", {"rates": known[:1] + known[:-2]})
        late = (known[0], *known[:-2])
        yield RuleChange("schedule-shifted", {"rates": late}, (Unknown("rates.0", (known[0],), "plain"),))
    if steps > 1:
        each = tuple(Unknown(f"rates.{step}", (known[step],), "plain") for step in range(steps))
        yield RuleChange("schedule", {"rates": known[:steps]}, each)


def _numbers(rule: UpdateRule) -> Iterator[RuleChange]:
    if rule.kind in ("sgd", "rmsprop"):
        yield from _momentum_numbers(rule)
    if rule.kind in AVERAGED:
        yield RuleChange("beta1", {}, (Unknown("beta1", (rule.beta1, 0.5, 0.95), "share"),))
    if rule.kind in SQUARED:
        yield RuleChange("beta2", {}, (Unknown("beta2", (rule.beta2, 0.9, 0.99, 0.9999), "share"),))
    if rule.kind in ADAPTIVE:
        yield RuleChange("epsilon", {}, (Unknown("epsilon", tuple(10.0**power for power in range(-12, 2, 2))),))
    if rule.kind in ("rmsprop", "adagrad"):
        yield RuleChange("moment-start", {"second_start": 0.0})
        yield RuleChange("moment-start", {}, (Unknown("second_start", (0.1, 1.0)),))
    if rule.kind == "adagrad":
        yield RuleChange("rate-decay", {}, (Unknown("rate_decay", (rule.rate_decay, 0.1), "plain"),))


def _momentum_numbers(rule: UpdateRule) -> Iterator[RuleChange]:
    share = Unknown("momentum", (rule.momentum, 0.5, 0.9, 0.99), "share")
    yield RuleChange("momentum", {"momentum": 0.0, "nesterov": False})
    yield RuleChange("momentum", {}, (share,))
    if rule.momentum:
        yield RuleChange("dampening", {"dampening": 0.0})
        yield RuleChange("dampening", {}, (Unknown("dampening", (0.1, 0.9), "share"),))
    else:
        yield RuleChange("momentum", {"nesterov": True}, (share,))


def _scales(rule: UpdateRule, norms: Sequence[float], sizes: Sequence[float]) -> Iterator[RuleChange]:
    """The gradient times a number, or clipped."""
    around = tuple(abs(rule.gradient_scale) * factor for factor in (1.0, 1e-3, 1e3))
    yield RuleChange("gradient-scale", {}, (Unknown("gradient_scale", around),))
    yield RuleChange("clip-norm", {}, (Unknown("clip_norm", tuple(norms[0] * part for part in (0.5, 0.1))),))
    if norms[1] > norms[0]:
        parts = tuple(norms[1] * part for part in (0.5, 0.1))
        yield RuleChange("clip-global-norm", {}, (Unknown("clip_global_norm", parts),))
    yield RuleChange("clip-value", {}, (Unknown("clip_value", tuple(sizes)),))
