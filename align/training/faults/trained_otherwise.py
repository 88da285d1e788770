"""Parameters that one side alone trains or moves, and steps that train the same though layers inside compute otherwise.

What is frozen, or in no optimizer, gets no gradient: that is looked at before anybody says that the way back is cut.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from align.core.dtypes import EPSILON, dtype_name
from align.training.faults.find_step_faults import OF_LOSS
from align.training.faults.gradient_forms import given_in_step
from align.training.faults.step_updates import updated_by_code
from align.training.step_result import StepCulprit
from align.training.steps.both_steps import owners_of, values_of_both
from align.training.steps.judge_step import is_half
from align.training.steps.record_step import AFTER, BEFORE, COMPUTED, GIVEN
from align.training.steps.see_both_sides import compared_losses
from align.training.thresholds import (
    AVERAGE_TOLERANCE,
    EXCUSED_FACTOR,
    LAST_PLACES,
    MOST_AVERAGED,
    ROUNDED_LIMITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.training.step_result import FaultKind, FaultyPart
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.judge_step import SeenTensor

NO_GRADIENT = "no-gradient"
MOVED, AVERAGED = "moved-without-gradient", "average-of-weights"
AVERAGED_EARLY = "average-before-update"
INSIDE: tuple[FaultyPart, ...] = ("layer", "code", "loss")
COMPUTES: tuple[FaultKind, ...] = ("loss", "forward", "backward")


def frozen_culprits(seen: SeenSteps) -> list[StepCulprit]:
    """Parameters whose `requires_grad` is off on one side, and that the other one trains."""
    trained = [{one.name for one in side.parameters if one.trainable} for side in seen.parameters]
    frozen = [{one.name for one in side.parameters if one.trainable is False} for side in seen.parameters]
    given = [_with_gradient(trace.values(0, _seen_gradients(seen))) for trace in seen.traces]
    pairs = seen.names.pairings
    found = {
        "frozen-in-candidate": [
            one for one in pairs if one.source in trained[0] & given[0] and one.target in frozen[1]
        ],
        "frozen-in-reference": [
            one for one in pairs if one.source in frozen[0] and one.target in trained[1] & given[1]
        ],
    }
    owners = owners_of(seen.parameters[1])
    return [_frozen(cause, own, owners) for cause, own in found.items() if own]


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
    known = {name for one in culprits for name in one.parameters} | updated_by_code(seen)
    given = [_with_gradient(trace.values(0, _seen_gradients(seen))) for trace in seen.traces]
    buffers = {one.name for one in seen.parameters[1].parameters if one.buffer}
    before, after = ([{**own} for own in _values(seen, what)] for what in (BEFORE, AFTER))
    starts = {pairing: both for pairing, *both in values_of_both(seen.names, *before)}
    moved: dict[str, list[Pairing]] = {"candidate": [], "reference": []}
    apart: list[tuple[Pairing, float | None]] = []
    for pairing, meant, value in values_of_both(seen.names, *after):
        is_other = pairing.source in given[0] or pairing.target in given[1] | buffers | known
        if is_other or pairing not in starts or meant.dtype.kind not in "fV":
            continue
        start, own = starts[pairing]
        ways = _moves(start, meant), _moves(own, value)
        if ways[0] != ways[1]:
            moved["candidate" if ways[1] else "reference"].append(pairing)
        elif ways[0] and _moves(meant, value):
            apart.append((pairing, _decays(start, meant, value)))
    averages = {one: way for one in (*moved["reference"], *(one for one, _ in apart)) if (way := _average(seen, one))}
    early = [one for one, way in averages.items() if way == "before"]
    if early:
        yield _culprit(AVERAGED_EARLY, early, "update", "step")
    moved["reference"] = [one for one in moved["reference"] if one not in averages]
    apart = [one for one in apart if one[0] not in averages]
    for side, pairings in moved.items():
        if pairings:
            yield _culprit(MOVED, pairings, "update", "optimizer", {"only in": side})
    if apart and seen.live and not culprits:  # an average of weights that are others is another one
        shares = [own for _, own in apart]
        share = shares[0] if len(set(shares)) == 1 else None
        facts: dict[str, float | int | str] = {} if share is None else {"times the reference's": share}
        yield _culprit(AVERAGED, [one for one, _ in apart], "update", "step", facts)


def _average(seen: SeenSteps, pairing: Pairing) -> Literal["", "behind", "before"]:
    """Tell whether the reference averages a weight here, and the candidate its own, behind or before the update.

    An average is e + a (w - e), with w behind the update in the reference; "" where the candidate does neither.
    """
    own = {one.source: one.target for one in seen.names.pairings}
    mine, before = (seen.traces[0].values(0, what) for what in (AFTER, BEFORE))
    theirs = seen.traces[1].values(0, AFTER)
    old, right, start = before[pairing.source], mine[pairing.source], seen.start[pairing.target]
    names = [name for name, one in mine.items() if one.shape == old.shape and name != pairing.source and name in own]
    names.sort(key=lambda name: _same_parts_at_end(name, pairing.source), reverse=True)
    if old.size == 1:  # any number is on the way to any other
        names = [name for name in names if _same_parts_at_end(name, pairing.source)]
    for name in names[:MOST_AVERAGED]:
        share = _share_of_way(old, right, mine[name])
        target = own[name]
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


def _values(seen: SeenSteps, what: str) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    first = seen.traces[0].values(0, what)
    return first, seen.start if what == BEFORE else seen.traces[1].values(0, what)


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
    by_loss = any(one.part == "loss" for one in culprits)
    clear = [one for one in culprits if not _is_near_rounding(one)]
    in_code = [one for one in clear if one.part == "code" and one.kind == "backward"]
    follows = [one for one in in_code if by_loss and one.parameters and not (one.candidate or one.near)]
    if any(one.cause in OF_LOSS for one in culprits):  # all gradients are so much larger, wherever they begin
        follows += [one for one in in_code if one.cause in ("", "gradient-factor")]
    if any(one.part == "loss" and one.cause == NO_GRADIENT for one in culprits):
        follows += [one for one in clear if one.part != "loss" and one.cause == NO_GRADIENT]
    return [one for one in clear or culprits if one not in follows]


def _is_near_rounding(one: StepCulprit) -> bool:
    return one.kind == "backward" and not one.cause and one.factor <= ROUNDED_LIMITS


def trained_the_same(seen: SeenSteps, culprits: Sequence[StepCulprit]) -> list[StepCulprit]:
    """Those of these culprits that are inside of steps which train the same: what they compute is said in another way.

    Losses agree, and so do the gradients that optimizers get, in all steps: a hundred times nearer, over their size,
    than what is off inside, or what is off is a gradient without any relation to the right one, by a few limits. In
    half precision limits of both are too wide to tell.
    """
    inside = [one for one in culprits if one.part in INSIDE and one.kind in COMPUTES]
    apart = _farthest(seen) if inside and not is_half(seen.precision.whole) else None
    return [] if apart is None else [one for one in inside if _is_excused(one, apart)]


def _is_excused(one: StepCulprit, apart: float) -> bool:
    """By how much farther off it is than what optimizers get, or as a gradient that rounding takes a little far.

    What should be 0 is off without bounds: as what is off by all of its size.
    """
    return _is_near_rounding(one) or min(one.factor * EPSILON["float32"], 1.0) >= EXCUSED_FACTOR * apart


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
        judged = [one for one in given if not one.is_noise]
        known = [one.measurement for one in given if one.measurement is not None]
        if not abs(loss.reference - loss.candidate) <= loss.limit or not judged:
            return None
        if any(one.factor > 1.0 or one.measurement is None for one in judged):
            return None
        size = sum(one.reference_rms**2 * one.count for one in known)
        apart = max(apart, sqrt(sum(one.rmse**2 * one.count for one in known) / size) if size else 0.0)
    return apart
