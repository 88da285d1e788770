"""Which parameters one training step trains, which not, and why; how many classes its labels may have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from align.core.parameters import EPSILON
from align.core.protocols import silent
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.data.compare_data import compare_data
from align.errors import AlignError, CannotRunError, InputsError, UsageError, UserCodeError
from align.models.live_calls import FRAMEWORKS, looked_for_once, noted_labels
from align.traces.pair_traces import choose_map
from align.training.open_training import (
    ParameterStep,
    StepUnseen,
    batch_findings,
    open_training,
    open_trainings,
    read_training_batch,
    watch_step,
)
from align.training.thresholds import (
    LARGE_VALUES,
    LOSS_SCALES,
    MOVED_SHARE,
    OWN_SEED,
    ROUNDING_UNITS,
    STEP_ROUNDING_SHARE,
    UNUSED_UNITS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap
    from align.core.parameters import Array, Parameter, ParameterSet
    from align.core.protocols import Batch, Progress
    from align.core.training import LabelClasses, Training
    from align.data.resized_pictures import DataComparison
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide, TrainingStep

# Why a parameter is not trained: found by trying, not by reading code.
#
# A parameter that changes the loss when its values change should have a gradient; if it has none, the way back is
# cut. One whose values do not matter is never called, or what it makes is an output that the loss does not use, is
# used nowhere, is multiplied by 0, or is taken away again. Values that no factor hides, NaN and large ones, tell
# these apart.

# Relative to the loss: what is not used at all changes nothing but by the order of sums.
UNUSED = UNUSED_UNITS * EPSILON["float32"]
HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class Untrained:
    """The state of a parameter, and why it is so."""

    state: ParameterState
    reason: str


WITHOUT_INFLUENCE = Untrained("without influence", sentence("untrained_reason.without_influence"))


WITHOUT_GRADIENT = Untrained("without influence", sentence("untrained_reason.without_gradient"))


@dataclass(frozen=True, slots=True)
class _Tried:
    """What was tried of parameters without a gradient.

    Those that matter to the loss, those whose influence is `taken_away` again but for rounding, those that have a
    gradient if the loss is scaled, with the factor, and where the values of the others lead to.
    """

    matter: frozenset[str]
    taken_away: frozenset[str]
    scales: Mapping[str, float]
    ends: Mapping[str, _End]


@dataclass(frozen=True, slots=True)
class _End:
    """Where the values of a parameter lead to that do not matter to the loss.

    To the loss, through what hides them; to these `outputs` of the model alone; `unknown` where the step fails on them.
    """

    loss: bool = False
    outputs: tuple[str, ...] = ()
    unknown: bool = False


NOWHERE = _End()


class Explainer:
    """Tells the states of parameters after a step; a few more steps on other values or scales tell why."""

    def __init__(self, opened: TrainingSide, batch: Batch, step: TrainingStep) -> None:
        self._training, self._step = opened.training, step
        self._trials = ParameterTrials(opened, batch, step)

    def states(self, parameters: Sequence[Parameter]) -> dict[str, Untrained]:
        """The state of each trainable parameter, by name."""
        seen = {parameter.name: self._step.parameters[parameter.name] for parameter in parameters}
        still = [parameter.name for parameter in parameters if self._is_still(seen[parameter.name])]
        idle = set(still) - set(self._trials.that_matter(still, STEP_ROUNDING_SHARE))
        tried = self._tried([parameter for parameter in parameters if not seen[parameter.name].gradient])
        states = {}
        for parameter in parameters:
            step = seen[parameter.name]
            moved = WITHOUT_INFLUENCE if parameter.name in idle else self._moved(step)
            states[parameter.name] = moved if step.gradient else self._silent(parameter, step, tried)
        return states

    def _tried(self, silent: Sequence[Parameter]) -> _Tried:
        names = [one.name for one in silent]
        scales = self._trials.scales(names)
        matter = set(self._trials.that_matter([name for name in names if name not in scales], UNUSED))
        left = [one.name for one in silent if self._runs(one) and one.name not in matter | scales.keys()]
        reach = self._trials.reach(left)
        matter |= {name for name, more in reach.items() if more}
        ends = self._trials.ends([name for name in names if name not in matter | scales.keys() | reach.keys()])
        return _Tried(frozenset(matter), frozenset(reach.keys() - matter), scales, ends)

    def _runs(self, one: Parameter) -> bool:
        return not one.module or one.module in self._step.called

    def _is_still(self, own: ParameterStep) -> bool:
        """Tell whether an optimizer was to move a parameter, and did not."""
        to_move = own.gradient and np.isfinite(own.gradient) and own.holders and self._step.updates
        return bool(to_move and own.rate != 0.0 and own.moved == 0.0)

    def _moved(self, step: ParameterStep) -> Untrained:
        if step.gradient is not None and not np.isfinite(step.gradient):
            return Untrained("not finite", _not_finite(step.gradient, step.moved))
        if not np.isfinite(step.moved):
            return Untrained("not finite", sentence("untrained_reason.update_not_finite"))
        if step.moved > 0.0:
            twice = step.holders > 1
            return Untrained("trained", sentence("untrained_reason.held_twice", count=step.holders) if twice else "")
        return Untrained("did not move", self._why_still(step))

    def _why_still(self, step: ParameterStep) -> str:
        if not self._training.optimizers:
            return sentence("untrained_reason.no_optimizer")
        if not step.holders:
            return sentence("untrained_reason.no_group")
        if not self._step.updates:
            return sentence("untrained_reason.not_called")
        if step.rate == 0.0:
            return sentence("untrained_reason.rate_zero")
        held = (one for one in self._step.parameters.values() if one.holders and one.gradient)
        if all(one.moved == 0.0 for one in held):
            return sentence("untrained_reason.nothing_moved")
        return sentence("untrained_reason.too_small")

    def _silent(self, parameter: Parameter, step: ParameterStep, tried: _Tried) -> Untrained:
        if parameter.name in tried.taken_away:
            return WITHOUT_GRADIENT
        reason = self._why_silent(parameter, tried)
        if step.moved > 0.0:
            moved = sentence("untrained_reason.moved_all_the_same", reason=reason)
            return Untrained("moved without a gradient", moved)
        return Untrained("no gradient" if step.gradient is None else "zero gradient", reason)

    def _why_silent(self, parameter: Parameter, tried: _Tried) -> str:
        if self._step.loss is None:
            return sentence("untrained_reason.no_loss")
        if scale := tried.scales.get(parameter.name):
            return sentence("untrained_reason.underflow", scale=scale)
        if parameter.name in tried.matter:
            unsure = self._training.step is not None and self._trials.half
            return sentence("untrained_reason.cut_or_lost" if unsure else "untrained_reason.cut")
        return self._why_unused(parameter, tried.ends.get(parameter.name, NOWHERE))

    def _why_unused(self, parameter: Parameter, end: _End) -> str:
        if end.loss:
            return sentence("untrained_reason.hidden")
        if end.outputs:
            named = [_place(name) for name in end.outputs if name]
            whole = sentence("untrained_reason.part_of_output")
            return sentence("untrained_reason.output_not_used", outputs=named) if named else whole
        if not self._runs(parameter):
            return sentence("untrained_reason.module_not_called")
        if end.unknown or "" not in self._step.called:  # what the model returns was not seen
            return sentence("untrained_reason.no_part_of_loss")
        return sentence("untrained_reason.dead_code" if parameter.module else "untrained_reason.used_nowhere")


def _not_finite(gradient: float, moved: float) -> str:
    """What became of the values of a parameter whose gradient is no number, by how far they moved."""
    name = "NaN" if np.isnan(gradient) else "infinite"
    if not np.isfinite(moved):
        return sentence("untrained_reason.values_not_finite", gradient=name)
    return sentence(
        "untrained_reason.left_by_step" if moved == 0.0 else "untrained_reason.gradient_not_finite", gradient=name
    )


def _place(name: str) -> str:
    """The name of an output as code has it: `aux`, `[1]`, `[1].mask`."""
    return "".join(f"[{one}]" if one.isdecimal() else f".{one}" for one in name.split(".")).removeprefix(".")


class ParameterTrials:
    """Takes a step of a side again and again, and holds it against the first one, which is `step`."""

    def __init__(self, opened: TrainingSide, batch: Batch, step: TrainingStep) -> None:
        self._opened, self._batch, self._step = opened, batch, step
        self._values = opened.side.reader.read_values(opened.side.model)

    @property
    def half(self) -> bool:
        """Whether a parameter or buffer is of half precision."""
        return any(value.dtype.name in HALF for value in self._values.values())

    def that_matter(self, names: Sequence[str], least: float) -> list[str]:
        """The parameters on which the loss depends by more than this share of it."""
        return [*_by_halves(names, lambda some: self._follows(some, least))] if self._step.loss is not None else []

    def reach(self, names: Sequence[str]) -> dict[str, bool]:
        """The parameters that change gradients of others, and whether by more than rounding.

        Nothing where a step is not the same twice: then nothing can be concluded.
        """
        if not names or self._step.loss is None or self._change(()) > 0.0:
            return {}
        dtypes = {value.dtype.name for value in self._values.values()}
        limit = ROUNDING_UNITS * max(EPSILON.get(name, 0.0) for name in dtypes)
        return {name: self._change([name]) > limit for name in _by_halves(names, lambda some: self._change(some) > 0.0)}

    def scales(self, names: Sequence[str]) -> dict[str, float]:
        """The parameters that get a gradient from a larger loss, with its factor; a user's own step is not scaled."""
        scales: dict[str, float] = {}
        for scale in LOSS_SCALES if names and self._opened.training.step is None else ():
            gradients = {name: one.gradient for name, one in self._train(loss_scale=scale).parameters.items()}
            seen = [name for name in names if (own := gradients[name]) and np.isfinite(own)]
            scales = dict.fromkeys(seen, scale) | scales
            if all(one is None or np.isfinite(one) for one in gradients.values()):
                break
        return scales

    def ends(self, names: Sequence[str]) -> dict[str, _End]:
        """Where the values of parameters lead to that do not matter to the loss; those that lead nowhere are left out.

        NaN passes a factor of 0, and a large number passes a ReLU, which lets no NaN through in MindSpore.
        """
        if not names or self._step.loss is None:
            return {}
        before = self._train(outputs=True)
        found = self._leading_on(names, _not_a_number, before)
        left = [name for name in names if name not in found]
        return found | self._leading_on(left, _large_value, before)

    def _leading_on(
        self, names: Sequence[str], value_of: Callable[[Array], Array], before: TrainingStep
    ) -> dict[str, _End]:
        ends: dict[tuple[str, ...], _End] = {}

        def leads_on(some: Sequence[str]) -> bool:
            ends[tuple(some)] = end = self._end(some, value_of, before)
            return end != NOWHERE

        return {name: ends[(name,)] for name in _by_halves(names, leads_on)}

    def _end(self, names: Sequence[str], value_of: Callable[[Array], Array], before: TrainingStep) -> _End:
        try:
            after = self._train({name: value_of(self._values[name]) for name in names}, outputs=True)
        except UserCodeError:  # an assertion of the user's, or an operator that takes no NaN
            return _End(unknown=True)
        if after.loss is None or before.loss is None:
            return _End(unknown=True)
        others = (
            name for (call, name), value in before.outputs.items() if _differs(after.outputs.get((call, name)), value)
        )
        return _End(_differs(np.asarray(after.loss), np.asarray(before.loss)), (*dict.fromkeys(others),))

    def _follows(self, names: Sequence[str], least: float) -> bool:
        """Tell whether the loss changes with the values of these parameters."""
        loss, before = self._moved(names).loss, self._step.loss
        if loss is None or before is None:
            return False
        if not (np.isfinite(loss) and np.isfinite(before)):
            return bool(np.isfinite(loss) != np.isfinite(before))
        return abs(loss - before) > least * abs(before)

    def _change(self, names: Collection[str]) -> float:
        """How much the gradients of all other parameters change with these, relative to the largest; 0 if not a bit."""
        after, before = self._moved(names), self._step
        others = {name: step for name, step in before.parameters.items() if name not in names}
        if after.loss == before.loss and all(after.parameters[name] == step for name, step in others.items()):
            return 0.0
        sizes = [(step.gradient or 0.0, after.parameters[name].gradient or 0.0) for name, step in others.items()]
        largest = max((size for size, _ in sizes), default=0.0)
        return max((abs(size - other) for size, other in sizes), default=0.0) / largest if largest else np.inf

    def _moved(self, names: Collection[str]) -> TrainingStep:
        return self._train(moved={name: _moved_value(self._values[name]) for name in names})

    def _train(
        self, moved: Mapping[str, Array] | None = None, *, loss_scale: float = 1.0, outputs: bool = False
    ) -> TrainingStep:
        return watch_step(self._opened, self._batch, moved=moved, loss_scale=loss_scale, outputs=outputs)


