"""All that is wrong by itself in the port's steps: the order of the questions, most of which have modules of their own.

What the loss, layers and code do is asked first, then what loops make of gradients, what optimizers make of these, what
becomes of running statistics, and what a step leaves behind for the next one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import sqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from align.core.parameters import EPSILON, dtype_name
from align.core.verdicts import Finding
from align.models.function_source import own_classes
from align.models.source_lines import layer_at
from align.rules.training_rules import update_rule_form
from align.training.faults.explain_loss import NO_FAULT, explain_loss, explain_loss_inside, explain_outputs
from align.training.faults.find_step_faults import (
    NO_GRADIENT,
    OF_LOSS,
    LayerFaults,
    clipped_by_norm,
    explain_forward,
    explain_loss_code,
    explain_stops,
    named_scale,
    outermost,
    tensors_by_themselves,
    value_culprits,
    values_by_themselves,
    without_loss_scale,
    without_what_follows,
)
from align.training.faults.gradient_forms import (
    OTHER,
    explain_given,
    given_by_loops,
    given_in_step,
    given_in_whole,
    later_gradients,
    named_not_cleared,
    other_term,
    same_given,
    scaled_back,
    value_terms,
)
from align.training.faults.state_faults import explain_loop, find_recompute_faults, statistic_culprits, tie_culprits
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
from align.training.step_result import StepCulprit
from align.training.steps.both_steps import owners_of, values_of_both
from align.training.steps.judge_step import is_half
from align.training.steps.record_step import AFTER, BEFORE, COMPUTED, GIVEN
from align.training.steps.see_both_sides import compared_losses
from align.training.thresholds import (
    AVERAGE_TOLERANCE,
    EXCUSED_FACTOR,
    FACTOR_TOLERANCE,
    LAST_PLACES,
    LOSS_SHARE,
    LOST_GRADIENT_FACTOR,
    LOST_GRADIENTS_NOISE_FACTOR,
    MOST_AVERAGED,
    ROUNDED_LIMITS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import Pairing
    from align.core.parameters import Array
    from align.training.step_result import ComparedUpdate, FaultKind, FaultyPart
    from align.training.steps.both_steps import JudgedValue, SeenSteps
    from align.training.steps.judge_step import SeenTensor
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
    named = [own for culprit in found if (own := _explained(culprit, seen)).cause != NO_FAULT]
    culprits = [*known, *named, *_of_loops(given, seen, owners)]
    of_optimizers = _of_optimizers(seen, scale)
    if seen.meant_after and of_optimizers.culprits:  # behind another update all gradients are others
        of_whole = ("backward", "code", "", "", "")  # shown by gradients of the whole step alone
        place = attrgetter("kind", "part", "cause", "candidate", "near")
        culprits = [culprit for culprit in culprits if place(culprit) != of_whole]
    culprits += [*of_optimizers.culprits, *statistic_culprits(seen, owners), *find_recompute_faults(seen)]
    culprits += moved_culprits(seen, culprits)
    if not culprits:
        culprits += own_update_culprits(seen, updated_by_code(seen) if seen.sees_updates else None)
    if not (culprits and is_half(seen.precision.whole)):  # there a fault of the first step may show in the second only
        culprits += later_gradients(seen, owners, named=bool(culprits))
    if scale is not None and not culprits and scale_of_optimizers(seen) == 1.0:
        culprits += value_culprits(scaled_back(seen, alone), "gradients", "step", owners)
    excused = trained_the_same(seen, named)
    culprits = [_without_factor_of_one(culprit, seen) for culprit in without_followers(culprits)]
    culprits = [_with_line(seen.sides[1].line_of, culprit) for culprit in culprits if culprit not in excused]
    culprits = explain_loop(explain_stops(explain_forward(without_what_follows(culprits), seen), seen), seen)
    culprits = folded_culprits(culprits, seen)
    notes = (*(_otherwise(excused) if excused else ()), *own_update_findings(seen))
    return of_optimizers._replace(
        culprits=culprits, findings=(*of_optimizers.findings, *notes), same=bool(excused) and not culprits
    )


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
) -> tuple[list[StepCulprit], list[StepCulprit]]:
    """What is known of the first step's gradients as a tie or a term of the loss, and all else by place."""
    faults, tensors, gradients = LayerFaults(seen.calls.pairs, owners), seen.judge.seen, alone
    frozen = frozen_culprits(seen)
    excluded = {name for culprit in (*frozen, *held_by_none(seen)) for name in culprit.parameters}
    gradients = [gradient for gradient in gradients if gradient.pairing.target not in excluded]
    if seen.live is None:
        tensors, gradients = tensors_by_themselves(tensors), values_by_themselves(gradients, tensors, owners)
    faults.take(without_frozen(tensors, excluded))
    tied, untied, changed = tie_culprits(seen, gradients)
    terms, others = value_terms(seen, untied)
    faults.take_gradients(others)
    by_place = [
        culprit for culprit in faults.culprits() if culprit.kind != "forward" or culprit.candidate not in changed
    ]
    if not (by_place or tied or terms or excluded):
        by_place += other_term(seen, lost_between(seen, together, owners))
    return [*frozen, *tied, *terms], by_place


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
    if named is not culprit and not _is_of_loss(named, seen):
        return named
    explained = explain_loss(culprit, seen)
    return explained if explained.cause == NO_FAULT else explain_loss_code(explained, seen)


