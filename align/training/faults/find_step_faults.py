"""What is wrong by itself in a step, from what was seen of it while all before each place was right."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import NameMap
from align.errors import AlignError, CannotRunError, InputsError, UserCodeError
from align.forward.compare_forward import compare_forward
from align.forward.unlike_code import find_unlike_call, results_of_calls
from align.measure.tensor_statistics import relative_rms_distance
from align.models.source_lines import layer_at
from align.traces.module_calls import call_key
from align.training.apply_rule import gradient_norm
from align.training.step_result import StepCulprit
from align.training.steps.judge_step import UNKNOWN, GradientRelation, StepJudge, nearest_scale
from align.training.steps.record_step import LossesOfSteps
from align.training.thresholds import (
    FACTOR_TOLERANCE,
    FITTED_FACTS_TOLERANCE,
    LOSS_SHARE,
    MOST_CODE_STEPS,
    SAME_STOPPED_DISTANCE,
    WRITTEN_DIGITS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Batch
    from align.core.traces import CaptureSink
    from align.forward.forward_result import Culprit
    from align.models.open_side import Side
    from align.traces.module_calls import CallKey, CallPair
    from align.training.open_training import TrainingSide
    from align.training.step_result import FaultKind, FaultyPart, Sureness
    from align.training.steps.both_steps import JudgedValue, SeenSteps
    from align.training.steps.judge_step import SeenTensor
    from align.training.steps.record_step import StepTrace, Way


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
        self._faults: dict[tuple[FaultyPart, str], _Fault] = {}
        self._unlike: set[str] = set()

    def take(self, seen: Iterable[SeenTensor]) -> None:
        """Take what a replaced step showed; the gradient of what the outermost module returns is the loss's.

        A tensor of another form than the reference's, as the patches of an image, gives way to nothing, and shows
        nothing by itself: what is made of it is judged. Of the model's own outputs the form counts.
        """
        for tensor in seen:
            place = tensor.own
            if tensor.unlike and place.module:
                self._unlike.add(place.module)
            elif tensor.factor > 1.0 and (place.module, place.call) in self._certain:
                made_there = (tensor.way == "forward") == (place.role == "output")  # else by the code around
                if made_there:
                    self._at(place.module).add(tensor.way, tensor.factor, tensor.relation)
                elif tensor.way == "backward" and not any(path in self._pairs for path in _above(place.module)):
                    self._fault(("loss", "")).add("backward", tensor.factor, tensor.relation)
                else:
                    self._fault(("code", _parent(place.module))).add(
                        tensor.way, tensor.factor, tensor.relation, place.module
                    )

    def take_gradients(self, gradients: Iterable[JudgedValue]) -> None:
        """Take the gradients of parameters, each layer alone."""
        for gradient in gradients:
            if gradient.factor > 1.0 and not gradient.is_noise:
                fault = self._at(self._owners.get(gradient.pairing.target, ""))
                fault.add("backward", gradient.factor, gradient.relation)
                fault.parameters.append(gradient.pairing.target)

    def culprits(self) -> list[StepCulprit]:
        """All places, in the order in which they were found; what is wrong forth needs no other word back.

        What a layer is given and returns in another form does not give way to the reference's: where something else is
        wrong, it reaches the gradients of that layer.
        """
        culprits = [self._culprit(place, fault) for place, fault in self._faults.items()]
        behind = [
            culprit
            for culprit in culprits
            if (culprit.kind, culprit.part) == ("backward", "layer") and culprit.candidate in self._unlike
        ]
        return [culprit for culprit in culprits if culprit not in behind] or culprits

    def _at(self, path: str) -> _Fault:
        return self._fault(("code" if path in self._parents or not path else "layer", path))

    def _fault(self, place: tuple[FaultyPart, str]) -> _Fault:
        return self._faults.setdefault(place, _Fault())

    def _culprit(self, place: tuple[FaultyPart, str], fault: _Fault) -> StepCulprit:
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


def _alike(first: GradientRelation, second: GradientRelation) -> bool:
    """Tell whether two parameters show one thing: figures that were fitted differ in their last places."""
    if first.cause != second.cause or first.facts.keys() != second.facts.keys():
        return False
    return all(_near(first.facts[key], second.facts[key]) for key in first.facts)


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
    way: Way = "forward" if any(tensor.factor > 1.0 for tensor in seen if tensor.way == "forward") else "backward"
    off = sorted(
        (tensor for tensor in seen if tensor.way == way and tensor.factor > 1.0), key=_time, reverse=way == "backward"
    )
    calls: dict[tuple[str, int], list[SeenTensor]] = defaultdict(list)
    for tensor in seen:
        if tensor.way == way:
            calls[tensor.own.module, tensor.own.call].append(tensor)
    paths = {tensor.own.module for tensor in off}
    return [
        tensor
        for tensor in off
        if tensor is off[0] or _is_made_of_right(tensor, calls[tensor.own.module, tensor.own.call], paths)
    ]


def values_by_themselves(
    values: Sequence[JudgedValue], seen: Sequence[SeenTensor], owners: Mapping[str, str]
) -> list[JudgedValue]:
    """Leave out gradients and buffers of layers that were given something that is off, or hold a layer that is off.

    For a layer that was never called, as those that an attention only keeps, the next one around it stands.
    """
    off = [tensor for tensor in seen if tensor.factor > 1.0]
    given = {tensor.own.module for tensor in off if (tensor.way == "forward") == (tensor.own.role == "input")}
    called, paths = {tensor.own.module for tensor in seen}, {tensor.own.module for tensor in off}

    def follows(name: str) -> bool:
        owner = owners.get(name, "")
        while owner and owner not in called:
            owner = owner.rpartition(".")[0]
        return owner in given or _holds_any(owner, paths)

    return [value for value in values if value.factor <= 1.0 or not follows(value.pairing.target)]


def _is_made_of_right(tensor: SeenTensor, call: Sequence[SeenTensor], off: set[str]) -> bool:
    """Tell whether a call made a tensor of others that are all right, in itself and not in a layer inside."""
    made = (tensor.way == "forward") == (tensor.own.role == "output")
    given = [other for other in call if other.own.role != tensor.own.role]
    return made and bool(given) and not _holds_any(tensor.own.module, off) and all(each.factor <= 1.0 for each in given)


def _holds_any(module: str, paths: set[str]) -> bool:
    return any(path and (not module or path.startswith(f"{module}.")) for path in paths if path != module)


def _time(one: SeenTensor) -> tuple[int, bool, int]:
    """When a tensor arose: what a call is given is seen before what it returns, and outside before inside."""
    return one.own.order, one.own.role == "output", one.own.module.count(".") + bool(one.own.module)


# One factor on all gradients: a loss scale that is taken off again is no fault, a norm that is held is clipping.

OF_LOSS = "sum-over-parts", "loss-scale-kept"  # causes that the loss itself shows too


def without_loss_scale(
    culprits: Sequence[StepCulprit], given: Sequence[JudgedValue], by_optimizers: float, same_given: Callable[[], bool]
) -> tuple[list[StepCulprit], list[JudgedValue], float | None]:
    """Take out a factor of the loss by which the step, or the optimizers, divide all gradients; return that factor too.

    `by_optimizers` is what the candidate's optimizers multiply by, over the reference's. `same_given` tells whether the
    optimizers get the same in the step as each side takes it: clipping behind the scale hides the factor elsewhere.
    """
    loss = next(
        (culprit for culprit in culprits if culprit.part == "loss" and culprit.cause == "gradient-factor"), None
    )
    factors = [gradient.relation.facts.get("factor") if gradient.factor > 1.0 else 1.0 for gradient in given] or [1.0]
    scale = loss.facts["factor"] if loss is not None else None
    if not isinstance(scale, (int, float)):
        return [*culprits], [*given], None
    undone = all(_undoes(scale * by_optimizers, factor) for factor in factors)
    if not undone and not (by_optimizers == 1.0 and same_given()):
        return [*culprits], [*given], None
    return [culprit for culprit in culprits if culprit is not loss], [], float(scale)


def clipped_by_norm(given: Sequence[JudgedValue], gradients: Mapping[str, Array]) -> list[JudgedValue]:
    """Name one factor below 1 on all gradients clipping, if their norm is then a number that somebody would write."""
    factors = [
        gradient.relation.facts.get("factor") for gradient in given if gradient.relation.cause == "gradient-factor"
    ]
    known = [factor for factor in factors if isinstance(factor, (int, float))]
    if not known or len(known) < len(given) or not max(known) < 1.0:
        return [*given]
    norm = float(np.linalg.norm([gradient_norm(gradient) for gradient in gradients.values()]))
    written = float(f"{norm:.{WRITTEN_DIGITS}g}")
    if not norm or abs(norm / written - 1.0) > FACTOR_TOLERANCE:
        return [*given]
    relation = GradientRelation("gradients-clipped-by-norm", {"norm": written})
    return [replace(gradient, relation=relation) for gradient in given]


def named_scale(
    culprit: StepCulprit, given: Sequence[JudgedValue], runs: tuple[int, int], *, loops: bool
) -> StepCulprit:
    """Name a factor of all gradients that optimizers get, of steps that run the model so often on each side.

    It is their ratio where the mean over parts of a batch is missing, and a number that scales are made of where a loop
    of the user's own left the scale of the loss in. `given` are the gradients of whole steps.
    """
    factor = culprit.facts.get("factor")
    known = [gradient for gradient in given if not gradient.is_noise]
    if culprit.cause != "gradient-factor" or not isinstance(factor, (int, float)) or not known:
        return culprit
    if not all(_undoes(1 / factor, gradient.relation.facts.get("factor")) for gradient in known):
        return culprit
    names = tuple(gradient.pairing.target for gradient in known)
    worst = max(gradient.factor for gradient in known)
    of_all = replace(culprit, kind="gradients", part="step", parameters=names, factor=worst, sureness="confirmed")
    if any(_undoes(1 / factor, mean) for mean in _missing_means(*runs)):
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


# What is wrong on the way forth without a cause, asked again as a forward pass: what isolation and its trials find.


SHOWS_AT = "shows_at"  # the layer of the forward pass at which it shows


def explain_forward(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give culprits of the forward pass without a cause what a comparison of both models alone says of that place.

    Where that names one place, and the step one too, both are the same, as long as the one lies around the other. Of a
    model whose parts a step calls by themselves, as of two nets, or one with its average, that part is compared. Of
    sides of which one was captured, and of models that cannot be run by themselves, culprits stay as they are.
    """
    if seen.live is None or seen.live_reference is None:
        return [*culprits]
    roots = {place: outermost(place, seen.traces[1]) for place in map(_place, filter(_is_open, culprits))}
    by_root = {root: _compared_alone(root, seen) for root in {*roots.values()} if root is not None}
    return [
        _explained(culprit, by_root[root])
        if _is_open(culprit) and (root := roots[_place(culprit)]) is not None
        else culprit
        for culprit in culprits
    ]