def _by_halves(names: Sequence[str], holds: Callable[[Sequence[str]], bool]) -> Iterator[str]:
    """The names for which something holds that holds for no group without one of them."""
    if not names or not holds(names):
        return
    if len(names) == 1:
        yield names[0]
        return
    middle = len(names) // 2
    yield from _by_halves(names[:middle], holds)
    yield from _by_halves(names[middle:], holds)


def _differs(after: Array | None, before: Array) -> bool:
    """Tell whether values are others by more than the order of sums."""
    if after is None or after.shape != before.shape:
        return True
    wide = after.astype(np.complex128), before.astype(np.complex128)
    largest = float(np.abs(wide[1][np.isfinite(wide[1])]).max(initial=0.0))
    return not np.allclose(*wide, rtol=UNUSED, atol=UNUSED * largest, equal_nan=True)


def _not_a_number(value: Array) -> Array:
    return np.full_like(value, np.nan)


def _large_value(value: Array) -> Array:
    noise = np.random.default_rng(OWN_SEED).standard_normal(value.shape)
    return np.asarray(LARGE_VALUES * noise).astype(value.dtype)


def _moved_value(value: Array) -> Array:
    """Other values of the same size; zeros become small numbers."""
    wide = value.astype(np.float64)
    size = float(np.sqrt(np.mean(wide**2))) if value.size else 0.0
    noise = np.random.default_rng(OWN_SEED).standard_normal(value.shape)
    return np.asarray(wide + MOVED_SHARE * (size or 0.1) * noise).astype(value.dtype)


