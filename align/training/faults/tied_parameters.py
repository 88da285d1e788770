"""Parameters that are one tensor on one side and two on the other: their gradients lack, or hold, each other's part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.training.step_result import StepCulprit
from align.training.steps.compare_values import PairedValue, judge_values
from align.training.steps.record_step import COMPUTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.core.parameters import ParameterSet
    from align.training.step_result import Sureness
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue

REFERENCE_ONLY, CANDIDATE_ONLY = "tied-in-the-reference-only", "tied-in-the-candidate-only"


@dataclass(frozen=True, slots=True)
class UnequalTie:
    """Two names that are one tensor on one side only.

    `first` pairs the tensor by the name that the tied side keeps, `other` by the second one; None where the map leaves
    that out, as a place of a tied tensor has no name of its own there. `names` are both names on the tied side,
    `seconds` those of the second one on both sides.
    """

    cause: str
    first: Pairing
    other: Pairing | None
    names: tuple[str, str]
    seconds: tuple[str, str]

    @property
    def candidates(self) -> tuple[str, ...]:
        """Parameters of the candidate."""
        return (self.first.target, self.seconds[1]) if self.cause == REFERENCE_ONLY else (self.first.target,)


def tie_culprits(
    seen: SeenSteps, alone: Sequence[JudgedValue]
) -> tuple[list[StepCulprit], list[JudgedValue], frozenset[str]]:
    """Return a culprit for each unequal tie that shows, the gradients that none explains, and layers that one explains.

    It is confirmed if the gradients of the two, each layer alone, add up to that of the tied tensor.
    """
    off = {one.pairing.target for one in alone if one.factor > 1.0 and not one.is_noise}
    found: list[StepCulprit] = []
    explained: set[str] = set()
    layers: set[str] = set()
    for tie in unequal_ties(seen):
        confirmed = _adds_up(seen, tie)
        if confirmed or off & {*tie.candidates}:
            found.append(_culprit(seen, tie, alone, "confirmed" if confirmed else "suspected"))
        if confirmed:
            explained |= {*tie.candidates}
            layers |= _changed_layers(seen, tie)
    return found, [one for one in alone if one.pairing.target not in explained], frozenset(layers)


def unequal_ties(seen: SeenSteps) -> Iterator[UnequalTie]:
    """Yield what is tied on one side and not on the other, by the name map and by paired layers."""
    ties = _ties(seen.parameters[0]), _ties(seen.parameters[1])
    pairings = {one.source: one for one in seen.names.pairings}, {one.target: one for one in seen.names.pairings}
    for side, cause in enumerate((REFERENCE_ONLY, CANDIDATE_ONLY)):
        unpaired = _unpaired_by_layer(seen, 1 - side)
        for name, leader in ties[side].items():
            first, other = pairings[side].get(leader), pairings[side].get(name)
            end = _end(other, 1 - side) if other else unpaired.get(name.rpartition(".")[0])
            if first is None or end is None:
                continue
            if ties[1 - side].get(end, end) != ties[1 - side].get(_end(first, 1 - side), _end(first, 1 - side)):
                seconds = (name, end) if side == 0 else (end, name)
                yield UnequalTie(cause, first, other, (leader, name), seconds)


def _ties(side: ParameterSet) -> dict[str, str]:
    """Further names of tensors, or their places in the model, each with the first name."""
    return {one.name: one.tied_to for one in side.parameters if one.tied_to} | dict(side.shared)


def _end(pairing: Pairing, side: int) -> str:
    return (pairing.source, pairing.target)[side]


def _unpaired_by_layer(seen: SeenSteps, side: int) -> dict[str, str]:
    """The one parameter of a layer of this side that has no partner, by the path of the layer on the other side."""
    lost = {one.name for one in seen.names.unmatched if one.side == ("source", "target")[side]}
    owned: dict[str, list[str]] = {}
    for one in seen.parameters[side].parameters:
        if one.name in lost:
            owned.setdefault(one.module, []).append(one.name)
    paths = {path: path for path in owned}
    for pair in seen.calls.pairs:
        own, partner = (pair.reference, pair.candidate) if side == 0 else (pair.candidate, pair.reference)
        paths[own.module] = partner.module
    return {paths[path]: names[0] for path, names in owned.items() if len(names) == 1}


def _adds_up(seen: SeenSteps, tie: UnequalTie) -> bool:
    """Tell whether the parts of both names make up the gradient of the tensor that is tied; in its layout there."""
    reference, candidate = seen.traces[0].values(0, COMPUTED), seen.first.computed_gradients
    first = reference.get(tie.first.source)
    own = _brought_back(tie.first, candidate, first)
    if tie.cause == REFERENCE_ONLY:
        second = candidate.get(tie.seconds[1]) if tie.other is None else _brought_back(tie.other, candidate, first)
        whole, parts = first, (own, second)
    else:
        whole, parts = own, (first, reference.get(tie.seconds[0]))
    if whole is None or parts[0] is None or parts[1] is None or not whole.shape == parts[0].shape == parts[1].shape:
        return False
    pair = PairedValue(tie.first, whole, parts[0] + parts[1])
    judged = [
        one
        for noise in (None, seen.noise.alone)
        for one in judge_values(iter([pair]), noise, (0, COMPUTED), alone=True)
    ]
    return bool(parts[1].any()) and any(one.factor <= 1.0 for one in judged)


def _brought_back(pairing: Pairing, values: Mapping[str, Array], like: Array | None) -> Array | None:
    """A value of the candidate in the reference's layout."""
    own = values.get(pairing.target)
    if own is None or like is None:
        return None
    return pairing.transform.inverse(like.shape, like.dtype.name).apply(own)


def _culprit(seen: SeenSteps, tie: UnequalTie, alone: Sequence[JudgedValue], sureness: Sureness) -> StepCulprit:
    """At the layer that holds the second name."""
    modules = _modules(seen, tie)
    classes = [
        next((one.classes[0] for one in side.modules if one.path == path and one.classes), "").rpartition(".")[2]
        for side, path in zip(seen.parameters, modules, strict=True)
    ]
    worst = max((one.factor for one in alone if one.pairing.target in tie.candidates), default=0.0)
    facts: dict[str, float | int | str] = {"tied": " = ".join(tie.names)}
    return StepCulprit(
        "backward", "layer", *modules, classes[0], classes[1], worst, tie.cause, facts, tie.candidates,
        sureness=sureness,
    )  # fmt: skip


def _modules(seen: SeenSteps, tie: UnequalTie) -> tuple[str, str]:
    """The modules of the second name on both sides; a place begins with the path of its module."""
    owners = [{one.name: one.module for one in side.parameters} for side in seen.parameters]
    found = [owner.get(name, name.rpartition(".")[0]) for owner, name in zip(owners, tie.seconds, strict=True)]
    return found[0], found[1]


def _changed_layers(seen: SeenSteps, tie: UnequalTie) -> set[str]:
    """The layer that computes with another tensor, and the module around it where its pair is not certain."""
    if tie.cause == REFERENCE_ONLY and tie.other is not None:
        return set()
    path = _modules(seen, tie)[1]
    certain = {one.candidate.module for one in seen.calls.pairs if one.certain}
    return {path} if path in certain else {path, path.rpartition(".")[0]}