def _place(one: StepCulprit) -> str:
    return one.near or one.candidate


def outermost(place: str, trace: StepTrace) -> str | None:
    """The outermost module around a place that the step calls itself; None for none."""
    called = {one.module for one in trace.forward.inputs}
    around = sorted((path for path in called if not path or place == path or place.startswith(f"{path}.")), key=len)
    return next(iter(around), None)


def without_what_follows(culprits: Sequence[StepCulprit]) -> list[StepCulprit]:
    """Leave out unrelated gradients around, and inside of, code that is wrong on the way forth.

    Such code goes back another way too, and what it is made of is not paired inside of it.
    """
    wrong = [one for one in culprits if one.kind == "forward" and (one.part == "code" or one.inside)]
    return [one for one in culprits if not any(_follows(one, other) for other in wrong)]


def _follows(one: StepCulprit, other: StepCulprit) -> bool:
    unrelated = one.kind == "backward" and one.cause in ("", "gradient-factor")
    return unrelated and _is_around(*(culprit.candidate or culprit.near for culprit in (one, other)))


def _is_open(one: StepCulprit) -> bool:
    return one.kind == "forward" and not one.cause and one.inside is None


def _compared_alone(root: str, seen: SeenSteps) -> Sequence[Culprit]:
    """What is at fault where both run a part of the model on what the step gave it, with the reference's values."""
    roots = next(((pair.reference.module, root) for pair in seen.calls.pairs if pair.candidate.module == root), None)
    if roots is None or seen.live is None or seen.live_reference is None:
        return ()
    reader, model = seen.live.side.reader, seen.live.side.model
    before = {name: value.copy() for name, value in reader.read_values(model).items()}
    inputs, own_inputs = (given_to(*pair) for pair in zip(roots, seen.traces, strict=True))
    try:
        reader.load_values(model, before | {name: value for name, value in seen.start.items() if name in before})
        sides = part_of(seen.live_reference, roots[0]), part_of(seen.live, root)
        names = _names_of(seen.names, sides, roots)
        comparison = compare_forward(
            *sides, inputs=inputs, candidate_inputs=own_inputs, name_map=names, power=False, thorough=seen.thorough
        )
    except AlignError:  # a model that a step alone can run
        return ()
    finally:
        reader.load_values(model, before)
    return [
        replace(
            culprit,
            reference=_within(roots[0], culprit.reference),
            candidate=_within(root, culprit.candidate),
            facts={name: _within(root, str(own)) if name == SHOWS_AT else own for name, own in culprit.facts.items()},
        )
        for culprit in comparison.culprits
    ]