FROZEN = Untrained("frozen", "requires_grad is False")
NOT_STEPPED = ParameterStep(None, 0.0, 0.0, 0.0, 0, None)


def check_parameters(
    reference: str | Training,
    candidate: str | Training | None = None,
    *,
    batch: InputsSource,
    name_map: NameMap | Path | str | None = None,
    ddp_indices: Sequence[int] = (),
    progress: Progress = silent,
) -> ParametersResult:
    """Take one training step of a side and say what it did to every parameter; with a candidate, compare both.

    A side is an `align.Training`, or `module:function` that returns one, a tuple (model, loss, optimizer[, step]) or a
    dict of these. `batch` is as inputs are for `align.compare_forward`, one batch with the labels: what bears no name
    of the model's parameters goes to the loss. `ddp_indices` are numbers of parameters as torch's
    DistributedDataParallel reports them. Nothing of a side is changed. Raises CannotRunError for a model without
    trainable parameters and for a loss that is no scalar, UsageError for an index that there is not.

    >>> from align.core.training import Training
    >>> from align.models.frameworks.arrays import ArrayModel
    >>> import numpy as np
    >>> check_parameters(Training(ArrayModel(())), batch={"x": np.ones(2)})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: arrays models cannot be trained
    """
    arrays = read_training_batch(batch)
    opened = [open_training(reference)] if candidate is None else [*open_trainings(reference, candidate)]
    noted = [one for side in opened for one in batch_findings(side, arrays)]
    sets = [side.side.reader.read_parameters(side.side.model, side.label) for side in opened]
    sides = []
    for number, (side, parameters) in enumerate(zip(opened, sets, strict=True)):
        progress("params", number, len(opened))
        sides.append(_checked(side, parameters, arrays))
    progress("params", len(opened), len(opened))
    unlike = tuple(_unlike(sets, sides, name_map)) if candidate is not None else ()
    asked = tuple(_asked(sides[0], index) for index in ddp_indices)
    findings = (*noted, *_findings(sides))
    return ParametersResult(tuple(sides), unlike, asked, findings, _verdict(sides, unlike))


