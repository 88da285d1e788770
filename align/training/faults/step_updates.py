"""What the optimizers of both sides did with the reference's gradients, parameter by parameter, and their schedules.

Learning rates are compared over the whole of both schedules: they may part long after the steps that are taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import without_sums
from align.core.parameters import EPSILON, dtype_name
from align.core.traces import smallest_factor
from align.core.verdicts import Finding
from align.lint.compare_optimizers import first_unlike_rate, stretched_by
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.rules.training_rules import CONVENTIONS, optimizer_of_rule, update_rule_form
from align.training.apply_rule import gradient_norm, moved_norm, read_rule
from align.training.compare_updates import explain_updates
from align.training.faults.gradient_forms import rms
from align.training.step_result import ComparedUpdate, StepCulprit, SteppedParameter, UpdatesResult
from align.training.steps.both_steps import (
    brought_back,
    carried_over,
    judge_values,
    optimizer_scale,
    paired_value,
    paired_values,
    step_once,
    values_of_both,
)
from align.training.steps.record_step import AFTER, BEFORE, COMPUTED, GIVEN
from align.training.steps.recorded_steps import BY_LOOP
from align.training.thresholds import (
    FACTOR_TOLERANCE,
    LAST_PLACES,
    OWN_UPDATE_ROUNDINGS,
    OWN_UPDATE_SHARE,
    UNEXPLAINED_SHARE,
)
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap
    from align.core.parameters import Array
    from align.core.protocols import LearningRates
    from align.core.traces import Measurement
    from align.lint.compare_optimizers import RatesDiffer
    from align.training.open_training import TrainingSide
    from align.training.step_result import FieldValue, Sureness, UpdateFinding
    from align.training.steps.both_steps import SeenSteps, StepsApart
    from align.training.steps.recorded_steps import RecordedSteps

    Key = tuple[str, str]


SCALED_OFF = ("gradient-scale", "did-not-move")  # what an optimizer shows that takes a loss scale off
LATER = "schedule-later"
FITTED_RATES = "schedule"
BOUNDED = "values-bounded"


def compare_step_updates(seen: SeenSteps) -> tuple[UpdatesResult, tuple[ComparedUpdate, ...]]:
    """Compare what both optimizers made of the gradients of each step.

    A live candidate was handed the reference's gradients, and its values before each step; of one that was recorded
    apart they are its own. Left out are parameters of the candidate that are not trained, and those that some step of
    either side gives no gradient; all of them where a step updates parameters several times.
    """
    name_map, traces, start = seen.updated_names, seen.traces, seen.start
    if any(trace.repeated for trace in traces):
        return UpdatesResult(len(traces[0].losses), (), ()), ()
    trained = {parameter.name for parameter in seen.parameters[1].parameters if parameter.trainable}
    steps = len(traces[0].losses)
    gradients = [_meant(name_map, traces[0].values(step, GIVEN)) for step in range(steps)]
    after = [_both(name_map, *(trace.values(step, AFTER) for trace in traces)) for step in range(steps)]
    before = _meant(name_map, traces[0].values(0, AFTER), start)
    groups, apart = (seen.sides[0].groups, seen.sides[1].groups), seen.live is None
    theirs = [_both(name_map, *(trace.values(step, GIVEN) for trace in traces)) for step in range(steps) if apart]
    known: list[Mapping[Key, object]] = [*gradients, *after, *theirs]
    given = [traces[1].values(step, GIVEN).keys() for step in range(steps)]
    whole = [
        key
        for key in before
        if key[1] in trained and all(key in values for values in known) and all(key[1] in values for values in given)
    ]
    stepped = [
        SteppedParameter(
            *key,
            before[key],
            [values[key] for values in gradients],
            [values[key][0] for values in after],
            [values[key][1] for values in after],
            groups[0].get(key[0]),
            groups[1].get(key[1]),
            candidate_reset=not apart,
            candidate_gradients=[values[key][1] for values in theirs] or None,
        )
        for key in whole
    ]
    result = explain_updates(stepped)
    sizes = (_sizes(parameter, row.difference) for parameter, row in zip(stepped, result.parameters, strict=True))
    return result, tuple(sizes)


def wrong_updates(seen: SeenSteps, *, scaled: bool) -> tuple[list[StepCulprit], tuple[ComparedUpdate, ...]]:
    """What the optimizers do otherwise with the reference's gradients, and all updates.

    A scale that is `scaled` off is no fault, and the updates of an optimizer that takes it off are left out: under the
    reference's gradients it moves parameters by so much less, or not at all.
    """
    result, updates = compare_step_updates(seen)
    instead = _instead(seen.sides)
    named = _without_fitted_rates(update_culprits(result), seen)
    named = [_with_bound(culprit, seen) for culprit in named]
    found = [_with_change(culprit, instead) if instead else _with_reason(culprit, seen.sides[1]) for culprit in named]
    unscaled = [culprit for culprit in found if scaled and culprit.cause in SCALED_OFF]
    names = {name for culprit in unscaled for name in culprit.parameters}
    return [culprit for culprit in found if culprit not in unscaled], tuple(
        update for update in updates if update.candidate not in names
    )


def _without_fitted_rates(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """One culprit without a cause for all that rates of single steps would explain, where nothing else speaks for them.

    So many free numbers explain much that is something else: where both sides' rates are equal, and all that a single
    number does.
    """
    sources = {pairing.target: pairing.source for pairing in seen.names.pairings}
    groups = seen.sides[0].groups, seen.sides[1].groups

    def has_equal_rates(name: str) -> bool:
        both = groups[0].get(sources.get(name, "")), groups[1].get(name)
        rates = [group.rates for group in both if group is not None and not group.rates.problem and group.rates.values]
        return len(rates) == len(both) and first_unlike_rate(rates[0], rates[1]) is None

    def has_known_rule(name: str) -> bool:
        both = groups[0].get(sources.get(name, "")), groups[1].get(name)
        return all(group is not None and read_rule(group) is not None for group in both)

    def is_fitted(culprit: StepCulprit) -> bool:
        numbers = all(name in seen.start and seen.start[name].size == 1 for name in culprit.parameters)
        numbers = numbers and not all(map(has_known_rule, culprit.parameters))
        return culprit.cause == FITTED_RATES and (numbers or all(map(has_equal_rates, culprit.parameters)))

    if not any(map(is_fitted, culprits)):
        return [*culprits]
    unknown = [culprit for culprit in culprits if not culprit.cause or is_fitted(culprit)]
    names = tuple(name for culprit in unknown for name in culprit.parameters)
    whole = replace(unknown[0], cause="", facts={}, parameters=names, sureness="unknown")
    return [
        whole if culprit is unknown[0] else culprit
        for culprit in culprits
        if culprit is unknown[0] or culprit not in unknown
    ]


def _with_bound(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name a bound that one side puts on values after its update: with it on the other side's all steps are the same.

    A single number has to stand at the bound in two steps.
    """
    if culprit.cause and " + " not in culprit.cause:  # two numbers that were fitted explain much
        return culprit
    pairings = {pairing.target: pairing for pairing in seen.names.pairings}
    steps = range(len(seen.traces[0].losses))
    after = [{**trace.values(step, AFTER)} for step in steps for trace in seen.traces]
    bounds: set[tuple[str, str]] = set()
    for name in culprit.parameters:
        values = [
            (pairings[name].transform.apply(after[2 * step][pairings[name].source]), after[2 * step + 1][name])
            for step in steps
        ]
        found = _bound_of(values, "reference") or _bound_of([pair[::-1] for pair in values], "candidate")
        bounds.add(found or ("", ""))
    if len(bounds) != 1 or ("", "") in bounds:
        return culprit
    ((side, bound),) = bounds
    return replace(culprit, cause=BOUNDED, facts={"only in": side, "bound": bound}, sureness="confirmed")


