"""The part of a training step that is the optimizer's alone: what it did on both sides under the same gradients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import EPSILON
from align.training.apply_rule import (
    ObservedSteps,
    apply_rule,
    drift,
    excess,
    gradient_norm,
    gradient_steps,
    last_places,
    observed_steps,
    read_rule,
    rounding_limits,
    rule_excess,
    trial_caps,
)
from align.training.explain_update import Explainer, changes_of, worst_excess
from align.training.step_result import (
    ParameterUpdates,
    UpdateCause,
    UpdateChange,
    UpdateFinding,
    UpdatesResult,
    UpdateState,
)
from align.training.thresholds import (
    ALTERNATIVE_EXCESS,
    BLOCK_ELEMENTS,
    CAUSE_ELEMENTS,
    FURTHER_STEPS,
    RATIO_ELEMENTS,
    SEARCH_ELEMENTS,
    SHARED_CAUSES,
    SIGN_TOLERANCE,
    SOLVED_EXCESS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import ParameterGroup
    from align.training.apply_rule import GradientStep, UpdateRule
    from align.training.explain_update import SolvedRule
    from align.training.step_result import SteppedParameter

    Found = list[tuple[SolvedRule, UpdateCause]]


Explained = tuple[UpdateState, list[UpdateCause], "bool | None"]


def explain_updates(parameters: Sequence[SteppedParameter]) -> UpdatesResult:
    """Tell which parameters two optimizers update otherwise under the same gradients, and what explains it.

    Each explanation was recomputed: it reproduces all steps of the candidate within rounding. Give all parameters that
    have a gradient, since clipping by the norm of all of them is one of the explanations; all have as many steps.

    >>> from align.training.step_result import SteppedParameter
    >>> ones = np.ones(3, np.float32)
    >>> explain_updates([SteppedParameter("w", "w", ones, [ones], [ones * 0.9], [ones * 0.9])]).same
    True
    """
    norms = _global_norms([one.gradients for one in parameters])
    own = _global_norms([one.candidate_gradients or one.gradients for one in parameters])
    explainer = Explainer()
    rows = tuple(_in_common([_compared(one, (norms, own), explainer) for one in parameters]))
    return UpdatesResult(len(norms), rows, tuple(_findings(rows)))


@dataclass(frozen=True, slots=True)
class _Compared:
    """A row, and the parameter's steps where the rule of the reference is known to be its rule."""

    row: ParameterUpdates
    updated: UpdatedParameter | None


def _in_common(compared: Sequence[_Compared]) -> Iterator[ParameterUpdates]:
    """The rows, each with what explains it and as many others as may be."""
    known = [parameter.updated for parameter in compared if parameter.updated is not None]
    shared = iter(share_causes(known))
    for parameter in compared:
        solutions = [] if parameter.updated is None else next(shared)
        if parameter.updated is None or not solutions:
            yield parameter.row
            continue
        yield replace(
            parameter.row,
            causes=tuple(cause for _, cause in solutions),
            steps_to_tell=_further(parameter.updated, solutions),
        )


def _further(updated: UpdatedParameter, solutions: Sequence[tuple[SolvedRule, UpdateCause]]) -> int | None:
    """How many steps would tell alternatives apart, if these do not."""
    if len(solutions) < 2:
        return None
    tell = steps_to_tell(updated.steps, [solved.change.rule(updated.rule, solved.numbers) for solved, _ in solutions])
    return tell if tell is not None and tell > len(updated.steps.before) else None


def _global_norms(gradients: Sequence[Sequence[Array]]) -> list[float]:
    norms = [[gradient_norm(one) for one in each] for each in gradients]
    return [float(np.linalg.norm(row)) for row in zip(*norms, strict=True)]


def _compared(
    parameter: SteppedParameter, norms: tuple[Sequence[float], Sequence[float]], explainer: Explainer
) -> _Compared:
    reference, candidate = _sides(parameter, norms)
    rules = _rule(parameter.reference_group, len(norms[0])), _rule(parameter.candidate_group, len(norms[0]))
    figures = _figures(parameter, reference, candidate, rules[0])
    groups = id(parameter.reference_group), id(parameter.candidate_group)
    if figures.difference <= 1:
        row = _row(parameter, figures, ("same", [], None), None)
        return _Compared(row, None if rules[0] is None else UpdatedParameter(candidate, rules[0], groups))
    candidate_known = None if rules[1] is None else worst_excess(candidate, rules[1]) <= SOLVED_EXCESS
    solutions: list[tuple[SolvedRule, UpdateCause]] = []
    row = _row(
        parameter, figures, _explained((reference, candidate), rules, figures, explainer, solutions), candidate_known
    )
    return _Compared(row, UpdatedParameter(candidate, rules[0], groups, solutions) if rules[0] and solutions else None)


