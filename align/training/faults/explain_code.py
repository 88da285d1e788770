"""What is wrong on the way forth without a cause, asked again as a forward pass: what isolation and its trials find."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import NameMap
from align.errors import AlignError, CannotRunError, InputsError, UserCodeError
from align.forward.compare_forward import compare_forward
from align.forward.unlike_code import find_unlike_call, results_of_calls
from align.measure.tensor_statistics import relative_rms_distance
from align.models.source_lines import layer_at
from align.training.faults.trained_otherwise import NO_GRADIENT
from align.training.steps.judge_step import StepJudge
from align.training.thresholds import LOSS_SHARE, MOST_CODE_STEPS, SAME_STOPPED_DISTANCE
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.core.traces import CaptureSink
    from align.forward.forward_result import Culprit
    from align.models.open_side import Side
    from align.training.open_training import TrainingSide
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace


SHOWS_AT = "shows_at"  # the layer of the forward pass at which it shows


def explain_forward(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give culprits of the forward pass without a cause what a comparison of both models alone says of that place.

    Where that names one place, and the step one too, both are the same, as long as the one lies around the other. Of a
    model whose parts a step calls by themselves, as of two nets, or one with its average, that part is compared. Of
    sides of which one was captured, and of models that cannot be run by themselves, culprits stay as they are.
    """
    if seen.live is None or seen.live_reference is None:
        return [*culprits]
    roots = {one: outermost(one, seen.traces[1]) for one in map(_place, filter(_is_open, culprits))}
    found = {root: _compared_alone(root, seen) for root in {*roots.values()} if root is not None}
    return [
        _explained(one, found[root]) if _is_open(one) and (root := roots[_place(one)]) is not None else one
        for one in culprits
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
    roots = next(((one.reference.module, root) for one in seen.calls.pairs if one.candidate.module == root), None)
    if roots is None or seen.live is None or seen.live_reference is None:
        return ()
    reader, model = seen.live.side.reader, seen.live.side.model
    before = {name: value.copy() for name, value in reader.read_values(model).items()}
    inputs, own_inputs = (given_to(*one) for one in zip(roots, seen.traces, strict=True))
    try:
        reader.load_values(model, before | {name: value for name, value in seen.start.items() if name in before})
        sides = part_of(seen.live_reference, roots[0]), part_of(seen.live, root)
        names = _names_of(seen.names, sides, roots)
        found = compare_forward(
            *sides, inputs=inputs, candidate_inputs=own_inputs, name_map=names, power=False, thorough=seen.thorough
        )
    except AlignError:  # a model that a step alone can run
        return ()
    finally:
        reader.load_values(model, before)
    return [
        replace(
            one,
            reference=_within(roots[0], one.reference),
            candidate=_within(root, one.candidate),
            facts={name: _within(root, str(own)) if name == SHOWS_AT else own for name, own in one.facts.items()},
        )
        for one in found.culprits
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


def _explained(one: StepCulprit, found: Sequence[Culprit]) -> StepCulprit:
    """What was found at the place, in the same code, alone inside of it, or alone at all around it, if it says more."""
    exact = [other for other in found if {other.candidate, other.facts.get(SHOWS_AT)} & {one.near, one.candidate}]
    code = [other for other in found if one.part == "code" and _module_of_code(other) == one.candidate]
    inside = [other for other in found if one.candidate and other.candidate.startswith(f"{one.candidate}.")]
    around = [other for other in found if _is_around(one.near or one.candidate, other.candidate)]
    alone = next((own for own in (code, inside, around if len(found) == 1 else []) if len(own) == 1), [])
    for other in exact[:1] or alone:
        if other.cause or other.inside:
            return _as_found(one, other)
    return one


def _module_of_code(other: Culprit) -> str | None:
    """The module in whose code it is; None for a layer."""
    if other.part == "layer":
        return None
    return other.candidate.rpartition(".")[0] if other.part == "inputs" else other.candidate


def _as_found(one: StepCulprit, other: Culprit) -> StepCulprit:
    known = replace(
        one,
        cause=other.cause,
        facts={name: value for name, value in other.facts.items() if name != SHOWS_AT},
        sureness=other.sureness,
        change=other.change,
        line=other.line or one.line,
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
PART_STOPPED, CUT = "gradient-part-stopped", "no-gradient"


def explain_stops(culprits: Sequence[StepCulprit], seen: SeenSteps) -> list[StepCulprit]:
    """Give gradients that are missing, or that nothing relates to the right ones, the line that stops them.

    It is suspected where a single line of the port stops tensors that the reference's code does not stop.
    """
    if seen.live is None or seen.live_reference is None or not any(_is_open_gradient(one) for one in culprits):
        return [*culprits]
    batches = seen.sides[0].batches[:1]
    try:
        meant = [value for _, value in _stopped(seen.live_reference, seen.traces[0], batches)]
        made = [*_stopped(seen.live, seen.traces[1], batches)]
    except AlignError:  # of a framework that does not show functions, or a model that a step alone can run
        return [*culprits]
    lines = {line for line, value in made if not any(_is_same(value, other) for other in meant)}
    line = lines.pop() if len(lines) == 1 else ""
    return [_with_line(one, line) if line and _is_open_gradient(one) else one for one in culprits]


def _is_open_gradient(one: StepCulprit) -> bool:
    of_code = one.kind in ("backward", "loss") and one.part in ("code", "loss", "parameters") and one.inside is None
    return of_code and one.cause in ("", CUT)


def _with_line(one: StepCulprit, line: str) -> StepCulprit:
    if one.cause == CUT:
        return replace(one, line=line)
    return replace(one, cause=PART_STOPPED, facts={}, line=line, sureness="suspected")


def _stopped(opened: TrainingSide, trace: StepTrace, batches: Sequence[Batch]) -> Iterator[tuple[str, Array]]:
    """The lines of a side that stop gradients, in the model and outside of it, each with what it stops."""

    def step(functions: CaptureSink) -> None:
        opened.trainer.take_steps(opened.training, batches, LossOfStep(functions))

    yield from results_of_calls(step, STOPS)
    called = {one.module for one in trace.forward.inputs}
    for root in called:
        if not any(root.startswith(f"{other}.") or (root and not other) for other in called):
            side = part_of(opened, root)
            yield from results_of_calls(partial(side.runner.run, side.model, given_to(root, trace)), STOPS)


def _is_same(one: Array, other: Array) -> bool:
    """Tell whether two tensors hold the same values, in whatever order."""
    if one.size != other.size:
        return False
    mine, theirs = (np.sort(value.reshape(-1).astype(np.float64)) for value in (one, other))
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
    right, own = seen.traces[0].losses[0], seen.first.loss
    known = culprit.sureness == "confirmed" and not culprit.cause.startswith(OF_GRADIENT)
    known = known and culprit.cause != NO_GRADIENT
    if known or reference is None or candidate is None or not right or own is None:
        return culprit
    far = abs(own - right) / abs(right)
    if far <= LOSS_SHARE:
        return culprit
    batches = seen.sides[0].batches[:1]

    def meant(functions: CaptureSink) -> float | None:
        sink = LossOfStep(functions)
        reference.trainer.take_steps(reference.training, batches, sink)
        return sink.loss

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
        found = find_unlike_call(meant, made, far, may_run)
    except CannotRunError:  # of a framework that does not show functions
        return culprit
    if found is None:
        return replace(culprit, facts={**culprit.facts, **spent})
    line = found.fault.lines[0]
    named = replace(culprit, cause=CALL_DIFFERS, inside=found.fault, line=line, sureness="confirmed")
    return replace(named, cause=found.relation.id, facts={**found.relation.facts}) if found.relation else named


class LossOfStep(StepUnseen):
    """A StepSink that keeps the loss, of these `values` to begin with, and shows another sink the functional calls."""

    def __init__(self, functions: CaptureSink | None = None, values: Mapping[str, Array] | None = None) -> None:
        self.functions, self._values = functions, values or {}
        self.loss: float | None = None

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start from the given values."""
        return self._values

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:  # noqa: ARG002
        """Keep the loss."""
        self.loss = loss
