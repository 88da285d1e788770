"""What is wrong by itself in a step, from what was seen of it while all before each place was right."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.traces.module_calls import call_key
from align.training.apply_rule import gradient_norm
from align.training.step_result import StepCulprit
from align.training.steps.judge_step import UNKNOWN, GradientRelation, nearest_scale
from align.training.thresholds import FACTOR_TOLERANCE, FITTED_FACTS_TOLERANCE, WRITTEN_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.traces.module_calls import CallKey, CallPair
    from align.training.step_result import FaultKind, FaultyPart, Sureness
    from align.training.steps.both_steps import JudgedValue
    from align.training.steps.judge_step import SeenTensor
    from align.training.steps.record_step import Way

    Place = tuple[FaultyPart, str]
    Call = tuple[str, int]


@dataclass
class _Fault:
    """All that shows at one place: the worst of it on its way forth, and back."""

    forward: float = 0.0
    backward: float = 0.0
    worst: float = 0.0
    relation: GradientRelation = UNKNOWN
    parameters: list[str] = field(default_factory=list)
    near: str = ""
    first: GradientRelation | None = None  # of a gradient that is off
    alike: bool = True  # whether all gradients that are off show one thing

    def add(self, way: str, factor: float, relation: GradientRelation = UNKNOWN, near: str = "") -> None:
        """Note something that is off."""
        if factor > max(self.forward, self.backward):
            self.near = near
        setattr(self, way, max(getattr(self, way), factor))
        if way == "backward":
            self.first = self.first or relation
            self.alike &= _alike(self.first, relation)
        if relation.cause and (factor > self.worst or not self.relation.cause):
            self.worst, self.relation = factor, relation


class LayerFaults:
    """Gathers what is off by place: a layer, or the code of a module between its layers.

    Only calls that surely end at the same place on both sides count, and those that are `certain_too`.
    """

    def __init__(
        self, pairs: Sequence[CallPair], owners: Mapping[str, str], certain_too: Collection[CallKey] = ()
    ) -> None:
        self._certain = {call_key(one) for one in pairs if one.certain} | {*certain_too}
        self._pairs = {one.candidate.module: one for one in reversed(pairs)}
        self._parents = {_parent(path) for path in self._pairs if path}
        self._owners = owners
        self._faults: dict[Place, _Fault] = {}
        self._unlike: set[str] = set()

    def take(self, seen: Iterable[SeenTensor]) -> None:
        """Take what a replaced step showed; the gradient of what the outermost module returns is the loss's.

        A tensor of another form than the reference's, as the patches of an image, gives way to nothing, and shows
        nothing by itself: what is made of it is judged. Of the model's own outputs the form counts.
        """
        for one in seen:
            own = one.own
            if one.unlike and own.module:
                self._unlike.add(own.module)
            elif one.factor > 1.0 and (own.module, own.call) in self._certain:
                made_there = (one.way == "forward") == (own.role == "output")  # else by the code around
                if made_there:
                    self._at(own.module).add(one.way, one.factor, one.relation)
                elif one.way == "backward" and not any(path in self._pairs for path in _above(own.module)):
                    self._fault(("loss", "")).add("backward", one.factor, one.relation)
                else:
                    self._fault(("code", _parent(own.module))).add(one.way, one.factor, one.relation, own.module)

    def take_gradients(self, gradients: Iterable[JudgedValue]) -> None:
        """Take the gradients of parameters, each layer alone."""
        for one in gradients:
            if one.factor > 1.0 and not one.is_noise:
                fault = self._at(self._owners.get(one.pairing.target, ""))
                fault.add("backward", one.factor, one.relation)
                fault.parameters.append(one.pairing.target)

    def culprits(self) -> list[StepCulprit]:
        """All places, in the order in which they were found; what is wrong forth needs no other word back.

        What a layer is given and returns in another form does not give way to the reference's: where something else is
        wrong, it reaches the gradients of that layer.
        """
        found = [self._culprit(place, fault) for place, fault in self._faults.items()]
        behind = [
            one for one in found if (one.kind, one.part) == ("backward", "layer") and one.candidate in self._unlike
        ]
        return [one for one in found if one not in behind] or found

    def _at(self, path: str) -> _Fault:
        return self._fault(("code" if path in self._parents or not path else "layer", path))

    def _fault(self, place: Place) -> _Fault:
        return self._faults.setdefault(place, _Fault())

    def _culprit(self, place: Place, fault: _Fault) -> StepCulprit:
        part, path = place
        pair = self._pairs.get(path)
        kind: FaultKind = "loss" if part == "loss" else "forward" if fault.forward else "backward"
        known = UNKNOWN if kind == "forward" or (part == "loss" and not fault.alike) else fault.relation
        return StepCulprit(
            kind,
            part,
            pair.reference.module if pair else "",
            path,
            pair.reference.class_name if pair else "",
            pair.candidate.class_name if pair else "",
            fault.forward or fault.backward,
            known.cause,
            known.facts,
            tuple(fault.parameters),
            fault.near,
            sureness=_sureness(known),
        )


def value_culprits(
    values: Sequence[JudgedValue], kind: FaultKind, part: FaultyPart, owners: Mapping[str, str], step: int = 1
) -> list[StepCulprit]:
    """One culprit for all values that are off in one way."""
    groups: list[list[JudgedValue]] = []
    for one in values:
        if one.factor > 1.0 and not one.is_noise:
            group = next((own for own in groups if _alike(own[0].relation, one.relation)), None)
            groups.append([one]) if group is None else group.append(one)
    return [_of_values(group, kind, part, owners, step) for group in groups]


def _alike(one: GradientRelation, other: GradientRelation) -> bool:
    """Tell whether two parameters show one thing: figures that were fitted differ in their last places."""
    if one.cause != other.cause or one.facts.keys() != other.facts.keys():
        return False
    return all(_near(one.facts[key], other.facts[key]) for key in one.facts)


def _near(one: object, other: object) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= FITTED_FACTS_TOLERANCE * max(abs(one), abs(other))
    return one == other


def _of_values(
    group: Sequence[JudgedValue], kind: FaultKind, part: FaultyPart, owners: Mapping[str, str], step: int
) -> StepCulprit:
    modules = {owners.get(one.pairing.target, "") for one in group}
    names = tuple(one.pairing.target for one in group)
    path = modules.pop() if len(modules) == 1 else ""
    worst = max((one.factor for one in group), default=inf)
    relation = group[0].relation
    return StepCulprit(
        kind,
        part,
        "",
        path,
        "",
        "",
        worst,
        relation.cause,
        relation.facts,
        names,
        step=step,
        sureness=_sureness(relation),
    )


def _sureness(relation: GradientRelation) -> Sureness:
    """A relation gives the very figures."""
    return "confirmed" if relation.cause else "unknown"


def _above(path: str) -> Iterator[str]:
    """The modules around a module, up to the model itself."""
    while path:
        path = _parent(path)
        yield path


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def tensors_by_themselves(seen: Sequence[SeenTensor]) -> list[SeenTensor]:
    """Leave out all that is off since something before it is.

    What is off first stays, and what a call made of right tensors, unless a layer inside it is off. Ways back are only
    judged where all is right on the way forth.
    """
    way: Way = "forward" if any(one.factor > 1.0 for one in seen if one.way == "forward") else "backward"
    off = sorted((one for one in seen if one.way == way and one.factor > 1.0), key=_time, reverse=way == "backward")
    calls: dict[Call, list[SeenTensor]] = defaultdict(list)
    for one in seen:
        if one.way == way:
            calls[one.own.module, one.own.call].append(one)
    paths = {one.own.module for one in off}
    return [one for one in off if one is off[0] or _is_made_of_right(one, calls[one.own.module, one.own.call], paths)]


def values_by_themselves(
    values: Sequence[JudgedValue], seen: Sequence[SeenTensor], owners: Mapping[str, str]
) -> list[JudgedValue]:
    """Leave out gradients and buffers of layers that were given something that is off, or hold a layer that is off.

    For a layer that was never called, as those that an attention only keeps, the next one around it stands.
    """
    off = [one for one in seen if one.factor > 1.0]
    given = {one.own.module for one in off if (one.way == "forward") == (one.own.role == "input")}
    called, paths = {one.own.module for one in seen}, {one.own.module for one in off}

    def follows(name: str) -> bool:
        owner = owners.get(name, "")
        while owner and owner not in called:
            owner = owner.rpartition(".")[0]
        return owner in given or _holds_any(owner, paths)

    return [one for one in values if one.factor <= 1.0 or not follows(one.pairing.target)]


def _is_made_of_right(one: SeenTensor, call: Sequence[SeenTensor], off: set[str]) -> bool:
    """Tell whether a call made a tensor of others that are all right, in itself and not in a layer inside."""
    made = (one.way == "forward") == (one.own.role == "output")
    given = [other for other in call if other.own.role != one.own.role]
    return made and bool(given) and not _holds_any(one.own.module, off) and all(each.factor <= 1.0 for each in given)


def _holds_any(module: str, paths: set[str]) -> bool:
    return any(path and (not module or path.startswith(f"{module}.")) for path in paths if path != module)


def _time(one: SeenTensor) -> tuple[int, bool, int]:
    """When a tensor arose: what a call is given is seen before what it returns, and outside before inside."""
    return one.own.order, one.own.role == "output", one.own.module.count(".") + bool(one.own.module)


# One factor on all gradients: a loss scale that is taken off again is no fault, a norm that is held is clipping.

OF_LOSS = "sum-over-parts", "loss-scale-kept"  # causes that the loss itself shows too


def without_loss_scale(
    culprits: Sequence[StepCulprit],
    given: Sequence[JudgedValue],
    by_optimizers: float,
    same_given: Callable[[], bool],
) -> tuple[list[StepCulprit], list[JudgedValue], float | None]:
    """Take out a factor of the loss by which the step, or the optimizers, divide all gradients; return that factor too.

    `by_optimizers` is what the candidate's optimizers multiply by, over the reference's. `same_given` tells whether the
    optimizers get the same in the step as each side takes it: clipping behind the scale hides the factor elsewhere.
    """
    loss = next((one for one in culprits if one.part == "loss" and one.cause == "gradient-factor"), None)
    factors = [one.relation.facts.get("factor") if one.factor > 1.0 else 1.0 for one in given] or [1.0]
    scale = loss.facts["factor"] if loss is not None else None
    if not isinstance(scale, (int, float)):
        return [*culprits], [*given], None
    undone = all(_undoes(scale * by_optimizers, one) for one in factors)
    if not undone and not (by_optimizers == 1.0 and same_given()):
        return [*culprits], [*given], None
    return [one for one in culprits if one is not loss], [], float(scale)


def clipped_by_norm(given: Sequence[JudgedValue], gradients: Mapping[str, Array]) -> list[JudgedValue]:
    """Name one factor below 1 on all gradients clipping, if their norm is then a number that somebody would write."""
    factors = [one.relation.facts.get("factor") for one in given if one.relation.cause == "gradient-factor"]
    known = [one for one in factors if isinstance(one, (int, float))]
    if not known or len(known) < len(given) or not max(known) < 1.0:
        return [*given]
    norm = float(np.linalg.norm([gradient_norm(one) for one in gradients.values()]))
    written = float(f"{norm:.{WRITTEN_DIGITS}g}")
    if not norm or abs(norm / written - 1.0) > FACTOR_TOLERANCE:
        return [*given]
    relation = GradientRelation("gradients-clipped-by-norm", {"norm": written})
    return [replace(one, relation=relation) for one in given]


def named_scale(
    culprit: StepCulprit, given: Sequence[JudgedValue], runs: tuple[int, int], *, loops: bool
) -> StepCulprit:
    """Name a factor of all gradients that optimizers get, of steps that run the model so often on each side.

    It is their ratio where the mean over parts of a batch is missing, and a number that scales are made of where a loop
    of the user's own left the scale of the loss in. `given` are the gradients of whole steps.
    """
    factor = culprit.facts.get("factor")
    known = [one for one in given if not one.is_noise]
    if culprit.cause != "gradient-factor" or not isinstance(factor, (int, float)) or not known:
        return culprit
    if not all(_undoes(1 / factor, one.relation.facts.get("factor")) for one in known):
        return culprit
    names = tuple(one.pairing.target for one in known)
    worst = max(one.factor for one in known)
    of_all = replace(culprit, kind="gradients", part="step", parameters=names, factor=worst, sureness="confirmed")
    if any(_undoes(1 / factor, one) for one in _missing_means(*runs)):
        side = "candidate" if factor > 1 else "reference"
        parts = max(runs)
        return replace(of_all, cause=OF_LOSS[0], facts={"factor": factor, "parts": parts, "side": side})
    size = max(abs(factor), 1.0 / abs(factor))
    return replace(of_all, cause=OF_LOSS[1]) if loops and nearest_scale(size) else culprit


def _missing_means(mine: int, theirs: int) -> Sequence[float]:
    """The factors of all gradients where a side that runs the model several times takes the sum of the parts."""
    if mine == theirs:
        return (float(theirs), 1.0 / mine) if mine > 1 else ()
    return (*((float(theirs),) if theirs > 1 else ()), *((1.0 / mine,) if mine > 1 else ()))


def _undoes(scale: float, factor: object) -> bool:
    return isinstance(factor, (int, float)) and abs(scale * factor - 1.0) <= FACTOR_TOLERANCE