def _figures(
    parameter: SteppedParameter, reference: ObservedSteps, candidate: ObservedSteps, rule: UpdateRule | None
) -> UpdateFigures:
    """Hold both movements against each other, or the candidate's against the reference's rule for its own gradients.

    Nothing is judged where gradients are not the same, and no rule gives the reference's movements.
    """
    if parameter.candidate_gradients is None:
        return measure_updates(reference, candidate, rule)
    if rule is None or worst_excess(reference, rule) > SOLVED_EXCESS:
        return UpdateFigures(0.0, 0.0, None, None, 0.0, 0, (0, 0))
    missed = worst_excess(candidate, rule) / SOLVED_EXCESS
    return UpdateFigures(missed, 0.0, None, 0 if missed > 1 else None, 1.0, 0, (0, 0))


def _rule(group: ParameterGroup | None, steps: int) -> UpdateRule | None:
    """The rule of a group, with the rates of these steps and of the next one."""
    rule = read_rule(group)
    return None if rule is None else replace(rule, rates=rule.rates[: steps + 1])


def _sides(
    parameter: SteppedParameter, norms: tuple[Sequence[float], Sequence[float]]
) -> tuple[ObservedSteps, ObservedSteps]:
    """Both sides, in the coarser dtype of the two where they keep values in unlike ones."""
    gradients = gradient_steps(parameter.gradients, norms[0])
    theirs = gradient_steps(parameter.candidate_gradients or parameter.gradients, norms[1])
    dtypes = [parameter.reference_after[0].dtype, parameter.candidate_after[0].dtype]
    coarser = max(dtypes, key=lambda dtype: EPSILON[dtype.name]).name
    starts = [parameter.before, *parameter.reference_after[:-1]]
    others = starts if parameter.candidate_reset else [parameter.before, *parameter.candidate_after[:-1]]
    reference = observed_steps(starts, parameter.reference_after, gradients, coarser)
    before = [each.astype(dtypes[1], copy=False) for each in others]
    return reference, observed_steps(before, parameter.candidate_after, theirs, coarser)


def _explained(
    sides: tuple[ObservedSteps, ObservedSteps],
    rules: tuple[UpdateRule | None, UpdateRule | None],
    figures: UpdateFigures,
    explainer: Explainer,
    solutions: list[tuple[SolvedRule, UpdateCause]],
) -> Explained:
    """The state, the causes, and whether the reference's rule is its rule; rules that explain it go to `solutions`."""
    reference, candidate = sides
    known = None if rules[0] is None else worst_excess(reference, rules[0]) <= SOLVED_EXCESS
    if figures.difference == inf:
        change = UpdateChange("not-finite", "values", figures.not_finite[0], figures.not_finite[1])
        return "explained", [UpdateCause((change,), inf, 0.0, confirmed=False)], known
    if rules[0] is None or not known or candidate.still or reference.still:
        causes = _explained_by_ratio(reference, candidate, figures.difference)
        return "explained" if causes else "rule unknown", causes, known
    solutions += explainer.explain(candidate, rules[0], rules[1])
    return "explained" if solutions else "unexplained", [cause for _, cause in solutions], known


def _explained_by_ratio(reference: ObservedSteps, candidate: ObservedSteps, before: float) -> list[UpdateCause]:
    """Return the cause if one side did not move, or the movements of one are those of the other times one number.

    The number is sought and held against RATIO_ELEMENTS elements from everywhere.
    """
    if reference.still or candidate.still:
        code = "did-not-move" if candidate.still else "reference-did-not-move"
        change = UpdateChange(code, "moved", not reference.still, not candidate.still)
        return [UpdateCause((change,), before, 0.0, confirmed=False)]
    reference, candidate = reference.spread(RATIO_ELEMENTS), candidate.spread(RATIO_ELEMENTS)
    mine, theirs = np.stack(reference.moved), np.stack(candidate.moved)
    ratio = float(np.sum(mine * theirs) / max(np.sum(mine * mine), np.finfo(np.float64).tiny))
    limits = [
        one + abs(ratio) * other
        for one, other in zip(rounding_limits(candidate, None), rounding_limits(reference, None), strict=True)
    ]
    after = float(excess(candidate.moved, list(ratio * mine), limits).max(initial=0.0))
    if not after <= 1:
        return []
    code = "sign" if abs(ratio + 1) < SIGN_TOLERANCE else "learning-rate"
    return [UpdateCause((UpdateChange(code, "movement", 1.0, float(f"{ratio:.4g}")),), before, after, confirmed=False)]