def _is_given_by_step(culprit: StepCulprit, seen: SeenSteps) -> bool:
    """Tell whether the code before a part of the model gives it something else: that of the step, not of the model."""
    if culprit.kind != "forward" or culprit.cause or not culprit.candidate:
        return False
    wrong = {(one.own.module, one.own.call) for one in seen.judge.seen if one.own.role == "input" and one.factor > 1.0}
    return (culprit.candidate, 0) in wrong and outermost(culprit.candidate, seen.traces[1]) == culprit.candidate


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
    far = [gradient for gradient in together if not gradient.is_noise and gradient.factor > LOST_GRADIENT_FACTOR]
    if not far or seen.live is None or _apart(together) <= LOST_GRADIENTS_NOISE_FACTOR * _rounding(seen):
        return []
    off = {
        (tensor.own.module, tensor.own.call)
        for tensor in seen.judge.seen
        if tensor.way == "forward" and tensor.factor > 1.0
    }
    calls = {(tensor.own.module, tensor.own.call) for tensor in seen.judge.seen} - off
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


def _origin(culprit: StepCulprit, seen: SeenSteps) -> object:
    """What several culprits have in common that are one fault; None where nothing says so."""
    # The figures of a hint are each layer's own.
    figures = () if culprit.sureness == "suspected" else sorted(culprit.facts.items())
    what = culprit.kind, culprit.part, culprit.cause, *figures
    if culprit.part == "optimizer":
        if culprit.cause == LATER:
            return culprit.part, LATER, culprit.facts.get("from step")
        is_open = culprit.kind == "update" and culprit.cause not in SETTLED
        return METHOD if is_open and _methods(culprit.parameters, seen) else None
    if culprit.part not in ("layer", "code"):
        return None
    path = culprit.candidate if culprit.part == "layer" or culprit.candidate else ""
    own = own_classes(layer_at(seen.live.training.model, path)) if seen.live is not None and path else []
    if own:
        return *what, own[0]
    return (*what, culprit.candidate_class, culprit.line) if culprit.line and culprit.part == "layer" else None


def _methods(names: Sequence[str], seen: SeenSteps) -> str:
    """The classes of both sides' optimizers of these parameters, if their rules are not of one kind; else ""."""
    pairs = [one for one in seen.names.pairings if one.target in names]
    used = [
        [group for one in pairs if (group := seen.sides[side].groups.get((one.source, one.target)[side])) is not None]
        for side in (0, 1)
    ]
    classes = [sorted({group.settings.classes[0] for group in groups}) for groups in used]
    kinds = [
        {form.kind for name in class_names if (form := update_rule_form([name])) is not None} for class_names in classes
    ]
    if not all(kinds) or kinds[0] == kinds[1]:
        return ""
    return " vs ".join(" and ".join(class_names) for class_names in classes)


def _folded(group: Sequence[StepCulprit], seen: SeenSteps) -> StepCulprit:
    first = max(group, key=lambda culprit: culprit.factor) if group[0].part == "optimizer" else group[0]
    if len(group) == 1:
        return first
    names = tuple(dict.fromkeys(name for culprit in group for name in culprit.parameters))
    also = tuple(dict.fromkeys(culprit.candidate for culprit in group if culprit.candidate != first.candidate))
    folded = replace(first, parameters=names, also=also, factor=max(culprit.factor for culprit in group))
    if first.part != "optimizer" or first.cause == LATER:
        return folded
    change = next((culprit.change for culprit in group if culprit.change), "")
    return replace(
        folded, cause=METHOD, facts={"optimizer": _methods(names, seen)}, change=change, sureness="confirmed"
    )


