"""What makes one parameter's update of the candidate another than the reference's, tried change by change.

A cause is a change of the reference's rule with which all steps of the candidate are recomputed within rounding. It is
sought on some elements, those that differ most among them, and has to hold on all. What explained an earlier parameter
is tried first, so that a fault of many parameters is searched for once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from align.training.apply_rule import (
    ADAPTIVE,
    AVERAGED,
    ROOTED,
    SQUARED,
    ObservedSteps,
    UpdateRule,
    missed_by,
    movements,
    plain_rule,
    reproduces,
    rounding_limits,
    rule_excess,
    trial_caps,
)
from align.training.step_result import UpdateCause, UpdateChange
from align.training.thresholds import (
    ALTERNATIVE_EXCESS,
    BLOCK_ELEMENTS,
    FRUITLESS_SEARCHES,
    LARGEST_MOMENTUM,
    PAIR_SEARCHES,
    SAME_SETTING_SHARE,
    SEARCH_ELEMENTS,
    SETTINGS_TOGETHER,
    SOLVED_EXCESS,
    SOLVER_DAMPING,
    SOLVER_DIGITS,
    SOLVER_GAIN,
    SOLVER_NUDGE,
    SOLVER_RESIDUAL,
    SOLVER_ROUNDS,
    SOLVER_STARTS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.training.step_result import FieldValue


LAST_RESORT = ("schedule",)  # a rate of its own for each step explains much that is something else
NEVER_PAIRED = ("schedule", "steps-skipped", "rate-in-momentum", "rate-decay", "clip-value")


@dataclass(frozen=True, slots=True)
class SolvedRule:
    """A change with its numbers, and the rule that comes of it."""

    change: RuleChange
    numbers: tuple[float, ...]
    rule: UpdateRule
    confirmed: bool = False


@dataclass(slots=True)
class Explainer:
    """Explains parameters one after the other; remembers what explained the earlier ones."""

    found: list[list[SolvedRule]] = field(default_factory=list)
    fruitless: int = 0
    pair_searches: int = 0

    def explain(
        self, steps: ObservedSteps, reference: UpdateRule, candidate: UpdateRule | None
    ) -> list[tuple[SolvedRule, UpdateCause]]:
        """Return all that explains the steps of a candidate, where the rule of the reference does not.

        Alternatives stand in one order: what the settings of both sides confirm, then the likelier ones.
        """
        before = worst_excess(steps, reference)
        some = steps.some(_sample(steps, reference))
        by_settings = list(_by_settings(some, reference, candidate))
        for search in (self._known, self._singles, self._pairs):
            solved = search(some, reference)
            pending = search == self._known and not solved
            causes = (
                []
                if pending
                else list(_causes(steps, reference, _distinct([*by_settings, *solved], reference), before))
            )
            if causes:
                if search != self._known:
                    self.found.append([one for one, _ in causes])
                return causes
        return []

    def _known(self, steps: ObservedSteps, reference: UpdateRule) -> list[SolvedRule]:
        """The alternatives that explained an earlier parameter, if the first one explains this one."""
        caps = trial_caps(steps, reference)
        for earlier in self.found:
            tried = [SolvedRule(one.change, one.numbers, one.change.rule(reference, one.numbers)) for one in earlier]
            if all(reproduces(steps, one.rule, caps) for one in tried):
                return tried
        return []

    def _singles(self, steps: ObservedSteps, reference: UpdateRule) -> list[SolvedRule]:
        if self.fruitless >= FRUITLESS_SEARCHES:
            return []
        listed = _listed(steps, reference)
        first = [one for one in listed if one.code not in LAST_RESORT]
        last = [one for one in listed if one.code in LAST_RESORT]
        solved = list(_solved(first, steps, reference)) or list(_solved(last, steps, reference))
        self.fruitless += not solved
        return solved

    def _pairs(self, steps: ObservedSteps, reference: UpdateRule) -> list[SolvedRule]:
        """Two changes at once, the first that explain: searched for a few parameters only."""
        self.pair_searches += 1
        if self.pair_searches > PAIR_SEARCHES:
            return []
        listed = [one for one in _listed(steps, reference) if one.code not in NEVER_PAIRED]
        pairable = (pair for pair in combinations(listed, 2) if not pair[0].fields & pair[1].fields)
        return list(_solved(map(_together, pairable), steps, reference, most=3))


def worst_excess(steps: ObservedSteps, rule: UpdateRule, reference: UpdateRule | None = None) -> float:
    """Return by how many limits a rule misses the steps, as `rule_excess` does, block by block over all elements.

    With a `reference` the rule is a change of that, and has no more noise than its trial_caps.
    """
    size, worst = len(steps.before[0]), 0.0
    for start in range(0, size, BLOCK_ELEMENTS):
        block = steps.some(slice(start, start + BLOCK_ELEMENTS))
        worst = max(worst, rule_excess(block, rule, trial_caps(block, reference) if reference else None))
    return worst


def _sample(steps: ObservedSteps, rule: UpdateRule) -> Array:
    """Numbers of elements: those that the rule misses most, and some from everywhere."""
    size = len(steps.before[0])
    if size <= SEARCH_ELEMENTS:
        return np.asarray(np.arange(size))
    missed = np.concatenate(
        [missed_by(steps.some(slice(at, at + BLOCK_ELEMENTS)), rule) for at in range(0, size, BLOCK_ELEMENTS)]
    )
    worst = np.argpartition(missed, -SEARCH_ELEMENTS // 2)[-SEARCH_ELEMENTS // 2 :]
    spread = np.linspace(0, size - 1, SEARCH_ELEMENTS // 2).astype(np.int64)
    return np.asarray(np.unique(np.concatenate([worst, spread])))


def _by_settings(steps: ObservedSteps, reference: UpdateRule, candidate: UpdateRule | None) -> Iterator[SolvedRule]:
    """The fewest differences of the settings with which the reference's rule reproduces the candidate."""
    if candidate is None:
        return
    caps = trial_caps(steps, reference)
    for change in settings_changes(reference, candidate):
        rule = change.rule(reference)
        if reproduces(steps, rule, caps):
            yield SolvedRule(change, (), rule, confirmed=True)
            return