def _row(
    parameter: SteppedParameter, figures: UpdateFigures, explained: Explained, candidate_known: bool | None
) -> ParameterUpdates:
    state, causes, known = explained
    return ParameterUpdates(
        parameter.reference,
        parameter.candidate,
        state,
        figures.difference,
        figures.places,
        figures.share,
        figures.first_step,
        tuple(causes),
        None,
        known,
        candidate_known,
        figures.judged,
        figures.by_epsilon,
    )


def _findings(rows: Sequence[ParameterUpdates]) -> Iterator[UpdateFinding]:
    groups: dict[object, list[ParameterUpdates]] = {}
    for row in rows:
        if row.state != "same":
            groups.setdefault((row.state, tuple(cause.changes for cause in row.causes)), []).append(row)
    for members in sorted(groups.values(), key=len, reverse=True):
        first, tell = members[0], [row.steps_to_tell for row in members]
        yield UpdateFinding(
            first.state,
            tuple(cause.changes for cause in first.causes),
            all(row.causes and row.causes[0].confirmed for row in members),
            tuple(row.reference for row in members),
            tuple(row.candidate for row in members),
            max(row.difference for row in members),
            None if None in tell else max(steps for steps in tell if steps is not None),
        )


def steps_to_tell(steps: ObservedSteps, rules: Sequence[UpdateRule]) -> int | None:
    """Return after how many steps the first rule differs from all others, None if not within FURTHER_STEPS more.

    The gradients of further steps are those of the observed ones, moved along the elements and growing.
    """
    some = steps.spread(SEARCH_ELEMENTS)
    gradients = tuple(_continued(some.gradients, len(steps.before) + FURTHER_STEPS))
    first = _simulated(rules[0], some, gradients)
    found = [_first_difference(first, _simulated(one, some, gradients), rules[0]) for one in rules[1:]]
    known = [one for one in found if one is not None]
    return max(known) if known and len(known) == len(found) else None


def _continued(gradients: Sequence[GradientStep], count: int) -> Iterator[GradientStep]:
    for number in range(count):
        one, lap = gradients[number % len(gradients)], number // len(gradients)
        growth = 1 + lap / 2
        values = np.roll(one.values, lap) * growth
        yield replace(one, values=values, norm=one.norm * growth, global_norm=one.global_norm * growth)


def _simulated(rule: UpdateRule, steps: ObservedSteps, gradients: tuple[GradientStep, ...]) -> ObservedSteps:
    after: list[Array] = apply_rule(rule, steps.before[0], gradients)
    return ObservedSteps((steps.before[0], *after[:-1]), tuple(after), gradients, steps.dtype)


def _first_difference(one: ObservedSteps, other: ObservedSteps, rule: UpdateRule) -> int | None:
    over = excess(one.moved, other.moved, rounding_limits(one, rule, other)).max(axis=1) > 1
    return int(np.argmax(over)) + 1 if over.any() else None


@dataclass(frozen=True, slots=True)
class UpdateFigures:
    """The figures of ParameterUpdates; `not_finite` counts elements of each side that are no numbers at the end."""

    difference: float
    places: float
    share: float | None
    first_step: int | None
    judged: float
    by_epsilon: int
    not_finite: tuple[int, int]