def part_of(opened: TrainingSide, path: str) -> Side:
    """A module of a side's model, as a side of its own."""
    return replace(opened.side, model=layer_at(opened.side.model, path)) if path else opened.side


def _within(root: str, path: str) -> str:
    return ".".join(one for one in (root, path) if one)


def _names_of(names: NameMap, sides: Sequence[Side], roots: tuple[str, str]) -> NameMap:
    """The map of two parts of the models: a part's parameters keep their names, or lose the part's own."""
    if roots == ("", ""):
        return names
    mine, theirs = (
        {_within(root, name) if name.partition(".")[0] != root.partition(".")[0] else name: name
         for name in side.reader.read_values(side.model)}
        for side, root in zip(sides, roots, strict=True)
    )  # fmt: skip
    kept = [one for one in names.pairings if one.source in mine and one.target in theirs]
    own = tuple(replace(one, source=mine[one.source], target=theirs[one.target]) for one in kept)
    left = {"source": mine, "target": theirs}
    dropped = tuple(replace(one, name=left[one.side][one.name]) for one in names.dropped if one.name in left[one.side])
    return NameMap(names.source, names.target, own, dropped, frameworks=names.frameworks)


def given_to(root: str, trace: StepTrace) -> dict[str, Array]:
    """What a module was given first, by the names of what it takes."""
    of_root = [one for one in trace.forward.inputs if one.module == root]
    first = min((one.call for one in of_root), default=0)
    return {one.output: trace.forward.value(one) for one in of_root if one.call == first}


