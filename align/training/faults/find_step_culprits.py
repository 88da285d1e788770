"""All that is wrong by itself in the port's steps: the order of the questions, most of which have modules of their own.

What the loss, layers and code do is asked first, then what loops make of gradients, what optimizers make of these, what
becomes of running statistics, and what a step leaves behind for the next one.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from align.core.verdicts import Finding
from align.models.function_source import own_classes
from align.models.source_lines import layer_at
from align.rules.training_rules import update_rule_form
from align.training.faults.explain_code import (
    explain_forward,
    explain_loss_code,
    explain_stops,
    outermost,
    without_what_follows,
)
from align.training.faults.explain_loss import NO_FAULT, explain_loss, explain_loss_inside, explain_outputs
from align.training.faults.find_step_faults import (
    OF_LOSS,
    LayerFaults,
    clipped_by_norm,
    named_scale,
    tensors_by_themselves,
    value_culprits,
    values_by_themselves,
    without_loss_scale,
)
from align.training.faults.gradient_forms import (
    OTHER,
    explain_given,
    given_by_loops,
    given_in_whole,
    later_gradients,
    named_not_cleared,
    other_term,
    same_given,
    scaled_back,
    value_terms,
)
from align.training.faults.loop_faults import explain_loop
from align.training.faults.state_faults import find_recompute_faults, statistic_culprits, tie_culprits
from align.training.faults.step_updates import (
    held_by_none,
    own_update_culprits,
    own_update_findings,
    rate_culprits,
    rate_findings,
    scale_of_optimizers,
    updated_by_code,
    wrong_updates,
)
from align.training.faults.trained_otherwise import (
    frozen_culprits,
    moved_culprits,
    trained_the_same,
    without_followers,
    without_frozen,
)
from align.training.steps.both_steps import owners_of
from align.training.steps.judge_step import is_half
from align.training.steps.record_step import COMPUTED
from align.training.thresholds import FACTOR_TOLERANCE, LOSS_SHARE, LOST_GRADIENT_FACTOR, LOST_GRADIENTS_NOISE_FACTOR
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.training.step_result import ComparedUpdate, StepCulprit
    from align.training.steps.both_steps import JudgedValue, SeenSteps
    from align.training.steps.recorded_steps import LineFinder


class StepFaults(NamedTuple):
    """What is wrong by itself, and what both optimizers made of each parameter.

    `scale` is the factor of a loss scale that is taken off again, None for none. `findings` are what may be wrong.
    `same` says that the steps train the same, though layers inside of them compute otherwise.
    """

    culprits: list[StepCulprit]
    scale: float | None
    updates: tuple[ComparedUpdate, ...]
    findings: tuple[Finding, ...]
    same: bool = False


class _Places(NamedTuple):
    """What is `known` of the first step's gradients as a tie or a term of the loss, and all else `by_place`."""

    known: list[StepCulprit]
    by_place: list[StepCulprit]


def find_step_culprits(seen: SeenSteps, alone: Sequence[JudgedValue], together: Sequence[JudgedValue]) -> StepFaults:
    """Find all that is wrong by itself.

    `alone` and `together` are the gradients of parameters, each layer by itself and the whole step.
    """
    if not seen.runs_alike:
        return _of_whole_steps(seen)
    owners = owners_of(seen.parameters[1])
    known, by_place = _places(seen, alone, together, owners)
    found, given, scale = without_loss_scale(
        by_place, _given(seen, alone, known), scale_of_optimizers(seen), lambda: same_given(seen)
    )
    named = [own for one in found if (own := _explained(one, seen)).cause != NO_FAULT]
    culprits = [*known, *named, *_of_loops(given, seen, owners)]
    of_optimizers = _of_optimizers(seen, scale)
    if seen.meant_after and of_optimizers.culprits:  # behind another update all gradients are others
        culprits = [one for one in culprits if not _is_of_whole(one)]
    culprits += [*of_optimizers.culprits, *statistic_culprits(seen, owners), *find_recompute_faults(seen)]
    culprits += moved_culprits(seen, culprits)
    if not culprits:
        culprits += own_update_culprits(seen, updated_by_code(seen) if seen.sees_updates else None)
    if not (culprits and is_half(seen.precision.whole)):  # there a fault of the first step may show in the second only
        culprits += later_gradients(seen, owners, named=bool(culprits))
    if scale is not None and not culprits and scale_of_optimizers(seen) == 1.0:
        culprits += value_culprits(scaled_back(seen, alone), "gradients", "step", owners)
    excused = trained_the_same(seen, named)
    culprits = [_without_factor_of_one(one, seen) for one in without_followers(culprits)]
    culprits = [_with_line(seen.sides[1].line_of, one) for one in culprits if one not in excused]
    culprits = explain_loop(explain_stops(explain_forward(without_what_follows(culprits), seen), seen), seen)
    culprits = folded_culprits(culprits, seen)
    notes = (*(_otherwise(excused) if excused else ()), *own_update_findings(seen))
    return of_optimizers._replace(
        culprits=culprits, findings=(*of_optimizers.findings, *notes), same=bool(excused) and not culprits
    )