# Parameters that one side alone trains or moves, and steps that train the same though layers inside compute otherwise.


MOVED, AVERAGED = "moved-without-gradient", "average-of-weights"
AVERAGED_EARLY = "average-before-update"
INSIDE: tuple[FaultyPart, ...] = ("layer", "code", "loss")
COMPUTES: tuple[FaultKind, ...] = ("loss", "forward", "backward")


def frozen_culprits(seen: SeenSteps) -> list[StepCulprit]:
    """Parameters whose `requires_grad` is off on one side, and that the other one trains."""
    trained = [{parameter.name for parameter in side.parameters if parameter.trainable} for side in seen.parameters]
    frozen = [
        {parameter.name for parameter in side.parameters if parameter.trainable is False} for side in seen.parameters
    ]
    given = [_with_gradient(trace.values(0, _seen_gradients(seen))) for trace in seen.traces]
    pairs = seen.names.pairings
    by_cause = {
        "frozen-in-candidate": [
            pairing for pairing in pairs if pairing.source in trained[0] & given[0] and pairing.target in frozen[1]
        ],
        "frozen-in-reference": [
            pairing for pairing in pairs if pairing.source in frozen[0] and pairing.target in trained[1] & given[1]
        ],
    }
    owners = owners_of(seen.parameters[1])
    return [_frozen(cause, own, owners) for cause, own in by_cause.items() if own]


def _frozen(cause: str, pairings: Sequence[Pairing], owners: Mapping[str, str]) -> StepCulprit:
    """One culprit for all of them, at the layer if one layer owns all."""
    modules = {owners.get(one.target, "") for one in pairings}
    found = _culprit(cause, pairings, "trained", "parameters")
    return replace(found, candidate=modules.pop()) if len(modules) == 1 else found


def without_frozen(tensors: Iterable[SeenTensor], excluded: set[str]) -> list[SeenTensor]:
    """Leave out gradients that do not come back where parameters are frozen, or in no optimizer.

    Nothing that is trained stands before those; a way that is cut elsewhere shows in parameters that are not excluded.
    """
    return [one for one in tensors if not (excluded and one.relation.cause == NO_GRADIENT)]


def moved_culprits(seen: SeenSteps, culprits: Sequence[StepCulprit]) -> Iterator[StepCulprit]:
    """Parameters without a gradient that one side moves in the first step, or both otherwise.

    A weight decay moves them, or an average that a side keeps of other weights.
    """
    known = {name for culprit in culprits for name in culprit.parameters} | updated_by_code(seen)
    given = [_with_gradient(trace.values(0, _seen_gradients(seen))) for trace in seen.traces]
    buffers = {parameter.name for parameter in seen.parameters[1].parameters if parameter.buffer}
    before = {**seen.traces[0].values(0, BEFORE)}, {**seen.start}
    after = [{**trace.values(0, AFTER)} for trace in seen.traces]
    starts = {pairing: both for pairing, *both in values_of_both(seen.updated_names, *before)}
    moved: dict[str, list[Pairing]] = {"candidate": [], "reference": []}
    apart: list[tuple[Pairing, float | None]] = []
    for pairing, meant, value in values_of_both(seen.updated_names, *after):
        is_other = pairing.source in given[0] or pairing.target in given[1] | buffers | known
        if is_other or pairing not in starts or meant.dtype.kind not in "fV":
            continue
        start, candidate_start = starts[pairing]
        ways = _moves(start, meant), _moves(candidate_start, value)
        if ways[0] != ways[1]:
            moved["candidate" if ways[1] else "reference"].append(pairing)
        elif ways[0] and _moves(meant, value):
            apart.append((pairing, _decays(start, meant, value)))
    averages = {
        pair: way for pair in (*moved["reference"], *(pair for pair, _ in apart)) if (way := _average(seen, pair))
    }
    early = [pair for pair, way in averages.items() if way == "before"]
    if early:
        yield _culprit(AVERAGED_EARLY, early, "update", "step")
    moved["reference"] = [pair for pair in moved["reference"] if pair not in averages]
    apart = [entry for entry in apart if entry[0] not in averages]
    for side, pairings in moved.items():
        if pairings:
            yield _culprit(MOVED, pairings, "update", "optimizer", {"only in": side})
    if apart and seen.live and not culprits:  # an average of weights that are others is another one
        shares = [decay for _, decay in apart]
        share = shares[0] if len(set(shares)) == 1 else None
        facts: dict[str, float | int | str] = {} if share is None else {"times the reference's": share}
        yield _culprit(AVERAGED, [pair for pair, _ in apart], "update", "step", facts)


