"""Causes that parameters have in common: what explains them all stands for all of them, and what does not is dropped.

By itself a parameter may be explained by more than is true: the decay of a single number is a factor of its gradient
too. So what explains any is tried on all, and an alternative has to hold on all that it is to explain, and to leave
those parameters of the same groups as they are that both sides update alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from align.training.thresholds import ALTERNATIVE_EXCESS, CAUSE_ELEMENTS, SHARED_CAUSES, SOLVED_EXCESS
from align.training.updates.explain_update import changes_of, worst_excess
from align.training.updates.observed_steps import rule_excess, trial_caps
from align.training.updates_result import UpdateCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.training.updates.explain_update import SolvedRule
    from align.training.updates.observed_steps import ObservedSteps
    from align.training.updates.update_rules import UpdateRule

    Found = list[tuple[SolvedRule, UpdateCause]]


@dataclass(frozen=True, slots=True)
class UpdatedParameter:
    """The candidate's steps of a parameter, and the rule of the reference's that they are held against.

    `groups` distinguishes parameters that are updated by other settings on either side. `found` is what explains it,
    nothing where both sides update it alike.
    """

    steps: ObservedSteps
    rule: UpdateRule
    groups: tuple[int, int]
    found: Sequence[tuple[SolvedRule, UpdateCause]] = field(default=())


def share_causes(parameters: Sequence[UpdatedParameter]) -> list[Found]:
    """Return for each parameter what explains it and as many others as may be, in the order of `parameters`."""
    unlike = [number for number, one in enumerate(parameters) if one.found]
    shared: list[Found] = [[*one.found] for one in parameters]
    if not _worth_trying([shared[number] for number in unlike]):
        return shared
    trial = _Trial(parameters)
    left, tried = {*unlike}, _tried([shared[number] for number in unlike])
    while left and tried:
        best = max(tried, key=lambda one: trial.weight(one, left))
        members = sorted(number for number in left if trial.explains(best, number))
        if not members:
            break
        for number, found in zip(members, _alternatives(trial, best, members, tried), strict=True):
            shared[number] = found
        left -= {*members}
    return shared


def _worth_trying(found: Sequence[Found]) -> bool:
    """Tell whether there is anything to choose from."""
    return any(len(one) > 1 for one in found) or len({_key(one[0][0]) for one in found}) > 1


def _tried(found: Sequence[Found]) -> list[SolvedRule]:
    """Each cause once, what settings confirm first."""
    listed = [solved for own in found for solved, _ in own]
    known = {_key(one): one for one in reversed(listed)}
    return sorted((known[key] for key in dict.fromkeys(map(_key, listed))), key=lambda one: not one.confirmed)[
        :SHARED_CAUSES
    ]


def _alternatives(trial: _Trial, best: SolvedRule, members: Sequence[int], tried: Sequence[SolvedRule]) -> list[Found]:
    """For each member the best cause, and others that explain all members about as well, one of each kind."""
    kinds = {trial.codes(best, members[0])}
    kept = [best]
    for one in tried:
        codes = trial.codes(one, members[0])
        if codes not in kinds and trial.is_alternative(one, best, members):
            kinds.add(codes)
            kept.append(one)
    return [[(one, trial.cause(one, number)) for one in kept] for number in members]


def _key(solved: SolvedRule) -> tuple[object, ...]:
    """What is the same change with the same numbers."""
    numbers = tuple(f"{one:.4g}" for one in solved.numbers)
    return solved.change.code, tuple(sorted(solved.change.fixed.items(), key=lambda one: one[0])), numbers


class _Trial:
    """What each cause makes of each parameter, worked out when it is asked for."""

    def __init__(self, parameters: Sequence[UpdatedParameter]) -> None:
        self._parameters = parameters
        self._some = [one.steps.spread(CAUSE_ELEMENTS) for one in parameters]
        self._holds: dict[tuple[object, int], bool] = {}
        self._excess: dict[tuple[object, int], float] = {}
        self._confirmed = [{_key(solved) for solved, cause in one.found if cause.confirmed} for one in parameters]

    def explains(self, solved: SolvedRule, number: int) -> bool:
        """Tell whether a cause reproduces all steps of a parameter."""
        return self._holds_on_some(solved, number) and self._missed(solved, number) <= SOLVED_EXCESS

    def weight(self, solved: SolvedRule, left: set[int]) -> tuple[int, int, bool]:
        """Of how many settings confirm it, how many it explains, and whether it leaves alone what is alike."""
        members = [number for number in left if self.explains(solved, number)]
        confirmed = sum(_key(solved) in self._confirmed[number] for number in members)
        return confirmed, len(members), self._leaves_alone(solved, members)

    def is_alternative(self, solved: SolvedRule, best: SolvedRule, members: Sequence[int]) -> bool:
        """Tell whether a cause explains all members about as well as the best one, and no more than these."""
        return all(
            self.explains(solved, number)
            and self._missed(solved, number)
            <= max(self._missed(best, number), 1.0 - ALTERNATIVE_EXCESS) + ALTERNATIVE_EXCESS
            for number in members
        ) and self._leaves_alone(solved, members)

    def codes(self, solved: SolvedRule, number: int) -> tuple[str, ...]:
        """What it changes of the parameter's rule."""
        return tuple(one.code for one in changes_of(self._of(solved, number), self._parameters[number].rule))

    def cause(self, solved: SolvedRule, number: int) -> UpdateCause:
        """The cause for one parameter, with its figures."""
        own = self._parameters[number]
        changes = changes_of(self._of(solved, number), own.rule)
        confirmed = _key(solved) in self._confirmed[number]
        return UpdateCause(changes, own.found[0][1].before, self._missed(solved, number), confirmed)

    def _of(self, solved: SolvedRule, number: int) -> SolvedRule:
        """The same change of another parameter's rule."""
        rule = solved.change.rule(self._parameters[number].rule, solved.numbers)
        return type(solved)(solved.change, solved.numbers, rule, solved.confirmed)

    def _leaves_alone(self, solved: SolvedRule, members: Sequence[int]) -> bool:
        groups = {self._parameters[number].groups for number in members}
        alike = (number for number, one in enumerate(self._parameters) if not one.found and one.groups in groups)
        return all(self._holds_on_some(solved, number) for number in alike)

    def _holds_on_some(self, solved: SolvedRule, number: int) -> bool:
        key = _key(solved), number
        if key not in self._holds:
            some, rule = self._some[number], self._parameters[number].rule
            missed = rule_excess(some, self._of(solved, number).rule, trial_caps(some, rule))
            self._holds[key] = missed <= SOLVED_EXCESS
        return self._holds[key]

    def _missed(self, solved: SolvedRule, number: int) -> float:
        key = _key(solved), number
        if key not in self._excess:
            own = self._parameters[number]
            self._excess[key] = worst_excess(own.steps, self._of(solved, number).rule, own.rule)
        return self._excess[key]