def _explained(culprit: StepCulprit, forward_culprits: Sequence[Culprit]) -> StepCulprit:
    """What was found at the place, in the same code, alone inside of it, or alone at all around it, if it says more."""
    exact = [
        other
        for other in forward_culprits
        if {other.candidate, other.facts.get(SHOWS_AT)} & {culprit.near, culprit.candidate}
    ]
    code = [
        other for other in forward_culprits if culprit.part == "code" and _module_of_code(other) == culprit.candidate
    ]
    inside = [
        other for other in forward_culprits if culprit.candidate and other.candidate.startswith(f"{culprit.candidate}.")
    ]
    around = [other for other in forward_culprits if _is_around(culprit.near or culprit.candidate, other.candidate)]
    alone = next((own for own in (code, inside, around if len(forward_culprits) == 1 else []) if len(own) == 1), [])
    for other in exact[:1] or alone:
        if other.cause or other.inside:
            return _as_found(culprit, other)
    return culprit


def _module_of_code(other: Culprit) -> str | None:
    """The module in whose code it is; None for a layer."""
    if other.part == "layer":
        return None
    return other.candidate.rpartition(".")[0] if other.part == "inputs" else other.candidate


def _as_found(culprit: StepCulprit, other: Culprit) -> StepCulprit:
    known = replace(
        culprit,
        cause=other.cause,
        facts={name: value for name, value in other.facts.items() if name != SHOWS_AT},
        sureness=other.sureness,
        change=other.change,
        line=other.line or culprit.line,
        inside=other.inside,
    )
    if other.part != "layer":
        return known
    return replace(
        known,
        part="layer",
        reference=other.reference,
        candidate=other.candidate,
        reference_class=other.reference_class,
        candidate_class=other.candidate_class,
        near="",
    )


def _is_around(one: str, other: str) -> bool:
    """Tell whether one path lies inside of the other, or is it."""
    short, long = sorted((one, other), key=len)
    return not short or long == short or long.startswith(f"{short}.")


# Which line stops a gradient that does not come back: one that stops what the reference does not stop.

STOPS = ("StopGradient", "detach", "detach_")  # the names of functional calls that stop a gradient
PART_STOPPED, NO_GRADIENT = "gradient-part-stopped", "no-gradient"


