"""Steps of a side that were recorded, with what is known of it: its model may be here, or on another machine."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from align.core.protocols import OptimizerReader, SettingsReader
from align.core.training import MomentReader
from align.errors import CannotRunError, UsageError
from align.lint.compare_schedules import steps_to_sample
from align.lint.thresholds import USUAL_STEPS
from align.models.call_lines import called_at
from align.models.inputs import read_batches
from align.models.recompute_layers import recompute_noted
from align.models.source_lines import made_at
from align.training.steps.free_run import rounding_growth, run_rounded
from align.training.steps.measure_step_noise import measure_step_noise
from align.training.steps.record_step import StepTrace, StepWriter
from align.training.steps.refuse_random_steps import refuse_random_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.layer_settings import LayerSettings, ParameterGroup
    from align.core.parameters import ParameterSet
    from align.core.protocols import Batch, Model
    from align.core.verdicts import Finding
    from align.models.inputs import InputsSource
    from align.training.open_training import TrainingSide
    from align.training.steps.measure_step_noise import StepNoise


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
    given = read_batches(batch)
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
    noise = replace(noise, growth=rounding_growth(rounded, steps.parameters, steps.trace))
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
        _groups(opened, len(batches)),
        _loss(opened),
        training.step is not None,
        partial(_line, opened.side.model),
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


def _groups(opened: TrainingSide, steps: int) -> dict[str, ParameterGroup]:
    """The group of each parameter, with its rates step by step, of the whole schedule."""
    reader = opened.side.reader
    found: dict[str, ParameterGroup] = {}
    if not isinstance(reader, OptimizerReader):
        return found
    for optimizer in opened.training.optimizers:
        schedulers = reader.schedulers_of(optimizer, ())
        groups = reader.read_groups(optimizer, opened.training.model, schedulers, max(steps + 1, USUAL_STEPS))
        wanted = steps_to_sample(one.rates for one in groups)
        if wanted > USUAL_STEPS:
            groups = reader.read_groups(optimizer, opened.training.model, schedulers, wanted)
        for group in groups:
            found |= dict.fromkeys(group.names or (), group)
    return found


def _loss(opened: TrainingSide) -> LayerSettings | None:
    reader, loss = opened.side.reader, opened.training.loss
    if not (isinstance(reader, SettingsReader) and reader.owns(loss)):
        return None
    return reader.read_settings(loss)[0]


def _line(model: Model, path: str, *, calls: bool = False) -> str:
    return called_at(model, path) if calls else made_at(model, path)