def _average(seen: SeenSteps, pairing: Pairing) -> Literal["", "behind", "before"]:
    """Tell whether the reference averages a weight here, and the candidate its own, behind or before the update.

    An average is e + a (w - e), with w behind the update in the reference; "" where the candidate does neither.
    """
    candidate_names = {pair.source: pair.target for pair in seen.names.pairings}
    mine, before = (seen.traces[0].values(0, what) for what in (AFTER, BEFORE))
    theirs = seen.traces[1].values(0, AFTER)
    old, right, start = before[pairing.source], mine[pairing.source], seen.start[pairing.target]
    names = [
        name
        for name, values in mine.items()
        if values.shape == old.shape and name != pairing.source and name in candidate_names
    ]
    names.sort(key=lambda name: _same_parts_at_end(name, pairing.source), reverse=True)
    if old.size == 1:  # any number is on the way to any other
        names = [name for name in names if _same_parts_at_end(name, pairing.source)]
    for name in names[:MOST_AVERAGED]:
        share = _share_of_way(old, right, mine[name])
        target = candidate_names[name]
        if share is None or target not in theirs or theirs[target].shape != start.shape:
            continue
        value = theirs[pairing.target].astype(np.float64) - start
        ways: tuple[tuple[Literal["behind", "before"], Array], ...]
        ways = ("behind", theirs[target]), ("before", seen.start[target])
        for way, weight in ways:
            meant = share * (weight.astype(np.float64) - start)
            room = AVERAGE_TOLERANCE * np.abs(value).max(initial=0.0) + _rounding_of(start)
            if np.abs(value - meant).max(initial=0.0) > room:
                continue
            stands = way == "before" and not _moves(start, (start + meant).astype(start.dtype))
            return way if not stands or _is_early_later(seen, pairing, name) else ""
    return ""


def _is_early_later(seen: SeenSteps, pairing: Pairing, weight: str) -> bool:
    """Tell so by the second step of an average that began as its weights: there an early one moves, a lost one not."""
    if len(seen.traces[0].losses) < 2:
        return False
    first, second = (seen.traces[0].values(step, AFTER) for step in range(2))
    old, live, value = first[pairing.source], first[weight], seen.traces[1].values(1, AFTER)[pairing.target]
    share = _share_of_way(old, second[pairing.source], second[weight])
    if share is None or value.shape != old.shape or not _moves(old, value):
        return False
    gone, meant = value.astype(np.float64) - old, share * (live.astype(np.float64) - old)
    room = AVERAGE_TOLERANCE * np.abs(gone).max(initial=0.0) + _rounding_of(old)
    return bool(np.abs(gone - meant).max(initial=0.0) <= room)


def _same_parts_at_end(one: str, other: str) -> int:
    parts = zip(reversed(one.split(".")), reversed(other.split(".")), strict=False)
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], parts))


def _share_of_way(old: Array, new: Array, weight: Array) -> float | None:
    """The share of the way to a weight that an average goes; None where it goes another way."""
    way, gone = (one.astype(np.float64).reshape(-1) - old.astype(np.float64).reshape(-1) for one in (weight, new))
    length = float(way @ way)
    share = float(way @ gone) / length if length else 0.0
    rest = np.abs(gone - share * way).max(initial=0.0)
    near = rest <= AVERAGE_TOLERANCE * np.abs(gone).max(initial=0.0) + _rounding_of(old)
    return share if near and 0.0 < share < 1.0 else None


def _rounding_of(value: Array) -> float:
    return LAST_PLACES * EPSILON[dtype_name(value.dtype)] * float(np.abs(value.astype(np.float64)).max(initial=0.0))


def _seen_gradients(seen: SeenSteps) -> str:
    """What of gradients is known: those that optimizers get, of code of the user's own those of the way back."""
    return GIVEN if seen.sees_updates else COMPUTED


def _with_gradient(gradients: Mapping[str, Array]) -> set[str]:
    """The names of those that are not zero throughout."""
    return {name for name, one in gradients.items() if np.any(one)}


def _moves(one: Array, other: Array) -> bool:
    """Tell whether two values differ by more than what storing them rounds."""
    wide = one.astype(np.float64), other.astype(np.float64)
    return bool(np.abs(wide[0] - wide[1]).max(initial=0.0) > _rounding_of(one))