def _is_of_whole(one: StepCulprit) -> bool:
    """Tell whether only gradients of the whole step show it, and no layer or code by itself."""
    return (one.kind, one.part, one.cause) == ("backward", "code", "") and not (one.candidate or one.near)


def _given(seen: SeenSteps, alone: Sequence[JudgedValue], known: Sequence[StepCulprit]) -> list[JudgedValue]:
    """What loops make of right gradients, but of parameters that are frozen, or in no optimizer."""
    frozen = [one for one in known if one.kind == "trained"]
    excluded = {name for one in (*frozen, *held_by_none(seen)) for name in one.parameters} | updated_by_code(seen)
    return [one for one in given_by_loops(seen, alone) if one.pairing.target not in excluded]


def _otherwise(excused: Sequence[StepCulprit]) -> Iterator[Finding]:
    """One note for all that computes otherwise inside of steps that train the same."""
    places = [*dict.fromkeys(one.candidate or one.near or one.part for one in excused)]
    message = sentence("step_finding.computes_otherwise", places=places, n=len(places))
    yield Finding("computes-otherwise", "note", places[0], message)


def _places(
    seen: SeenSteps, alone: Sequence[JudgedValue], together: Sequence[JudgedValue], owners: Mapping[str, str]
) -> _Places:
    """What the loss, layers and the code between them do wrong in the first step."""
    faults, tensors, gradients = LayerFaults(seen.calls.pairs, owners), seen.judge.seen, alone
    frozen = frozen_culprits(seen)
    excluded = {name for one in (*frozen, *held_by_none(seen)) for name in one.parameters}
    gradients = [one for one in gradients if one.pairing.target not in excluded]
    if seen.live is None:
        tensors, gradients = tensors_by_themselves(tensors), values_by_themselves(gradients, tensors, owners)
    faults.take(without_frozen(tensors, excluded))
    tied, untied, changed = tie_culprits(seen, gradients)
    terms, others = value_terms(seen, untied)
    faults.take_gradients(others)
    by_place = [one for one in faults.culprits() if one.kind != "forward" or one.candidate not in changed]
    if not (by_place or tied or terms or excluded):
        by_place += other_term(seen, lost_between(seen, together, owners))
    return _Places([*frozen, *tied, *terms], by_place)


def _of_loops(given: list[JudgedValue], seen: SeenSteps, owners: Mapping[str, str]) -> list[StepCulprit]:
    """What loops of the user's own make of right gradients."""
    explained = clipped_by_norm(explain_given(given, seen), seen.first.given_gradients)
    found = (_of_scale(one, seen) for one in value_culprits(explained, "gradients", "step", owners))
    return [named_not_cleared(one, seen) for one in found]


