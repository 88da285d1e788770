"""Steps of a side that were recorded, with what is known of it: its model may be here, or on another machine.

A step that is another one each time cannot be compared: what differs would count as rounding, or as a fault. It may
draw random numbers, or keep something from one taking to the next that is not put back. Such steps are refused.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from align.core.protocols import LearningRates, OptimizerReader, SettingsReader
from align.core.training import MomentReader
from align.errors import CannotRunError, UsageError, UserCodeError
from align.lint.compare_optimizers import USUAL_STEPS, steps_to_sample
from align.measure.measure_arrays import measure
from align.models.inputs import MadeArrays, SpilledArrays
from align.models.loop_watcher import recompute_noted
from align.models.rebuild_from_settings import called_at
from align.models.source_lines import made_at
from align.models.user_code import other_seed
from align.training.apply_rule import blocks_of, moved_norm
from align.training.open_training import StepUnseen, read_training_batches
from align.training.steps.judge_step import RandomRounding, measure_step_noise
from align.training.steps.record_step import (
    AFTER,
    BEFORE,
    COMPUTED,
    GIVEN,
    StepTrace,
    StepWriter,
    UpdateTrace,
    take_again,
)
from align.training.thresholds import SAME_GRADIENTS_SHARE, SAME_SETTING_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Array, ParameterSet
    from align.core.protocols import Batch, LayerSettings, Model, ParameterGroup
    from align.core.verdicts import Finding
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.steps.judge_step import StepNoise

    Loss = float | None
    Distance = Callable[[int, Iterable[tuple[str, Array]]], float]


BY_LOOP = "loop"  # what changes the rates where no schedule does
_NOTHING: Mapping[str, Array] = {}


class LineFinder(Protocol):
    """Finds lines of the user's code."""

    def __call__(self, path: str, *, calls: bool = False) -> str:
        """The line that makes the layer at a path, or that `calls` it; "" where it is not known."""
        ...


@dataclass(frozen=True)
class RecordedSteps:
    """The steps of a side on `batches`, one after another, and what is known of its model and optimizers.

    `groups` are the settings by which each parameter is updated, with their rates step by step; `loss` those of the
    loss, None for one that is no module of a framework. `own_step` says that the user's own loop took the steps,
    `recomputes` that layers are checkpointed, though they were run once.
    """

    label: str
    framework: str
    environment: Mapping[str, str]
    parameters: ParameterSet
    groups: Mapping[str, ParameterGroup]
    loss: LayerSettings | None
    own_step: bool
    line_of: LineFinder
    batches: Sequence[Batch]
    trace: StepTrace
    recomputes: bool


@dataclass(frozen=True)
class ReferenceSteps:
    """The steps that another side is held against, with their rounding."""

    steps: RecordedSteps
    noise: StepNoise
    findings: tuple[Finding, ...]


def batches_of_steps(batch: InputsSource, steps: int) -> list[Batch]:
    """The batch of each step: several follow one another, and begin anew where they are fewer than the steps."""
    if steps < 1:
        raise UsageError.of("training_error.no_steps", steps=steps)
    given = read_training_batches(batch)
    return [given[number % len(given)] for number in range(max(steps, len(given)))]


def record_reference(
    opened: TrainingSide,
    batches: Sequence[Batch],
    folder: Path,
    *,
    begun: Callable[[], None] = lambda: None,
    layers: bool = False,
) -> ReferenceSteps:
    """Take steps of a live side and measure their rounding, with `layers` that of a whole step too.

    Raises CannotRunError for a side that trains nothing, and for steps that draw random numbers.
    """
    begun()
    steps = record_steps(opened, batches, folder)
    rounded = run_rounded(opened, steps.parameters, batches, steps.trace)
    with tempfile.TemporaryDirectory(prefix="align-") as scratch:
        refuse_random_steps(opened, batches, steps.trace, rounded, Path(scratch) / "again")
        begun()
        noise, findings = measure_step_noise(opened, batches, steps.trace, Path(scratch) / "wide", layers=layers)
    begun()
    growth = shares_of(rounded.distances, ways_of(_own(steps.parameters), steps.trace))
    noise = replace(noise, growth=tuple(growth))
    return ReferenceSteps(steps, noise, findings)