def _bound_of(values: Sequence[tuple[Array, Array]], side: str) -> tuple[str, str] | None:
    """The numbers at which the first of two values stand wherever both differ, the second beyond; None for none."""
    numbers: dict[str, list[float]] = {"low": [], "high": []}
    for first, second in values:
        if first.shape != second.shape or first.dtype.kind != "f":
            return None
        apart = np.abs(first.astype(np.float64) - second) > LAST_PLACES * EPSILON[dtype_name(first.dtype)] * np.abs(
            first
        )
        numbers["low"] += first[apart & (second < first)].tolist()
        numbers["high"] += first[apart & (second > first)].tolist()
    found = [{*own} for own in numbers.values() if own]
    if sum(map(len, numbers.values())) < 2 or any(len(own) != 1 for own in found):
        return None
    return side, " to ".join(f"{own.pop():.6g}" for own in found)


def _instead(sides: tuple[RecordedSteps, RecordedSteps]) -> str:
    """The optimizer of MindSpore that computes what the reference's does; "" where the candidate's does so too."""
    used = [{group.settings.classes[:1] for group in side.groups.values()} for side in sides]
    if any(len(own) != 1 for own in used):
        return ""
    (reference,), (candidate,) = used
    name = optimizer_of_rule(reference)
    form, known = update_rule_form(candidate), update_rule_form([name])
    is_other = form is not None and known is not None and (form.kind, form.fixed) != (known.kind, known.fixed)
    return f"{name}(...)" if is_other and candidate[0].startswith("mindspore.") else ""


