"""The part of a training step that is the optimizer's alone: what it did on both sides under the same gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON
from align.training.thresholds import RATIO_ELEMENTS, SIGN_TOLERANCE, SOLVED_EXCESS
from align.training.updates.apply_rule import gradient_norm, gradient_steps
from align.training.updates.common_causes import UpdatedParameter, share_causes
from align.training.updates.explain_update import Explainer, worst_excess
from align.training.updates.measure_updates import UpdateFigures, measure_updates
from align.training.updates.observed_steps import excess, observed_steps, rounding_limits
from align.training.updates.steps_to_tell import steps_to_tell
from align.training.updates.update_rules import read_rule
from align.training.updates_result import (
    ParameterUpdates,
    UpdateCause,
    UpdateChange,
    UpdateFinding,
    UpdatesResult,
    UpdateState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.layer_settings import ParameterGroup
    from align.training.updates.explain_update import SolvedRule
    from align.training.updates.observed_steps import ObservedSteps
    from align.training.updates.update_rules import UpdateRule
    from align.training.updates_result import SteppedParameter


Explained = tuple[UpdateState, list[UpdateCause], "bool | None"]


def explain_updates(parameters: Sequence[SteppedParameter]) -> UpdatesResult:
    """Tell which parameters two optimizers update otherwise under the same gradients, and what explains it.

    Each explanation was recomputed: it reproduces all steps of the candidate within rounding. Give all parameters that
    have a gradient, since clipping by the norm of all of them is one of the explanations; all have as many steps.

    >>> from align.training.updates_result import SteppedParameter
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
    known = [one.updated for one in compared if one.updated is not None]
    shared = iter(share_causes(known))
    for one in compared:
        found = [] if one.updated is None else next(shared)
        if one.updated is None or not found:
            yield one.row
            continue
        yield replace(one.row, causes=tuple(cause for _, cause in found), steps_to_tell=_further(one.updated, found))


def _further(updated: UpdatedParameter, found: Sequence[tuple[SolvedRule, UpdateCause]]) -> int | None:
    """How many steps would tell alternatives apart, if these do not."""
    if len(found) < 2:
        return None
    tell = steps_to_tell(updated.steps, [solved.change.rule(updated.rule, solved.numbers) for solved, _ in found])
    return tell if tell is not None and tell > len(updated.steps.before) else None


def _global_norms(gradients: Sequence[Sequence[Array]]) -> list[float]:
    """The norm of all gradients of each step."""
    norms = [[gradient_norm(one) for one in each] for each in gradients]
    return [float(np.linalg.norm(row)) for row in zip(*norms, strict=True)]


def _compared(one: SteppedParameter, norms: tuple[Sequence[float], Sequence[float]], explainer: Explainer) -> _Compared:
    reference, candidate = _sides(one, norms)
    rules = _rule(one.reference_group, len(norms[0])), _rule(one.candidate_group, len(norms[0]))
    figures = _figures(one, reference, candidate, rules[0])
    groups = id(one.reference_group), id(one.candidate_group)
    if figures.difference <= 1:
        row = _row(one, figures, ("same", [], None), None)
        return _Compared(row, None if rules[0] is None else UpdatedParameter(candidate, rules[0], groups))
    candidate_known = None if rules[1] is None else worst_excess(candidate, rules[1]) <= SOLVED_EXCESS
    found: list[tuple[SolvedRule, UpdateCause]] = []
    row = _row(one, figures, _explained((reference, candidate), rules, figures, explainer, found), candidate_known)
    return _Compared(row, UpdatedParameter(candidate, rules[0], groups, found) if rules[0] and found else None)


def _figures(
    one: SteppedParameter, reference: ObservedSteps, candidate: ObservedSteps, rule: UpdateRule | None
) -> UpdateFigures:
    """Hold both movements against each other, or the candidate's against the reference's rule for its own gradients.

    Nothing is judged where gradients are not the same, and no rule gives the reference's movements.
    """
    if one.candidate_gradients is None:
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
    one: SteppedParameter, norms: tuple[Sequence[float], Sequence[float]]
) -> tuple[ObservedSteps, ObservedSteps]:
    """Both sides, in the coarser dtype of the two where they keep values in unlike ones."""
    gradients = gradient_steps(one.gradients, norms[0])
    theirs = gradient_steps(one.candidate_gradients or one.gradients, norms[1])
    dtypes = [one.reference_after[0].dtype, one.candidate_after[0].dtype]
    coarser = max(dtypes, key=lambda dtype: EPSILON[dtype.name]).name
    own = [one.before, *one.reference_after[:-1]]
    others = own if one.candidate_reset else [one.before, *one.candidate_after[:-1]]
    reference = observed_steps(own, one.reference_after, gradients, coarser)
    before = [each.astype(dtypes[1], copy=False) for each in others]
    return reference, observed_steps(before, one.candidate_after, theirs, coarser)


def _explained(
    sides: tuple[ObservedSteps, ObservedSteps],
    rules: tuple[UpdateRule | None, UpdateRule | None],
    figures: UpdateFigures,
    explainer: Explainer,
    found: list[tuple[SolvedRule, UpdateCause]],
) -> Explained:
    """The state, the causes, and whether the reference's rule is its rule; rules that explain it go to `found`."""
    reference, candidate = sides
    known = None if rules[0] is None else worst_excess(reference, rules[0]) <= SOLVED_EXCESS
    if figures.difference == inf:
        change = UpdateChange("not-finite", "values", figures.not_finite[0], figures.not_finite[1])
        return "explained", [UpdateCause((change,), inf, 0.0, confirmed=False)], known
    if rules[0] is None or not known or candidate.still or reference.still:
        causes = _explained_by_ratio(reference, candidate, figures.difference)
        return "explained" if causes else "rule unknown", causes, known
    found += explainer.explain(candidate, rules[0], rules[1])
    return "explained" if found else "unexplained", [cause for _, cause in found], known


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
    one: SteppedParameter, figures: UpdateFigures, explained: Explained, candidate_known: bool | None
) -> ParameterUpdates:
    state, causes, known = explained
    return ParameterUpdates(
        one.reference,
        one.candidate,
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
    """Parameters that differ, by state and causes."""
    groups: dict[object, list[ParameterUpdates]] = {}
    for row in rows:
        if row.state != "same":
            groups.setdefault((row.state, tuple(one.changes for one in row.causes)), []).append(row)
    for members in sorted(groups.values(), key=len, reverse=True):
        first, tell = members[0], [row.steps_to_tell for row in members]
        yield UpdateFinding(
            first.state,
            tuple(one.changes for one in first.causes),
            all(row.causes and row.causes[0].confirmed for row in members),
            tuple(row.reference for row in members),
            tuple(row.candidate for row in members),
            max(row.difference for row in members),
            None if None in tell else max(one for one in tell if one is not None),
        )