def record_steps(opened: TrainingSide, batches: Sequence[Batch], folder: Path) -> RecordedSteps:
    """Take steps of a live side; raises CannotRunError for one that trains nothing."""
    parameters = trained_parameters(opened)
    reader, model = opened.side.reader, opened.side.model
    moments = last_moments(opened, len(batches))
    with recompute_noted() as noted, StepWriter(folder, reader.environment(), moments=moments) as writer:
        writer.start(reader.read_values(model))
        opened.trainer.take_steps(opened.training, batches, writer)
    return described_steps(opened, parameters, batches, writer.trace(), recomputes=bool(noted))


def last_moments(side: TrainingSide, steps: int) -> Callable[[int], Iterable[tuple[str, str, Array]]]:
    """What gives a StepWriter the moments of a side after the last of these steps."""

    def after(step: int) -> Iterator[tuple[str, str, Array]]:
        reader = side.side.reader
        for optimizer in side.training.optimizers if step == steps - 1 else ():
            if isinstance(reader, MomentReader):
                yield from reader.read_moments(optimizer, side.training.model)

    return after


def described_steps(
    opened: TrainingSide, parameters: ParameterSet, batches: Sequence[Batch], trace: StepTrace, *, recomputes: bool
) -> RecordedSteps:
    """Put beside the steps of a live side what is known of it."""
    reader, training = opened.side.reader, opened.training
    return RecordedSteps(
        opened.label,
        reader.name,
        reader.environment(),
        parameters,
        _at_these_rates(groups_of(opened, len(batches)), trace.rates),
        _loss(opened),
        training.step is not None,
        partial(_line_of_call, opened.side.model),
        batches,
        trace,
        recomputes,
    )


def trained_parameters(opened: TrainingSide) -> ParameterSet:
    """Read all parameters; raises CannotRunError if none is trainable."""
    found = opened.side.reader.read_parameters(opened.side.model, opened.label)
    if not any(one.trainable for one in found.parameters):
        raise CannotRunError.of("training_error.nothing_trainable", side=opened.label, count=len(found.parameters))
    return found


def groups_of(opened: TrainingSide, steps: int) -> dict[str, ParameterGroup]:
    """The group of each parameter, with its rates step by step, of the whole schedule."""
    reader = opened.side.reader
    by_parameter: dict[str, ParameterGroup] = {}
    if not isinstance(reader, OptimizerReader):
        return by_parameter
    for optimizer in opened.training.optimizers:
        schedulers = reader.schedulers_of(optimizer, ())
        groups = reader.read_groups(optimizer, opened.training.model, schedulers, max(steps + 1, USUAL_STEPS))
        wanted = steps_to_sample(one.rates for one in groups)
        if wanted > USUAL_STEPS:
            groups = reader.read_groups(optimizer, opened.training.model, schedulers, wanted)
        for group in groups:
            by_parameter |= dict.fromkeys(group.names or (), group)
    return by_parameter


def _at_these_rates(
    groups: Mapping[str, ParameterGroup], rates: Mapping[str, Sequence[float]]
) -> Mapping[str, ParameterGroup]:
    """The groups with the rates that a loop has set by itself, where they are others than those of the schedule."""
    others: dict[tuple[int, tuple[float, ...]], ParameterGroup] = {}
    adjusted = {}
    for name, group in groups.items():
        set_rates = tuple(rates.get(name, ()))
        known = group.rates
        if not set_rates or known.problem or not known.values:
            adjusted[name] = group
            continue
        same = all(abs(rate - known.at(step)) <= SAME_SETTING_SHARE * abs(rate) for step, rate in enumerate(set_rates))
        set_by_loop = LearningRates((*set_rates, set_rates[-1]), by=BY_LOOP)
        adjusted[name] = group if same else others.setdefault((id(group), set_rates), replace(group, rates=set_by_loop))
    return adjusted