def _checked(opened: TrainingSide, parameters: ParameterSet, batch: Batch) -> CheckedSide:
    """Take the step, and name the state of every parameter."""
    untied = [parameter for parameter in parameters.parameters if not parameter.buffer and parameter.tied_to is None]
    trainable = [parameter for parameter in untied if parameter.trainable]
    if not trainable:
        raise CannotRunError.of("training_error.nothing_trainable", side=opened.label, count=len(untied))
    with looked_for_once():
        step = watch_step(opened, batch)
        states = Explainer(opened, batch, step).states(trainable)
    numbers = {parameter.name: number for number, parameter in enumerate(trainable)}
    rows = [
        _row(
            parameter,
            states.get(parameter.name, FROZEN),
            step.parameters.get(parameter.name, NOT_STEPPED),
            numbers.get(parameter.name),
        )
        for parameter in untied
    ]
    buffers = [
        parameter.name for parameter in parameters.parameters if parameter.buffer and parameter.name in step.buffers
    ]
    return CheckedSide(
        opened.label,
        opened.side.reader.name,
        step.loss,
        step.updates,
        tuple(rows),
        tuple(CheckedBuffer(name, step.buffers[name]) for name in buffers),
    )


def _row(parameter: Parameter, state: Untrained, step: ParameterStep, number: int | None) -> CheckedParameter:
    return CheckedParameter(
        parameter.name,
        parameter.module,
        parameter.shape,
        state.state,
        state.reason,
        step.gradient,
        step.moved,
        step.units,
        step.rate,
        step.holders,
        number,
    )