def _with_change(culprit: StepCulprit, instead: str) -> StepCulprit:
    """What no setting of the candidate's optimizer changes asks for another one."""
    is_convention = not CONVENTIONS.isdisjoint(culprit.facts)
    return replace(culprit, change=instead) if instead and is_convention else culprit


def _with_reason(culprit: StepCulprit, candidate: RecordedSteps) -> StepCulprit:
    """Say what decides on the decay of parameters that MindSpore leaves out by their names, and what to write."""
    paths = {candidate.groups[name].settings.path for name in culprit.parameters if name in candidate.groups}
    if culprit.change or "weight-decay" not in culprit.cause or paths != {sentence("optimizer_note.beta_and_gamma")}:
        return culprit
    return replace(culprit, change=sentence("step_change.decay_by_names"))


def _sizes(parameter: SteppedParameter, factor: float) -> ComparedUpdate:
    """The norms of what each step changed, on both sides from the values before it."""
    own = parameter.reference_after if parameter.candidate_reset else parameter.candidate_after
    mine = map(moved_norm, [parameter.before, *parameter.reference_after[:-1]], parameter.reference_after)
    theirs = map(moved_norm, [parameter.before, *own[:-1]], parameter.candidate_after)
    return ComparedUpdate(
        parameter.reference, parameter.candidate, gradient_norm(parameter.before), tuple(mine), tuple(theirs), factor
    )


def update_culprits(result: UpdatesResult) -> list[StepCulprit]:
    """One culprit for all parameters that one thing explains, in groups of other settings too."""
    alike: dict[object, list[UpdateFinding]] = {}
    for one in result.findings:
        alike.setdefault(_likeness(one), []).append(one)
    return [_culprit(own) for own in alike.values()]


def _likeness(finding: UpdateFinding) -> object:
    """What findings of one cause share: the changes, and how the candidate's settings follow from the reference's."""
    first = finding.alternatives[0] if finding.alternatives else ()
    codes = tuple(tuple(one.code for one in other) for other in finding.alternatives)
    return finding.state, codes, tuple(_step_of(one.reference, one.candidate) for one in first)


def _step_of(reference: FieldValue, candidate: FieldValue) -> object:
    """The factor between two numbers, or both where there is none."""
    if isinstance(reference, float) and isinstance(candidate, float) and reference:
        return float(f"{candidate / reference:.4g}")
    return reference, candidate


def held_by_none(seen: SeenSteps) -> list[StepCulprit]:
    """Parameters that the reference's optimizers get a gradient of, and that are in no optimizer of the candidate."""
    held_names, given = seen.traces[1].held, seen.traces[0].values(0, GIVEN)
    if not seen.sees_updates:
        return []
    trained = {one.name for one in seen.parameters[1].parameters if one.trainable and not one.tied_to}
    pairs = [one for one in seen.names.pairings if one.source in given and one.target in trained]
    by_code = updated_by_code(seen)
    names = tuple(one.target for one in pairs if held_names is not None and one.target not in held_names | by_code)
    if not names:
        return []
    return [StepCulprit("update", "optimizer", "", "", "", "", 0.0, "in-no-optimizer", {}, names, sureness="confirmed")]