def _decays(start: Array, meant: Array, value: Array) -> float | None:
    """How far the candidate's average goes, over the reference's; None if it goes another way."""
    mine, theirs = (one.astype(np.float64).reshape(-1) - start.astype(np.float64).reshape(-1) for one in (meant, value))
    ratio = float(mine @ theirs) / float(mine @ mine)
    rest = float(np.linalg.norm(theirs - ratio * mine))
    return float(f"{ratio:.3g}") if rest <= AVERAGE_TOLERANCE * float(np.linalg.norm(theirs)) else None


def _culprit(
    cause: str,
    pairings: Sequence[Pairing],
    kind: FaultKind,
    part: FaultyPart,
    facts: dict[str, float | int | str] | None = None,
) -> StepCulprit:
    names = tuple(one.target for one in pairings)
    return StepCulprit(kind, part, "", "", "", "", 0.0, cause, facts or {}, names, sureness="confirmed")


def without_followers(culprits: Sequence[StepCulprit]) -> list[StepCulprit]:
    """Leave out what follows from a culprit, or is rounding beside it.

    Parameters that the loss itself uses have another gradient where the loss is another one. A gradient that nothing
    relates to the right one, and is a few limits off, counts only where nothing else is wrong.
    """
    by_loss = any(culprit.part == "loss" for culprit in culprits)
    clear = [culprit for culprit in culprits if not _is_near_rounding(culprit)]
    in_code = [culprit for culprit in clear if culprit.part == "code" and culprit.kind == "backward"]
    follows = [
        culprit for culprit in in_code if by_loss and culprit.parameters and not (culprit.candidate or culprit.near)
    ]
    if any(culprit.cause in OF_LOSS for culprit in culprits):  # all gradients are so much larger, wherever they begin
        follows += [culprit for culprit in in_code if culprit.cause in ("", "gradient-factor")]
    if any(culprit.part == "loss" and culprit.cause == NO_GRADIENT for culprit in culprits):
        follows += [culprit for culprit in clear if culprit.part != "loss" and culprit.cause == NO_GRADIENT]
    return [culprit for culprit in clear or culprits if culprit not in follows]


def _is_near_rounding(one: StepCulprit) -> bool:
    return one.kind == "backward" and not one.cause and one.factor <= ROUNDED_LIMITS


def trained_the_same(seen: SeenSteps, culprits: Sequence[StepCulprit]) -> list[StepCulprit]:
    """The culprits inside of steps that train the same: what they compute is said in another way.

    Losses agree, and so do the gradients that optimizers get, in all steps: a hundred times nearer, over their size,
    than what is off inside, or what is off is a gradient without any relation to the right one, by a few limits. In
    half precision limits of both are too wide to tell.
    """
    inside = [one for one in culprits if one.part in INSIDE and one.kind in COMPUTES]
    apart = _farthest(seen) if inside and not is_half(seen.precision.whole) else None
    return [] if apart is None else [one for one in inside if _is_excused(one, apart)]


def _is_excused(culprit: StepCulprit, apart: float) -> bool:
    """Tell whether it is much farther off than what optimizers get, or a gradient that rounding takes a little far.

    What should be 0 is off without bounds: as what is off by all of its size.
    """
    return _is_near_rounding(culprit) or min(culprit.factor * EPSILON["float32"], 1.0) >= EXCUSED_FACTOR * apart


def _farthest(seen: SeenSteps) -> float | None:
    """How far what optimizers get is apart in a step, over its size; None where steps do not train the same.

    What is rounding on the reference's side has no limit of its own, and counts: the port may train by it.
    """
    losses = [*compared_losses(seen)]
    steps = len(losses) if seen.live else 1  # sides apart are at other places from the second step on
    apart = 0.0
    for step, loss in enumerate(losses[:steps]):
        if loss.reference is None or loss.candidate is None or loss.limit is None:
            return None
        given = given_in_step(seen, step)
        judged = [gradient for gradient in given if not gradient.is_noise]
        known = [gradient.measurement for gradient in given if gradient.measurement is not None]
        if not abs(loss.reference - loss.candidate) <= loss.limit or not judged:
            return None
        if any(gradient.factor > 1.0 or gradient.measurement is None for gradient in judged):
            return None
        size = sum(measurement.reference_rms**2 * measurement.count for measurement in known)
        apart = max(
            apart, sqrt(sum(measurement.rmse**2 * measurement.count for measurement in known) / size) if size else 0.0
        )
    return apart