def _listed(steps: ObservedSteps, reference: UpdateRule) -> list[RuleChange]:
    """All single changes, with what the data suggest."""
    norms = [max(one.norm for one in steps.gradients), max(one.global_norm for one in steps.gradients)]
    sizes = np.abs(np.concatenate([one.values for one in steps.gradients]))
    count = len(steps.before)
    still = tuple(number for number, moved in enumerate(steps.moved) if not np.any(moved))
    skipped = [RuleChange("steps-skipped", {"skipped": still})] if 0 < len(still) < count else []
    return [*rule_changes(reference, count, norms, [float(np.median(sizes)), float(sizes.max())]), *skipped]


def _solved(
    changes: Iterator[RuleChange] | Sequence[RuleChange],
    steps: ObservedSteps,
    reference: UpdateRule,
    most: int | None = None,
) -> Iterator[SolvedRule]:
    solver = ChangeSolver(steps, reference)
    for change in changes:
        if most == 0:
            return
        numbers = solver.solve(change)
        if numbers is not None:
            most = None if most is None else most - 1
            yield SolvedRule(change, numbers, change.rule(reference, numbers))


def _together(pair: tuple[RuleChange, RuleChange]) -> RuleChange:
    one, other = pair
    return RuleChange(f"{one.code}+{other.code}", {**one.fixed, **other.fixed}, (*one.unknown, *other.unknown))


def _distinct(solved: Sequence[SolvedRule], reference: UpdateRule) -> list[SolvedRule]:
    """One for each set of changes: the first, which the settings confirm if any does."""
    kept: dict[tuple[str, ...], SolvedRule] = {}
    for one in solved:
        kept.setdefault(tuple(change.code for change in changes_of(one, reference)), one)
    return list(kept.values())


def _causes(
    steps: ObservedSteps, reference: UpdateRule, solved: Sequence[SolvedRule], before: float
) -> Iterator[tuple[SolvedRule, UpdateCause]]:
    """The solutions that hold on all elements, and about as well as the best."""
    measured = [(solution, worst_excess(steps, solution.rule, reference)) for solution in solved]
    best = min((after for _, after in measured), default=0.0)
    for solution, after in measured:
        if after <= SOLVED_EXCESS and (solution.confirmed or after <= best + ALTERNATIVE_EXCESS):
            yield solution, UpdateCause(changes_of(solution, reference), before, after, solution.confirmed)


def changes_of(solved: SolvedRule, reference: UpdateRule) -> tuple[UpdateChange, ...]:
    """What a changed rule does otherwise than the reference's, in words that stay the same."""
    changes = [UpdateChange(*one) for one in changed_fields(reference, solved.rule)]
    if len(changes) == 1 and "+" not in solved.change.code:
        one = changes[0]
        return (UpdateChange(solved.change.code, one.setting, one.reference, one.candidate),)
    return tuple(changes)


# How the rules of two sides differ by their settings: each difference as a change of the reference's rule.

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


def _alike(first: object, second: object) -> bool:
    """Settings that went through float32 come back so."""
    if isinstance(first, tuple) and isinstance(second, tuple) and first and second:
        length = max(len(first), len(second))
        return all(map(_alike, _filled(first, length), _filled(second, length)))
    if isinstance(first, float) and isinstance(second, float):
        return abs(first - second) <= SAME_SETTING_SHARE * max(abs(first), abs(second))
    return first == second


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


# Numbers of a change, solved so that the changed rule reproduces what was observed, and then made as round as may be.
#
# Damped least squares (Levenberg, Marquardt) on differences in units of their limits, from several starts.

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


# All single changes of a rule that are worth trying: what is switched, and which number is to be solved from the
# data.
#
# A change that leaves the rule as it is, or has no effect on it, is not among them.

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
        yield from (
            RuleChange(DECAY_CODES[form], {"decay_form": form}) for form in DECAY_FORMS if form != rule.decay_form
        )
        yield RuleChange("weight-decay", {}, (Unknown("weight_decay", (rule.weight_decay, 1e-4, 1e-2, 1.0)),))
    else:
        amount = Unknown("weight_decay", (1e-4, 1e-2, 1.0))
        yield from (RuleChange("weight-decay", {"decay_form": form}, (amount,)) for form in DECAY_FORMS)


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
    around = tuple(abs(rule.gradient_scale) * factor for factor in (1.0, 1e-3, 1e3))
    yield RuleChange("gradient-scale", {}, (Unknown("gradient_scale", around),))
    yield RuleChange("clip-norm", {}, (Unknown("clip_norm", tuple(norms[0] * part for part in (0.5, 0.1))),))
    if norms[1] > norms[0]:
        parts = tuple(norms[1] * part for part in (0.5, 0.1))
        yield RuleChange("clip-global-norm", {}, (Unknown("clip_global_norm", parts),))
    yield RuleChange("clip-value", {}, (Unknown("clip_value", tuple(sizes)),))