def measure_updates(reference: ObservedSteps, candidate: ObservedSteps, rule: UpdateRule | None) -> UpdateFigures:
    """Compare the movements of two sides step by step, with the rounding of the reference's rule if that is known."""
    size, count = len(reference.before[0]), len(reference.before)
    over, gaps, moved = np.zeros(count), np.zeros(count), np.zeros(count)
    places, drifted, unjudged, by_epsilon = 0.0, 0.0, 0, 0
    for start in range(0, size, BLOCK_ELEMENTS):
        mine, theirs = (side.some(slice(start, start + BLOCK_ELEMENTS)) for side in (reference, candidate))
        block = _beyond(mine, theirs, rule)
        over, drifted = np.maximum(over, block.steps), max(drifted, block.drifted)
        unjudged, by_epsilon = unjudged + block.unjudged, by_epsilon + block.by_epsilon
        gap = _gaps(mine, theirs)
        gaps, moved = np.maximum(gaps, gap.max(axis=1)), np.maximum(moved, _finite(np.abs(mine.moved)).max(axis=1))
        places = max(places, float((gap / last_places(mine.before[0], mine.dtype)).max()))
    ends = tuple(int((~np.isfinite(side.after[-1])).sum()) for side in (reference, candidate))
    return UpdateFigures(
        max(float(over.max(initial=0.0)), drifted),
        places,
        float((gaps[moved > 0] / moved[moved > 0]).max()) if np.any(moved) else None,
        _first(over, drifted),
        1 - unjudged / size if size else 1.0,
        by_epsilon,
        (ends[0], ends[1]),
    )


@dataclass(frozen=True, slots=True)
class _Beyond:
    """What of a block is beyond rounding: the worst of each step, in limits, and elements that are set aside."""

    steps: Array
    drifted: float
    unjudged: int = 0
    by_epsilon: int = 0


def _beyond(mine: ObservedSteps, theirs: ObservedSteps, rule: UpdateRule | None) -> _Beyond:
    """Noise is asked for where the plain limits do not hold."""
    plain = rounding_limits(mine, rule, theirs, noisy=False)
    beyond, drifted = excess(theirs.moved, mine.moved, plain), drift(theirs, mine.moved, plain)
    if rule is None or max(float(beyond.max()), drifted) <= 1:
        return _Beyond(beyond.max(axis=1), drifted)
    limits = rounding_limits(mine, rule, theirs)
    allowed = excess(theirs.moved, mine.moved, limits)
    unguarded = excess(theirs.moved, mine.moved, rounding_limits(mine, rule, theirs, guarded=False))
    by_epsilon = int(((unguarded.max(axis=0) > 1) & (allowed.max(axis=0) <= 1)).sum())
    unjudged = int(np.isinf(limits[-1]).sum())
    return _Beyond(allowed.max(axis=1), drift(theirs, mine.moved, limits), unjudged, by_epsilon)


def _first(over: Array, drifted: float) -> int | None:
    """The first step that is beyond its limit; a drift is there from the first on."""
    steps = np.flatnonzero(over > 1)
    return int(steps[0]) if len(steps) else (0 if drifted > 1 else None)


def _gaps(mine: ObservedSteps, theirs: ObservedSteps) -> Array:
    with np.errstate(invalid="ignore"):
        return _finite(np.abs(np.stack(mine.moved) - np.stack(theirs.moved)))


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


# Causes that parameters have in common: what explains them all stands for all of them, and what does not is dropped.
#
# By itself a parameter may be explained by more than is true: the decay of a single number is a factor of its
# gradient too. So what explains any is tried on all, and an alternative has to hold on all that it is to explain, and
# to leave those parameters of the same groups as they are that both sides update alike.


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
    unlike = [number for number, parameter in enumerate(parameters) if parameter.found]
    shared: list[Found] = [[*parameter.found] for parameter in parameters]
    if not _worth_trying([shared[number] for number in unlike]):
        return shared
    trial = _Trial(parameters)
    left, tried = {*unlike}, _tried([shared[number] for number in unlike])
    while left and tried:
        best = max(tried, key=lambda rule: trial.weight(rule, left))
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
    for rule in tried:
        codes = trial.codes(rule, members[0])
        if codes not in kinds and trial.is_alternative(rule, best, members):
            kinds.add(codes)
            kept.append(rule)
    return [[(rule, trial.cause(rule, number)) for rule in kept] for number in members]


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
        return self._holds_on_some(solved, number) and self._missed(solved, number) <= SOLVED_EXCESS

    def weight(self, solved: SolvedRule, left: set[int]) -> tuple[int, int, bool]:
        """Rank a rule by the settings that confirm it, how many it explains, and whether it spares what is alike."""
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
        return tuple(one.code for one in changes_of(self._of(solved, number), self._parameters[number].rule))

    def cause(self, solved: SolvedRule, number: int) -> UpdateCause:
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
