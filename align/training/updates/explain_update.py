"""What makes one parameter's update of the candidate another than the reference's, tried change by change.

A cause is a change of the reference's rule with which all steps of the candidate are recomputed within rounding. It is
sought on some elements, those that differ most among them, and has to hold on all. What explained an earlier parameter
is tried first, so that a fault of many parameters is searched for once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from align.training.thresholds import (
    ALTERNATIVE_EXCESS,
    BLOCK_ELEMENTS,
    FRUITLESS_SEARCHES,
    PAIR_SEARCHES,
    SEARCH_ELEMENTS,
    SOLVED_EXCESS,
)
from align.training.updates.observed_steps import ObservedSteps, missed_by, reproduces, rule_excess, trial_caps
from align.training.updates.rule_changes import RuleChange, rule_changes
from align.training.updates.settings_changes import changed_fields, settings_changes
from align.training.updates.solve_change import ChangeSolver
from align.training.updates_result import UpdateCause, UpdateChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.training.updates.update_rules import UpdateRule

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
    """By how many limits a rule fails to reproduce the steps, as rule_excess, of all elements block by block.

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
    """Those that hold on all elements, and about as well as the best."""
    measured = [(one, worst_excess(steps, one.rule, reference)) for one in solved]
    best = min((after for _, after in measured), default=0.0)
    for one, after in measured:
        if after <= SOLVED_EXCESS and (one.confirmed or after <= best + ALTERNATIVE_EXCESS):
            yield one, UpdateCause(changes_of(one, reference), before, after, one.confirmed)


def changes_of(solved: SolvedRule, reference: UpdateRule) -> tuple[UpdateChange, ...]:
    """What a changed rule does otherwise than the reference's, in words that stay the same."""
    changes = [UpdateChange(*one) for one in changed_fields(reference, solved.rule)]
    if len(changes) == 1 and "+" not in solved.change.code:
        one = changes[0]
        return (UpdateChange(solved.change.code, one.setting, one.reference, one.candidate),)
    return tuple(changes)