def scale_of_optimizers(seen: SeenSteps) -> float:
    """The factor of the candidate's optimizers on gradients, over the reference's, where they get what was computed."""
    return optimizer_scale(seen.sides[0].groups, seen.sides[1].groups) if seen.live is None else 1.0


def _culprit(findings: Sequence[UpdateFinding]) -> StepCulprit:
    """Name one cause, or several if settings of the groups differ."""
    first = findings[0]
    changes = first.alternatives[0] if first.alternatives else ()
    settings: dict[str, list[str]] = {}
    for change in (change for finding in findings for change in (finding.alternatives or ((),))[0]):
        settings.setdefault(change.setting, []).append(
            f"{_value_text(change.reference)} vs {_value_text(change.candidate)}"
        )
    facts = {setting: ", ".join(dict.fromkeys(values)) for setting, values in settings.items()}
    if len(first.alternatives) > 1:
        others = (" + ".join(change.code for change in other) for other in first.alternatives[1:])
        facts["or"] = ", ".join(others)
    if first.steps_to_tell is not None:
        facts["steps that tell"] = str(first.steps_to_tell)
    names = tuple(name for finding in findings for name in finding.candidates)
    return StepCulprit(
        "update", "optimizer", "", "", "", "", max(finding.difference for finding in findings),
        " + ".join(change.code for change in changes), {**facts}, names,
        sureness=_sureness(first),
    )  # fmt: skip


def _sureness(finding: UpdateFinding) -> Sureness:
    """All were recomputed; of several, the settings of both sides may tell which it is."""
    if not finding.alternatives:
        return "unknown"
    return "confirmed" if finding.confirmed or len(finding.alternatives) == 1 else "suspected"


def _value_text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _meant(
    name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array] | None = None
) -> dict[Key, Array]:
    """The reference's values in the candidate's layout, or the target's where it is given."""
    pairs = paired_values(name_map, source, target or {})
    found = ((one.pairing, one.meant if target is None else one.value) for one in pairs)
    return {(pairing.source, pairing.target): value for pairing, value in found if value is not None}


def _both(
    name_map: NameMap, source: Mapping[str, Array], target: Mapping[str, Array]
) -> dict[Key, tuple[Array, Array]]:
    found = values_of_both(name_map, source, target)
    return {(pairing.source, pairing.target): (meant, value) for pairing, meant, value in found}


def rate_culprits(seen: SeenSteps, faulty: Iterable[str]) -> Iterator[StepCulprit]:
    """Name schedules of both sides that part after the steps taken, but of parameters that are `faulty` already."""
    for unlike, rates, names in _unlike(seen, {*faulty}):
        if all(one.scheduled for one in rates) and not stretched_by(*rates):
            yield StepCulprit(
                "update", "optimizer", "", "", "", "", 0.0, LATER, {**_facts(unlike)}, names, sureness="confirmed"
            )


def rate_findings(seen: SeenSteps, faulty: Iterable[str]) -> Iterator[Finding]:
    """Warn of schedules that may agree: the other side's may stand where nobody sees it, or be stepped more rarely."""
    for unlike, rates, names in _unlike(seen, {*faulty}):
        has = seen.sides[0 if rates[0].scheduled else 1]
        if not all(one.scheduled for one in rates):
            message = sentence("rates_finding.on_one_side", step=unlike.step + 1, names=names)
            yield Finding("schedule-on-one-side", "warning", has.label, message, {**_facts(unlike)})
        elif steps := stretched_by(*rates):
            message = sentence("rates_finding.stretched", steps=steps, names=names)
            yield Finding("schedule-stretched", "warning", has.label, message, {"steps": steps})


def _unlike(
    seen: SeenSteps, faulty: set[str]
) -> Iterator[tuple[RatesDiffer, tuple[LearningRates, LearningRates], tuple[str, ...]]]:
    """Rates of paired groups that part behind the steps that were taken, with the candidate's parameters."""
    paired: dict[tuple[int, int], list[str]] = {}
    groups = seen.sides[0].groups, seen.sides[1].groups
    for pairing in seen.names.pairings:
        if pairing.source in groups[0] and pairing.target in groups[1]:
            paired.setdefault((id(groups[0][pairing.source]), id(groups[1][pairing.target])), []).append(pairing.target)
    known = {id(group): group.rates for own in groups for group in own.values()}
    taken = len(seen.traces[0].losses)
    for (mine, theirs), names in paired.items():
        rates = known[mine], known[theirs]
        if faulty & {*names} or any(rate.problem or not rate.values or rate.by == BY_LOOP for rate in rates):
            continue
        unlike = first_unlike_rate(*rates)
        if unlike is not None and unlike.step >= taken:
            yield unlike, rates, tuple(names)