def explain_stops(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give gradients that are missing, or that nothing relates to the right ones, the line that stops them.

    It is suspected where a single line of the port stops tensors that the reference's code does not stop.
    """
    if seen.live is None or seen.live_reference is None or not any(_is_open_gradient(culprit) for culprit in culprits):
        return [*culprits]
    batches = seen.sides[0].batches[:1]
    try:
        meant = [value for _, value in _stopped(seen.live_reference, seen.traces[0], batches)]
        made = [*_stopped(seen.live, seen.traces[1], batches)]
    except AlignError:  # of a framework that does not show functions, or a model that a step alone can run
        return [*culprits]
    lines = {line for line, value in made if not any(_is_same(value, other) for other in meant)}
    line = lines.pop() if len(lines) == 1 else ""
    return [_with_line(culprit, line) if line and _is_open_gradient(culprit) else culprit for culprit in culprits]


def _is_open_gradient(one: StepCulprit) -> bool:
    of_code = one.kind in ("backward", "loss") and one.part in ("code", "loss", "parameters") and one.inside is None
    return of_code and one.cause in ("", NO_GRADIENT)


def _with_line(one: StepCulprit, line: str) -> StepCulprit:
    if one.cause == NO_GRADIENT:
        return replace(one, line=line)
    return replace(one, cause=PART_STOPPED, facts={}, line=line, sureness="suspected")


def _stopped(opened: TrainingSide, trace: StepTrace, batches: Sequence[Batch]) -> Iterator[tuple[str, Array]]:
    """The lines of a side that stop gradients, in the model and outside of it, each with what it stops."""

    def step(functions: CaptureSink) -> None:
        opened.trainer.take_steps(opened.training, batches, LossesOfSteps(functions=functions))

    yield from results_of_calls(step, STOPS)
    called = {one.module for one in trace.forward.inputs}
    for root in called:
        if not any(root.startswith(f"{other}.") or (root and not other) for other in called):
            side = part_of(opened, root)
            yield from results_of_calls(partial(side.runner.run, side.model, given_to(root, trace)), STOPS)


def _is_same(first: Array, second: Array) -> bool:
    """Tell whether two tensors hold the same values, in whatever order."""
    if first.size != second.size:
        return False
    mine, theirs = (np.sort(value.reshape(-1).astype(np.float64)) for value in (first, second))
    return relative_rms_distance(mine, theirs) <= SAME_STOPPED_DISTANCE


# The loss as code of the user's own, taken apart: which functional call of it makes another number of the same.

CALL_DIFFERS = "call-differs"
SPENT = "steps tried"
OF_GRADIENT = "gradient-"  # causes that say what came of it, and not why


def explain_loss_code(culprit: StepCulprit, seen: SeenSteps) -> StepCulprit:
    """Name the call at fault, where both sides are live and the loss of the reference's outputs is another number.

    It is confirmed: with the result that the reference has, the loss is right.
    """
    reference, candidate = seen.live_reference, seen.live
    right, candidate_loss = seen.traces[0].losses[0], seen.first.loss
    known = culprit.sureness == "confirmed" and not culprit.cause.startswith(OF_GRADIENT)
    known = known and culprit.cause != NO_GRADIENT
    if known or reference is None or candidate is None or not right or candidate_loss is None:
        return culprit
    far = abs(candidate_loss - right) / abs(right)
    if far <= LOSS_SHARE:
        return culprit
    batches = seen.sides[0].batches[:1]

    def meant(functions: CaptureSink) -> float | None:
        sink = LossesOfSteps(functions=functions)
        reference.trainer.take_steps(reference.training, batches, sink)
        return sink.losses[0]

    def made(functions: CaptureSink) -> float | None:
        sink = seen.replaced_step(StepJudge(seen.noise, seen.precision))
        sink.functions = functions
        try:
            candidate.trainer.take_steps(candidate.training, batches, sink)
        except (UserCodeError, InputsError):  # the code may not stand other values, as of labels
            return None
        return sink.loss

    taken = count(1)
    spent: dict[str, float | int | str] = {}

    def may_run() -> bool:
        if seen.thorough or next(taken) <= MOST_CODE_STEPS:
            return True
        spent[SPENT] = MOST_CODE_STEPS
        return False

    try:
        unlike_call = find_unlike_call(meant, made, far, may_run)
    except CannotRunError:  # of a framework that does not show functions
        return culprit
    if unlike_call is None:
        return replace(culprit, facts={**culprit.facts, **spent})
    line = unlike_call.fault.lines[0]
    named = replace(culprit, cause=CALL_DIFFERS, inside=unlike_call.fault, line=line, sureness="confirmed")
    return (
        replace(named, cause=unlike_call.relation.id, facts={**unlike_call.relation.facts})
        if unlike_call.relation
        else named
    )