def _without_factor_of_one(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Say nothing of a factor that only one number shows: any number is a multiple of another."""
    shown = [seen.start[name].size for name in culprit.parameters if name in seen.start]
    if culprit.cause != "gradient-factor" or culprit.kind != "backward" or {*shown} != {1}:
        return culprit
    return replace(culprit, cause="", facts={}, sureness="unknown")


def _of_scale(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name a scale of the loss that the step leaves in, or one of the optimizer that the loss does not have."""
    factor, by = culprit.facts.get("factor"), seen.by_optimizers
    if not isinstance(factor, (int, float)) or culprit.cause != "gradient-factor":
        return culprit
    if seen.scale != 1.0 and abs(factor / seen.scale - 1.0) <= FACTOR_TOLERANCE:
        return replace(culprit, cause=OF_LOSS[1], candidate="")
    if by != 1.0 and abs(factor / by - 1.0) <= FACTOR_TOLERANCE:
        facts: dict[str, float | int | str] = {"gradient_scale": f"1 vs {by:.6g}"}
        return replace(culprit, kind="update", part="optimizer", cause="gradient-scale", facts=facts)
    return culprit


def _of_optimizers(seen: SeenSteps, scale: float | None) -> StepFaults:
    """What optimizers and schedules make of the reference's gradients; with a `scale` that is taken off again."""
    wrong, updates = wrong_updates(seen, scaled=scale is not None)
    faulty = {name for one in wrong for name in one.parameters}
    culprits = [*held_by_none(seen), *wrong, *rate_culprits(seen, faulty)]
    return StepFaults(culprits, scale, updates, tuple(rate_findings(seen, faulty)))


def _explained(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Say what of the loss is otherwise; a factor that is in all gradients may be the loop's."""
    if (culprit.part, culprit.candidate, culprit.cause) == ("code", "", ""):
        named = explain_loss_inside(culprit, seen)
        named = explain_outputs(named, seen) if named.kind == "forward" else named
        return explain_loss_code(named, seen)
    if _is_given_by_step(culprit, seen):
        named = explain_loss_code(replace(culprit, kind="loss", part="loss", candidate="", near=""), seen)
        return named if named.inside else culprit
    begins = culprit.part == "code" and not culprit.candidate and culprit.cause == "gradient-factor"
    if not begins and (culprit.part != "loss" or culprit.cause == OTHER):
        return culprit
    loops = any(side.own_step for side in seen.sides)
    named = named_scale(culprit, given_in_whole(seen), seen.runs_a_step, loops=loops) if loops else culprit
    if begins:  # behind the last layer, where the model's outputs are not paired
        return _sum_of_parts(named, max(seen.runs_a_step))
    return _of_loss(culprit, seen) if named is culprit or _is_of_loss(named, seen) else named


def _is_given_by_step(culprit: StepCulprit, seen: SeenSteps) -> bool:
    """Tell whether the code before a part of the model gives it something else: that of the step, not of the model."""
    if culprit.kind != "forward" or culprit.cause or not culprit.candidate:
        return False
    wrong = {(one.own.module, one.own.call) for one in seen.judge.seen if one.own.role == "input" and one.factor > 1.0}
    return (culprit.candidate, 0) in wrong and outermost(culprit.candidate, seen.traces[1]) == culprit.candidate


def _of_loss(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """What of the loss is otherwise: a setting, its formula, or a call of its code."""
    named = explain_loss(culprit, seen)
    return named if named.cause == NO_FAULT else explain_loss_code(named, seen)


def _sum_of_parts(culprit: StepCulprit, parts: int) -> StepCulprit:
    """Suspect the sum over parts of a batch where the gradient that begins the way back is as often the right one."""
    factor = culprit.facts.get("factor")
    if parts == 1 or not isinstance(factor, (int, float)) or abs(factor / parts - 1.0) > FACTOR_TOLERANCE:
        return culprit
    facts: dict[str, float | int | str] = {"factor": factor, "parts": parts, "side": "candidate"}
    return replace(culprit, kind="loss", part="loss", near="", cause=OF_LOSS[0], facts=facts, sureness="suspected")


def _of_whole(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """What one factor of all gradients is, where layers cannot be paired."""
    named = named_scale(culprit, given_in_whole(seen), seen.runs_a_step, loops=True)
    if named is culprit or not _is_of_loss(named, seen):
        return named
    return replace(explain_loss(culprit, seen), kind="loss", part="loss", parameters=())


def _is_of_loss(named: StepCulprit, seen: SeenSteps) -> bool:
    """Tell whether the loss itself is so much larger, and not only what its scale left in the gradients."""
    return named.cause == OF_LOSS[1] and not _is_same_loss(seen.traces[0].losses[0], seen.first.loss)


def _is_same_loss(one: float | None, other: float | None) -> bool:
    """Tell so where one of them is not known."""
    return one is None or other is None or abs(one - other) <= LOSS_SHARE * abs(one)


def _of_whole_steps(seen: SeenSteps) -> StepFaults:
    """What is wrong in steps whose layers cannot be paired, as of parts of a batch: gradients that optimizers get."""
    frozen = frozen_culprits(seen)
    excluded = {name for one in (*frozen, *held_by_none(seen)) for name in one.parameters}
    whole = given_in_whole(seen) if seen.sees_updates else ()
    given = [one for one in whole if one.pairing.target not in excluded]
    culprits = [*frozen, *(_of_whole(one, seen) for one in value_culprits(given, "gradients", "step", {}))]
    culprits += moved_culprits(seen, culprits)
    culprits += later_gradients(seen, owners_of(seen.parameters[1]), named=bool(culprits))
    culprits += own_update_culprits(seen) if not (seen.sees_updates or culprits) else []
    of_optimizers = _of_optimizers(seen, None)
    findings = (*of_optimizers.findings, *own_update_findings(seen))
    return of_optimizers._replace(culprits=folded_culprits(culprits + of_optimizers.culprits, seen), findings=findings)


def _with_line(line_of: LineFinder, culprit: StepCulprit) -> StepCulprit:
    """Tell the line that makes a layer, or that calls the layer beside which code is wrong."""
    if culprit.part not in ("layer", "code", "parameters"):
        return culprit
    layer = culprit.part != "code" and culprit.candidate
    line = line_of(culprit.candidate) if layer else line_of(culprit.near, calls=True) if culprit.near else ""
    return replace(culprit, line=line)


def lost_between(seen: SeenSteps, together: Sequence[JudgedValue], owners: Mapping[str, str]) -> list[StepCulprit]:
    """What is wrong where each layer alone is right and the whole step is far off, or lacks gradients.

    Then calls count too whose places are not certain, if what they returned agrees: as of modules that hold others, and
    pass on what these return.
    """
    far = [one for one in together if not one.is_noise and one.factor > LOST_GRADIENT_FACTOR]
    if not far or seen.live is None or _apart(together) <= LOST_GRADIENTS_NOISE_FACTOR * _rounding(seen):
        return []
    off = {(one.own.module, one.own.call) for one in seen.judge.seen if one.way == "forward" and one.factor > 1.0}
    calls = {(one.own.module, one.own.call) for one in seen.judge.seen} - off
    faults = LayerFaults(seen.calls.pairs, owners, calls)
    faults.take(seen.judge.seen)
    return faults.culprits() or value_culprits(far, "backward", "code", {})


def _apart(gradients: Sequence[JudgedValue]) -> float:
    """How far gradients are from the reference's, all as one vector, as a share of its length."""
    known = [one for one in gradients if one.measurement is not None]
    lost = sum((one.norms[0] or 0.0) ** 2 for one in gradients if one.measurement is None)
    apart = sum(one.measurement.rmse**2 * one.measurement.count for one in known if one.measurement)
    whole = sum((one.norms[0] or 0.0) ** 2 for one in gradients)
    return sqrt((apart + lost) / whole) if whole else 0.0


def _rounding(seen: SeenSteps) -> float:
    """How far rounding alone brings them."""
    known = [one for key, one in seen.noise.together.items() if key.endswith(COMPUTED)]
    whole = sum(one.reference_rms**2 * one.count for one in known)
    return sqrt(sum(one.rmse**2 * one.count for one in known) / whole) if whole else 0.0


# One place for one line of code: like layers with one fault, and all that one optimizer does otherwise, are one.

METHOD, LATER = "method", "schedule-later"
SETTLED = ("in-no-optimizer", LATER, "moved-without-gradient")  # what is no part of an optimizer's rule


def folded_culprits(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Put culprits together that one line of code explains; the places of the others stand in `also`."""
    groups: dict[object, list[StepCulprit]] = {}
    for number, one in enumerate(culprits):
        groups.setdefault(_origin(one, seen) or number, []).append(one)
    return [_folded(own, seen) for own in groups.values()]


def _origin(one: StepCulprit, seen: SeenSteps) -> object:
    """What several culprits have in common that are one fault; None where nothing says so."""
    figures = () if one.sureness == "suspected" else sorted(one.facts.items())  # those of a hint are each layer's own
    what = one.kind, one.part, one.cause, *figures
    if one.part == "optimizer":
        if one.cause == LATER:
            return one.part, LATER, one.facts.get("from step")
        return METHOD if one.kind == "update" and one.cause not in SETTLED and _methods(one.parameters, seen) else None
    if one.part not in ("layer", "code"):
        return None
    path = one.candidate if one.part == "layer" or one.candidate else ""
    own = own_classes(layer_at(seen.live.training.model, path)) if seen.live is not None and path else []
    if own:
        return *what, own[0]
    return (*what, one.candidate_class, one.line) if one.line and one.part == "layer" else None


def _methods(names: Sequence[str], seen: SeenSteps) -> str:
    """The classes of both sides' optimizers of these parameters, if their rules are not of one kind; else ""."""
    pairs = [one for one in seen.names.pairings if one.target in names]
    used = [
        [group for one in pairs if (group := seen.sides[side].groups.get((one.source, one.target)[side])) is not None]
        for side in (0, 1)
    ]
    classes = [sorted({group.settings.classes[0] for group in own}) for own in used]
    kinds = [{form.kind for name in own if (form := update_rule_form([name])) is not None} for own in classes]
    if not all(kinds) or kinds[0] == kinds[1]:
        return ""
    return " vs ".join(" and ".join(own) for own in classes)


def _folded(group: Sequence[StepCulprit], seen: SeenSteps) -> StepCulprit:
    first = max(group, key=lambda one: one.factor) if group[0].part == "optimizer" else group[0]
    if len(group) == 1:
        return first
    names = tuple(dict.fromkeys(name for one in group for name in one.parameters))
    also = tuple(dict.fromkeys(one.candidate for one in group if one.candidate != first.candidate))
    found = replace(first, parameters=names, also=also, factor=max(one.factor for one in group))
    if first.part != "optimizer" or first.cause == LATER:
        return found
    change = next((one.change for one in group if one.change), "")
    return replace(found, cause=METHOD, facts={"optimizer": _methods(names, seen)}, change=change, sureness="confirmed")