def _facts(unlike: RatesDiffer) -> dict[str, float | int | str]:
    return {"from step": unlike.step + 1, "learning rate": f"{unlike.rates[0]:.6g} vs {unlike.rates[1]:.6g}"}


# Updates by code of the user's own, which no optimizer of a framework makes: what a step changes is compared in
# whole.
#
# Such code cannot be given the reference's gradients. Each step begins from the reference's values, so that what it
# changes is the reference's change, but for what rounding of the gradients does to it.


def updated_by_code(seen: SeenSteps) -> frozenset[str]:
    """The candidate's parameters that a side trains without an optimizer of its framework, beside others that it holds.

    There is a gradient of them on both sides, and the side that holds them in no optimizer moves them all the same.
    """
    if not seen.sees_updates or seen.live is None:
        return frozenset()
    mine, theirs = (seen.computed(side, 0) for side in range(2))
    starts = seen.traces[0].values(0, BEFORE), seen.start
    after = [trace.values(0, AFTER) for trace in seen.traces]

    def by_code(side: int, name: str) -> bool:
        held = seen.traces[side].held
        if not held or name in held or name not in starts[side] or name not in after[side]:
            return False
        return not np.array_equal(starts[side][name], after[side][name])

    pairs = [one for one in seen.names.pairings if one.source in mine and one.target in theirs]
    trained = [one for one in pairs if np.any(mine[one.source]) and np.any(theirs[one.target])]
    return frozenset(one.target for one in trained if by_code(0, one.source) or by_code(1, one.target))


def own_update_culprits(seen: SeenSteps, only: Collection[str] | None = None) -> list[StepCulprit]:
    """Parameters that the candidate's own code changes otherwise than the reference's optimizer, of the first step so.

    Of all, or `only` of these.

    A factor of all changes of the first step is one of the learning rate, which is suspected: the step's own numbers
    are not seen.
    """
    for step in range(len(seen.traces[0].losses)):
        found = _changes(seen, step)
        changes = [change for change in found if only is None or change.name in only]
        off = [change for change in changes if _apart(change.meant, change.made) > change.limit]
        if not off:
            continue
        mine = np.concatenate([change.meant.ravel() for change in off])
        theirs = np.concatenate([change.made.ravel() for change in off])
        length = float(mine @ mine)
        factor = float(mine @ theirs) / length if length else 0.0
        scaled = (
            step == 0
            and factor != 0.0
            and _apart(factor * mine, theirs) <= UNEXPLAINED_SHARE
            and abs(factor - 1.0) > FACTOR_TOLERANCE
        )
        cause, facts = ("learning-rate", {"factor": float(f"{factor:.4g}")}) if scaled else ("", {})
        if not theirs.any():
            cause = "did-not-move"
        names, above = tuple(dict.fromkeys(change.name for change in off)), max(change.limit for change in off)
        return [
            StepCulprit(
                "update", "optimizer", "", "", "", "", _apart(mine, theirs) / above, cause, {**facts}, names,
                step=step + 1, sureness="suspected" if cause else "unknown",
            )
        ]  # fmt: skip
    return []


def own_update_findings(seen: SeenSteps) -> Iterator[Finding]:
    """Say of which side the settings of an optimizer were not read."""
    for side in seen.sides:
        if side.own_step and side.trace.held is not None and not side.trace.held:
            yield Finding("own-updates", "note", side.label, sentence("step_finding.own_updates"))
    if names := sorted(updated_by_code(seen)):
        message = sentence("step_finding.own_updates_of", names=names, n=len(names))
        yield Finding("own-updates", "note", seen.sides[1].label, message)


@dataclass(frozen=True, slots=True)
class _Change:
    """What both sides change of a parameter or a piece of it, in float64, and by what share of it they may be apart."""

    name: str
    meant: Array
    made: Array
    limit: float


