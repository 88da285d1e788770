"""What is wrong by itself in a step, from what was seen of it while all before each place was right."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from align.traces.pair_inputs import call_key
from align.training.step_result import StepCulprit
from align.training.steps.gradient_relations import UNKNOWN, GradientRelation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.core.parameters import ParameterSet
    from align.traces.module_calls import CallPair
    from align.training.step_result import FaultKind, FaultyPart
    from align.training.steps.compare_values import JudgedValue
    from align.training.steps.judge_step import SeenTensor

    Place = tuple[FaultyPart, str]


@dataclass
class _Fault:
    """All that shows at one place: the worst of it on its way forth, and back."""

    forward: float = 0.0
    backward: float = 0.0
    worst: float = 0.0
    relation: GradientRelation = UNKNOWN
    parameters: list[str] = field(default_factory=list)

    def add(self, way: str, factor: float, relation: GradientRelation = UNKNOWN) -> None:
        """Note something that is off."""
        setattr(self, way, max(getattr(self, way), factor))
        if relation.cause and (factor > self.worst or not self.relation.cause):
            self.worst, self.relation = factor, relation


class LayerFaults:
    """Gathers what is off by place: a layer, or the code of a module between its layers."""

    def __init__(self, pairs: Sequence[CallPair], owners: Mapping[str, str]) -> None:
        self._certain = {call_key(one) for one in pairs if one.certain}
        self._pairs = {one.candidate.module: one for one in reversed(pairs)}
        self._parents = {_parent(path) for path in self._pairs if path}
        self._owners = owners
        self._faults: dict[Place, _Fault] = {}

    def take(self, seen: Iterable[SeenTensor]) -> None:
        """Take what a replaced step showed; the gradient of what the model returns is the loss's."""
        for one in seen:
            own = one.own
            if one.factor > 1.0 and (own.module, own.call) in self._certain:
                made_there = (one.way == "forward") == (own.role == "output")  # else by the code around
                if made_there:
                    self._at(own.module).add(one.way, one.factor, one.relation)
                elif not own.module:
                    self._fault(("loss", "")).add("backward", one.factor, one.relation)
                else:
                    self._fault(("code", _parent(own.module))).add(one.way, one.factor, one.relation)

    def take_gradients(self, gradients: Iterable[JudgedValue]) -> None:
        """Take the gradients of parameters, each layer alone."""
        for one in gradients:
            if one.factor > 1.0 and not one.is_noise:
                fault = self._at(self._owners.get(one.pairing.target, ""))
                fault.add("backward", one.factor, one.relation)
                fault.parameters.append(one.pairing.target)

    def culprits(self) -> list[StepCulprit]:
        """All places, in the order in which they were found; what is wrong forth needs no other word back."""
        return [self._culprit(place, fault) for place, fault in self._faults.items()]

    def _at(self, path: str) -> _Fault:
        return self._fault(("code" if path in self._parents or not path else "layer", path))

    def _fault(self, place: Place) -> _Fault:
        return self._faults.setdefault(place, _Fault())

    def _culprit(self, place: Place, fault: _Fault) -> StepCulprit:
        part, path = place
        pair = self._pairs.get(path)
        kind: FaultKind = "loss" if part == "loss" else "forward" if fault.forward else "backward"
        known = UNKNOWN if kind == "forward" else fault.relation
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
        )


def owners_of(parameters: ParameterSet) -> dict[str, str]:
    """The module of each parameter."""
    return {one.name: one.module for one in parameters.parameters}


def value_culprits(
    values: Sequence[JudgedValue], kind: FaultKind, part: FaultyPart, owners: Mapping[str, str], step: int = 1
) -> list[StepCulprit]:
    """One culprit for all values that are off in one way."""
    by_cause: dict[tuple[str, str], list[JudgedValue]] = {}
    for one in values:
        if one.factor > 1.0 and not one.is_noise:
            by_cause.setdefault((one.relation.cause, str(sorted(one.relation.facts.items()))), []).append(one)
    return [_of_values(group, kind, part, owners, step) for group in by_cause.values()]


def _of_values(
    group: Sequence[JudgedValue], kind: FaultKind, part: FaultyPart, owners: Mapping[str, str], step: int
) -> StepCulprit:
    modules = {owners.get(one.pairing.target, "") for one in group}
    names = tuple(one.pairing.target for one in group)
    path = modules.pop() if len(modules) == 1 else ""
    worst = max((one.factor for one in group), default=inf)
    relation = group[0].relation
    return StepCulprit(kind, part, "", path, "", "", worst, relation.cause, relation.facts, names, step)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