def _loss(opened: TrainingSide) -> LayerSettings | None:
    reader, loss = opened.side.reader, opened.training.loss
    if not (isinstance(reader, SettingsReader) and reader.owns(loss)):
        return None
    return reader.read_settings(loss)[0]


def _line_of_call(model: Model, path: str, *, calls: bool = False) -> str:
    return called_at(model, path) if calls else made_at(model, path)


def refuse_random_steps(
    side: TrainingSide,
    batches: Sequence[Batch],
    trace: UpdateTrace,
    free: FreeRun,
    folder: Path,
    start: Mapping[str, Array] = _NOTHING,
) -> None:
    """Take the first step again from another seed; raises CannotRunError if loss or gradients are then others.

    It is not taken again where the `free` run, which began from another seed too, shows that they stay the same. A step
    of the user's own is, and is refused too if it updates other parameters than before. `start` are the values that it
    began from, where they are not the side's own: then it was given other gradients at its updates, which may change
    what it computes behind the first of them, and is taken by itself from both seeds.
    """
    values, loss = trace.values(0, COMPUTED), trace.losses[0]
    if side.training.step is None and _shows_the_same(values, loss, free):
        return
    if start:
        alone = take_again(side, batches[:1], folder.with_name(f"{folder.name}-alone"), start)
        values, loss = alone.values(0, COMPUTED), alone.losses[0]
    with other_seed():
        again = take_again(side, batches[:1], folder, start)
    apart = _distance(values, again.values(0, COMPUTED))
    if side.training.step is not None:
        _refuse_kept(side, trace, (again, take_again(side, batches, folder.with_name(f"{folder.name}-all"), start)))
    if (apart is not None and apart > SAME_GRADIENTS_SHARE) or not _is_same_loss(loss, again.losses[0]):
        raise CannotRunError.of("training_error.step_draws", side=side.label, apart=apart)


def _shows_the_same(values: Mapping[str, Array], loss: Loss, free: FreeRun) -> bool:
    apart = _distance(values, free.first_gradients)
    return (
        apart is not None
        and apart <= SAME_GRADIENTS_SHARE
        and bool(free.losses)
        and _is_same_loss(loss, free.losses[0])
    )


def _is_same_loss(first: Loss, second: Loss) -> bool:
    """Tell so where one of them is not known too."""
    if first is None or second is None or not (np.isfinite(first) and np.isfinite(second)):
        return True
    return abs(first - second) <= SAME_GRADIENTS_SHARE * abs(first)


def _refuse_kept(side: TrainingSide, trace: UpdateTrace, takings: Sequence[UpdateTrace]) -> None:
    """Raise CannotRunError where a step updates other parameters than when it was taken first.

    Of a counter whatever its period is shows: one taking goes on behind all steps, the other one a step later.
    """
    for again in takings:
        for step in range(len(again.losses)):
            before, now = (one.names(step, GIVEN) for one in (trace, again))
            if before != now:
                counts = {"first": len(before), "later": len(now)}
                raise CannotRunError.of("training_error.step_changes", step=step + 1, side=side.label, **counts)


def _distance(ones: Mapping[str, Array], others: Mapping[str, Array]) -> float | None:
    """Relative distance of all gradients as one vector; None where there are none, or where they are not finite."""
    square = apart = 0.0
    for name in ones.keys() & others.keys():
        flat = ones[name].reshape(-1), others[name].reshape(-1)
        for block in blocks_of(len(flat[0])):
            one, other = flat[0][block].astype(np.float64), flat[1][block].astype(np.float64)
            with np.errstate(all="ignore"):  # infinities
                square, apart = square + float(np.sum(one**2)), apart + float(np.sum((one - other) ** 2))
    return float(np.sqrt(apart / square)) if square and np.isfinite(apart) and np.isfinite(square) else None


