"""How the rules of two sides differ by their settings: each difference as a change of the reference's rule."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from typing import TYPE_CHECKING, Any

from align.training.thresholds import SAME_SETTING_SHARE, SETTINGS_TOGETHER
from align.training.updates.rule_changes import DECAY_CODES, RuleChange
from align.training.updates.update_rules import UpdateRule, plain_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.training.updates_result import FieldValue

# Fields that mean something beside another one only, by that one.
COMPANIONS = {
    "weight_decay": ("decay_form",),
    "momentum": ("dampening", "dampens_first", "nesterov", "rate_in_momentum"),
    "dampening": ("dampens_first",),
    "corrected": ("epsilon_scaled",),
    "epsilon": ("epsilon_inside", "epsilon_scaled"),
}
APART = ("rates", "weight_decay", "decay_form", "gradient_scale")  # what is no part of the method
# Where epsilon stands matters least and is named last.
NAMES = tuple(sorted((one.name for one in fields(UpdateRule)), key=lambda name: name.startswith("epsilon")))


def settings_changes(reference: UpdateRule, candidate: UpdateRule) -> Iterator[RuleChange]:
    """Combinations of the differences of two rules, the smallest first, each as one change."""
    mine, theirs = plain_rule(reference), plain_rule(candidate)
    groups = list(_groups(mine, theirs))
    for count in range(1, min(len(groups), SETTINGS_TOGETHER) + 1):
        for chosen in combinations(groups, count):
            names = [name for group in chosen for name in group]
            codes = [field_code(group[0], mine, theirs) for group in chosen]
            yield RuleChange("+".join(codes), {name: getattr(theirs, name) for name in names})


def field_code(name: str, reference: UpdateRule, candidate: UpdateRule) -> str:
    """The stable name of a difference in a field."""
    if name == "rates":
        return _rates_code(reference.rates, candidate.rates)
    if name == "gradient_scale" and reference.gradient_scale == -candidate.gradient_scale:
        return "sign"
    switched = {
        "kind": "method",
        "decay_form": DECAY_CODES[candidate.decay_form],
        "corrected": "bias-correction" if candidate.corrected else "no-bias-correction",
        "epsilon_inside": "epsilon-inside-root" if candidate.epsilon_inside else "epsilon-outside-root",
        "epsilon_scaled": "epsilon-before-correction" if candidate.epsilon_scaled else "epsilon-after-correction",
        "dampens_first": "first-dampening",
        "second_start": "moment-start",
        "skipped": "steps-skipped",
    }
    return switched.get(name, name.replace("_", "-"))


def changed_fields(reference: UpdateRule, candidate: UpdateRule) -> list[tuple[str, str, FieldValue, FieldValue]]:
    """Every difference of two rules as code, field and both values; companions of a difference are left out."""
    mine, theirs = plain_rule(reference), plain_rule(candidate)
    names = [group[0] for group in _groups(mine, theirs)]
    return [(field_code(name, mine, theirs), name, _shown(mine, name), _shown(theirs, name)) for name in names]


def _groups(mine: UpdateRule, theirs: UpdateRule) -> Iterator[tuple[str, ...]]:
    """Names of fields that differ, each with its companions."""
    unlike = [name for name in NAMES if not _alike(getattr(mine, name), getattr(theirs, name))]
    if "kind" in unlike:
        yield tuple(name for name in NAMES if name not in APART)
        unlike = [name for name in unlike if name in APART]
    taken: set[str] = set()
    for name in unlike:
        if name not in taken:
            idle = name in COMPANIONS and not (getattr(mine, name) and getattr(theirs, name))
            group = (name, *(one for one in COMPANIONS.get(name, ()) if idle and one in unlike))
            taken |= set(group)
            yield group


def _alike(one: object, other: object) -> bool:
    """Settings that went through float32 come back so."""
    if isinstance(one, tuple) and isinstance(other, tuple) and one and other:
        length = max(len(one), len(other))
        return all(map(_alike, _filled(one, length), _filled(other, length)))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= SAME_SETTING_SHARE * max(abs(one), abs(other))
    return one == other


def _filled(values: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    return values + values[-1:] * (length - len(values))


def _rates_code(reference: tuple[float, ...], candidate: tuple[float, ...]) -> str:
    """All rates times one number, those of a step earlier or later, or others."""
    shorter, longer = sorted((len(reference), len(candidate)))
    length = shorter if shorter > 1 else longer  # a single rate holds for all steps, others are known so far
    mine, theirs = _filled(reference, length)[:length], _filled(candidate, length)[:length]
    ratios = tuple(other / one if one else 0.0 for one, other in zip(mine, theirs, strict=True))
    if all(
        _alike(one, max(ratios)) or not (own or other) for one, own, other in zip(ratios, mine, theirs, strict=True)
    ):
        return "learning-rate"
    shifted = _alike(mine[1:], theirs[:-1]) or _alike(mine[:-1], theirs[1:])
    return "schedule-shifted" if shifted else "schedule"


def _shown(rule: UpdateRule, name: str) -> FieldValue:
    value = getattr(rule, name)
    if isinstance(value, tuple):
        numbers = tuple(_six_digits(one) for one in value)
        return numbers[0] if name == "rates" and len(set(numbers)) == 1 else numbers
    return _six_digits(value) if isinstance(value, float) else value


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}") if isinstance(value, float) else value