def _asked(side: CheckedSide, index: int) -> CheckedParameter:
    parameter = next((row for row in side.parameters if row.ddp_index == index), None)
    if parameter is None:
        count = sum(row.ddp_index is not None for row in side.parameters)
        raise UsageError.of("training_error.no_such_parameter", index=index, side=side.label, count=count)
    return parameter


def _unlike(
    sets: Sequence[ParameterSet], sides: Sequence[CheckedSide], given: NameMap | Path | str | None
) -> Iterator[UnlikeParameter]:
    """Pairs in different states; that one framework gives no gradient where the other gives zero is no difference."""
    mine, theirs = ({row.name: row for row in side.parameters} for side in sides)
    for pairing in choose_map(given, (sets[0], sets[1])).pairings:
        reference, candidate = mine.get(pairing.source), theirs.get(pairing.target)
        if (
            reference
            and candidate
            and _kind(reference) != _kind(candidate)
            and "without influence" not in (reference.state, candidate.state)
        ):
            reasons = [
                f"{side}: {row.reason}"
                for side, row in (("reference", reference), ("candidate", candidate))
                if row.reason
            ]
            yield UnlikeParameter(reference.name, candidate.name, reference.state, candidate.state, "; ".join(reasons))


def _kind(row: CheckedParameter) -> str:
    return "zero gradient" if row.state == "no gradient" else row.state


def _findings(sides: Sequence[CheckedSide]) -> Iterator[Finding]:
    for side in sides:
        twice = [one.name for one in side.parameters if one.holders > 1]
        if twice:
            message = sentence("params_finding.two_groups", names=twice)
            yield Finding("parameter-in-two-groups", "warning", side.label, message)
        if side.loss is not None and not isfinite(side.loss):
            yield Finding(
                "loss-not-finite", "error", side.label, sentence("params_finding.loss_not_finite", loss=side.loss)
            )


def _verdict(sides: Sequence[CheckedSide], unlike: Sequence[UnlikeParameter]) -> Verdict:
    """Judge one side by whether every trainable parameter is trained, two sides by whether both train the same."""
    counts = [sum(one.state != "frozen" for one in side.parameters) for side in sides]
    coverage = Coverage("parameters", counts[0])
    faults = sides[0].at_fault
    if unlike:
        pair = unlike[0]
        names = {"reference": pair.reference, "candidate": pair.candidate}
        states = {"reference_state": pair.reference_state, "candidate_state": pair.candidate_state}
        reason = sentence("params_verdict.unlike", count=len(unlike), **names, **states)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    if not any(side.at_fault for side in sides):
        return Verdict(Outcome.ALIGNED, sentence("params_verdict.all_trained", count=counts[-1]), coverage)
    share = {"faults": len(faults), "count": counts[0]}
    if len(sides) > 1:
        return Verdict(Outcome.ALIGNED, sentence("params_verdict.alike", **share), coverage)
    reason = sentence("params_verdict.untrained", name=faults[0].name, reason=faults[0].reason, **share)
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage)


# What one training step did to every parameter of a side, or of both.