def _changes(seen: SeenSteps, step: int) -> list[_Change]:
    """The change of each parameter with a gradient on the reference's side, but for those that have rounding alone."""
    pairs = paired_values(seen.gradient_names, seen.computed(0, step), seen.computed(1, step))
    judged = judge_values(pairs, seen.noise.together, (step, COMPUTED), alone=False, coarser=seen.precision_of)
    shares = {gradient.pairing: _share(gradient.measurement) for gradient in judged if not gradient.is_noise}
    before = carried_over(seen.names, seen.traces[0].values(step - 1, AFTER), seen.start) if step else seen.start
    starts = {pair.pairing: pair.value for pair in paired_values(seen.updated_names, {}, before)}
    changes = []
    for pair in paired_values(seen.updated_names, *(trace.values(step, AFTER) for trace in seen.traces)):
        start, share = starts.get(pair.pairing), shares.get(pair.pairing)
        if share is not None and start is not None and pair.meant is not None and pair.value is not None:
            meant, made = (value.astype(np.float64) - start for value in (pair.meant, pair.value))
            rounding = EPSILON[dtype_name(start.dtype)] * rms(start) / max(rms(meant), float(np.finfo(np.float64).tiny))
            limit = max(OWN_UPDATE_SHARE, OWN_UPDATE_ROUNDINGS * share, OWN_UPDATE_ROUNDINGS * rounding)
            changes.append(_Change(pair.pairing.target, meant, made, limit))
    return changes


def _share(measurement: Measurement | None) -> float:
    """The part of the candidate's own gradient that is another one, as a share of its size."""
    if measurement is None or not measurement.reference_rms:
        return 0.0
    return measurement.rmse / measurement.reference_rms


def _apart(mine: Array, theirs: Array) -> float:
    """How far two changes are apart, as a share of the reference's; 0 where neither is anything."""
    length, gap = float(np.linalg.norm(mine)), float(np.linalg.norm(theirs - mine))
    return gap / length if length else float(gap > 0.0)


# Updates that no rule explains, where a side moves parameters at a rate of 0: by a decay or a bound of the loop's
# own.
#
# What is moved so is no part of the optimizer's rule. It is tried in two ways: taken off both sides, and done to the
# values that the other side ends at.

MOVED = "moved-at-rate-zero"


def explain_at_rate_zero(culprits: Sequence[StepCulprit], seen: SeenSteps, apart: StepsApart) -> list[StepCulprit]:
    """Return the culprits; updates that a step at a rate of 0 explains become one.

    They do if no single change of the rule explains one of them: of a parameter with a single number any change does.
    """
    moves = _MovesAtRateZero(seen, apart)
    updates = [culprit for culprit in culprits if culprit.kind == "update" and culprit.factor > 1.0]
    unlike = {name for culprit in updates for name in culprit.parameters if moves.unlike(name)}
    if not any(unlike & {*culprit.parameters} for culprit in updates if not culprit.cause or "+" in culprit.cause):
        return [*culprits]
    explained = {name for culprit in updates for name in culprit.parameters if moves.explain(name)}
    unknown = {name for culprit in updates if not culprit.cause for name in culprit.parameters}
    moved = [name for culprit in updates for name in culprit.parameters if name in explained | (unlike & unknown)]
    if not moved:
        return [*culprits]
    confirmed = explained.issuperset(moved)
    first = next(culprit for culprit in updates if {*moved} & {*culprit.parameters})
    left = [
        replace(culprit, parameters=tuple(name for name in culprit.parameters if name not in moved))
        for culprit in culprits
    ]
    named = replace(
        first,
        cause=MOVED,
        facts=moves.facts(moved),
        parameters=tuple(moved),
        factor=max(culprit.factor for culprit in updates),
        sureness="confirmed" if confirmed else "suspected",
    )
    kept = [now for culprit, now in zip(culprits, left, strict=True) if now.parameters or not culprit.parameters]
    place = culprits.index(first)
    return [*kept[:place], named, *kept[place:]]