# A side left to itself: it goes on from its own values, and how far it comes is measured step by step.


def run_rounded(opened: TrainingSide, parameters: ParameterSet, batches: Sequence[Batch], trace: StepTrace) -> FreeRun:
    """Let a live side go on from where its recorded steps begin, with values that are rounded at random."""
    rounded = FreeRun(trace.values(0, BEFORE), partial(_from_itself, _own(parameters), trace), RandomRounding())
    take_freely(opened, batches, rounded)
    return rounded


class FreeRun(StepUnseen):
    """A StepSink that begins from values and goes on by itself, `moved` before each step if that is given.

    The gradients of parameters in its first step are kept.
    """

    def __init__(self, start: Mapping[str, Array], distance: Distance, moved: RandomRounding | None = None) -> None:
        self._values, self._distance, self._moved = start, distance, moved
        self.losses: list[float | None] = []
        self.distances: list[float] = []
        self.first_gradients = SpilledArrays()

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start where the last step ended."""
        if self._moved is None:
            return {} if step else self._values
        return MadeArrays({name: partial(self._moved, value) for name, value in self._values.items()})

    def computed(self, name: str, gradient: Array) -> None:
        """Add up what the ways back of the first step give."""
        if not self.losses:
            known = self.first_gradients.get(name)
            self.first_gradients[name] = gradient if known is None else known + gradient

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:
        """Measure how far it came."""
        self.losses.append(loss)
        if self._moved is not None:
            kept = SpilledArrays()
            for name, value in values:
                kept[name] = value
            self._values, values = kept, kept.items()
        self.distances.append(self._distance(step, values))


def take_freely(side: TrainingSide, batches: Sequence[Batch], run: FreeRun) -> None:
    """Take as many steps as the side can: the cause of what goes wrong only here is reported elsewhere.

    They start from another seed, so that random numbers show in them.
    """
    with other_seed(), suppress(UserCodeError):
        side.trainer.take_steps(side.training, batches, run)


def ways_of(names: set[str], trace: StepTrace) -> list[float]:
    """The way of the reference's parameters since its start, after each step."""
    start = trace.values(0, BEFORE)
    after = (trace.values(step, AFTER) for step in range(len(trace.losses)))
    return [sqrt(sum(squared_distance(start.get(name), own.get(name)) for name in sorted(names))) for own in after]


def _own(parameters: ParameterSet) -> set[str]:
    return {one.name for one in parameters.parameters if not one.buffer}


def _from_itself(names: set[str], reference: StepTrace, step: int, values: Iterable[tuple[str, Array]]) -> float:
    after = reference.values(step, AFTER)
    return sqrt(sum(squared_distance(after[name], value) for name, value in values if name in names))


def squared_distance(first: Array | None, second: Array | None) -> float:
    """The squared distance of two tensors; infinite where one is no number."""
    if first is None or second is None:
        return 0.0
    if "c" not in (first.dtype.kind, second.dtype.kind):
        with np.errstate(all="ignore"):
            square = moved_norm(first, second) ** 2
        if isfinite(square):
            return square
    figures = measure(first, second)
    return inf if figures.non_finite_mismatch else figures.rmse**2 * figures.count


def shares_of(distances: Sequence[float], ways: Sequence[float]) -> list[float | None]:
    """The distances over the ways, None where there is none, and behind the last step that could be taken."""
    known = (one / way if way and isfinite(way) else None for one, way in zip(distances, ways, strict=False))
    return filled([*known], len(ways))


def filled(values: Sequence[float | None], length: int) -> list[float | None]:
    """Fill up to as many values as there are steps, with None for those that could not be taken."""
    return [*values, *[None] * (length - len(values))]