ParameterState = Literal[
    "trained",
    "frozen",
    "without influence",
    "no gradient",
    "zero gradient",
    "did not move",
    "moved without a gradient",
    "not finite",
]

FINE = frozenset({"trained", "frozen", "without influence"})


@dataclass(frozen=True, slots=True)
class CheckedParameter:
    """One parameter after one step.

    `reason` says why it is not trained, "" if it is. `gradient` is the largest absolute value, None where there was
    none; `moved` the largest change, `units` the same in units in the last place. `rate` is that of its group, None if
    it has none; `holders` counts its places in groups of optimizers. `ddp_index` is its number in the messages of
    torch's DistributedDataParallel, None for a frozen one.
    """

    name: str
    module: str
    shape: tuple[int, ...]
    state: ParameterState
    reason: str
    gradient: float | None
    moved: float
    units: float
    rate: float | None
    holders: int
    ddp_index: int | None


@dataclass(frozen=True, slots=True)
class CheckedBuffer:
    """A buffer after one pass in training mode: the largest change of its values."""

    name: str
    moved: float


@dataclass(frozen=True, slots=True)
class CheckedSide:
    """All parameters and buffers of a side; the `loss` is None if a step of the user's own returns none."""

    label: str
    framework: str
    loss: float | None
    updates: int
    parameters: tuple[CheckedParameter, ...]
    buffers: tuple[CheckedBuffer, ...]

    @property
    def at_fault(self) -> tuple[CheckedParameter, ...]:
        """Trainable parameters that one step does not train."""
        return tuple(one for one in self.parameters if one.state not in FINE)


@dataclass(frozen=True, slots=True)
class UnlikeParameter:
    """A pair of parameters of which one side trains one only, or for which the reasons differ."""

    reference: str
    candidate: str
    reference_state: ParameterState
    candidate_state: ParameterState
    reason: str


@dataclass(frozen=True, slots=True)
class ParametersResult(ShownResult):
    """One side or both; `unlike` are pairs in different states, `asked` the parameters of the numbers asked for."""

    result_kind = "params"
    sides: tuple[CheckedSide, ...]
    unlike: tuple[UnlikeParameter, ...]
    asked: tuple[CheckedParameter, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict


# How many classes the labels of a training may have: seen where its loss takes them, and never concluded from a
# model.
#
# The size of an output says nothing by itself: an embedding has one, and so has a regression. A loss that takes whole
# numbers as numbers of classes does, with the label that it leaves out.


def read_label_classes(training: str | Training, batch: InputsSource) -> tuple[LabelClasses, ...]:
    """Take one step, and return the arrays of the batch that its losses take as numbers of classes; () if none does.

    What a step makes of its labels before the loss takes them is not returned: its numbers are not those of the data.
    The training is left as it was. Raises as `check_parameters` does, but for labels of the batch that are no class.
    """
    opened = open_training(training)
    arrays = read_training_batch(batch)
    with noted_labels() as noted:
        try:
            opened.trainer.take_steps(opened.training, (arrays,), StepUnseen())
        except InputsError:
            if not noted:
                raise
    loss, step = opened.training.loss, opened.training.step
    is_direct = step is None and type(loss).__module__.partition(".")[0] in FRAMEWORKS
    return tuple(dict.fromkeys(replace(labels, training=opened.label, is_direct=is_direct) for labels in noted))


def compare_labelled_data(
    reference: str,
    candidate: str,
    trainings: tuple[str | None, str | None] = (None, None),
    batch: str | None = None,
    **how: Any,
) -> DataComparison:
    """Compare two data pipelines, with a batch also their labels with what the losses of both trainings take.

    Where a side's cannot be told, a caveat says why: its data are compared all the same.
    """
    classes: list[Sequence[LabelClasses]] = [(), ()]
    caveats = []
    for place, training in enumerate(trainings):
        if training is not None and batch is not None:
            try:
                classes[place] = read_label_classes(training, batch)
            except AlignError as error:
                caveats.append(sentence("data_caveat.no_classes", training=training, reason=error.message))
    result = compare_data(reference, candidate, **how | ({"classes": (classes[0], classes[1])} if batch else {}))
    return replace(result, verdict=replace(result.verdict, caveats=(*result.verdict.caveats, *caveats)))