class _MovesAtRateZero:
    """What both sides move at a rate of 0, parameter by parameter, by the candidate's names."""

    def __init__(self, seen: SeenSteps, apart: StepsApart) -> None:
        self._seen, self._apart = seen, apart
        self._pairings = {one.target: one for one in without_sums(apart.names).pairings if one.source in apart.after[0]}

    def unlike(self, name: str) -> bool:
        return any(not _same(*pair) for pair in self._pairs(name, self._apart.at_rate_zero))

    def explain(self, name: str) -> bool:
        """Tell whether both sides agree without what they move so, or one does so to what the other ends at."""
        if not all([*self._pairs(name, values)] for values in (self._apart.before, self._apart.at_rate_zero)):
            return False
        return self._without_moves(name) or self._once_more(name)

    def facts(self, names: Sequence[str]) -> dict[str, float | int | str]:
        """What moves on each side: as one factor of the values, or as a share of their size."""
        found = [_movement_text([self._pair(name, side) for name in names]) for side in range(len(self._apart.before))]
        return {"at a rate of 0": joined(" vs ", found)}

    def _pair(self, name: str, side: int) -> tuple[Array, Array]:
        own = name if side else self._pairings[name].source
        after = self._apart.at_rate_zero[side] or {}
        return self._apart.before[side][own], after[own]

    def _pairs(self, name: str, values: Sequence[Mapping[str, Array] | None]) -> Iterator[tuple[Array, Array]]:
        pairing, (mine, theirs) = self._pairings.get(name), values
        pair = (
            None
            if pairing is None or mine is None or theirs is None
            else paired_value(pairing, mine.get(pairing.source), theirs.get(name))
        )
        if pair is not None and pair.meant is not None and pair.value is not None:
            yield pair.meant, pair.value

    def _without_moves(self, name: str) -> bool:
        (start,) = self._pairs(name, self._apart.before)
        (still,) = self._pairs(name, self._apart.at_rate_zero)
        (ends,) = self._pairs(name, self._apart.after)
        mine, theirs = (
            end.astype(np.float64) - (zero.astype(np.float64) - begun)
            for end, zero, begun in zip(ends, still, start, strict=True)
        )
        return _same(mine.astype(ends[0].dtype), theirs.astype(ends[1].dtype))

    def _once_more(self, name: str) -> bool:
        """Step the side that moves at a rate of 0 from where the other side ends."""
        names = self._pairings[name].source, name
        moves = [not _same(*self._pair(name, side)) for side in range(len(names))]
        if all(moves):
            return False
        side = int(moves[1])
        done = (self._done_by_reference, self._done_by_candidate)[side]
        return names[side] in done and _same(done[names[side]], self._apart.after[side][names[side]])

    @cached_property
    def _done_by_reference(self) -> Mapping[str, Array]:
        """The reference's step at a rate of 0 from the candidate's values after its own step."""
        apart = self._apart
        start = brought_back(apart.names, apart.after[1], apart.before[0])
        return self._stepped(self._seen.live_reference, {**apart.before[0], **start})

    @cached_property
    def _done_by_candidate(self) -> Mapping[str, Array]:
        apart = self._apart
        start = carried_over(apart.names, apart.after[0], apart.before[1])
        return self._stepped(self._seen.live, {**apart.before[1], **start})

    def _stepped(self, side: TrainingSide | None, start: Mapping[str, Array]) -> Mapping[str, Array]:
        found = None if side is None else step_once(side, self._seen, start, rate_zero=True)
        return found or {}


def _same(one: Array, other: Array) -> bool:
    """Tell whether rounding explains what two tensors differ by."""
    figures = measure(one, other)
    return smallest_factor(figures, rounding_limit(figures, one.dtype.name)) <= 1.0


def _movement_text(pairs: Sequence[tuple[Array, Array]]) -> str:
    """What a step at a rate of 0 made of values: nothing, times one factor, or moved by a share of their size."""
    before, after = (np.concatenate([one[end].astype(np.float64).reshape(-1) for one in pairs]) for end in (0, 1))
    size, moved = float(np.linalg.norm(before)), float(np.linalg.norm(after - before))
    if not moved or not size:
        return sentence("update_fact.moved", size=moved)
    factor = float(before @ after) / size**2
    if np.linalg.norm(after - factor * before) <= UNEXPLAINED_SHARE * moved:
        return sentence("update_fact.times", factor=factor)
    return sentence("update_fact.moved_share", share=moved / size)
