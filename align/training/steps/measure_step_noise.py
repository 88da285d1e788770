"""The reference's own rounding in a training step: the same step in float64, by itself and layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.core.protocols import ModelRunner
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.traces.rounding_noise import noise_of
from align.training.steps.record_step import AFTER, COMPUTED, GIVEN, StepTrace, StepWriter, value_capture
from align.training.steps.replace_step import ReplacedStep, Themselves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.training.open_training import TrainingSide
    from align.training.steps.replace_step import ReplacedTensor

WIDE = "float64"


@dataclass(frozen=True, slots=True)
class StepNoise:
    """What a step in float64 differs by from the ordinary one.

    Of what layers take and return (`forward`) and of the gradients that come back to it (`backward`), each layer alone,
    by the keys of captures; of gradients and values of parameters (`alone`, and `together` where errors gather through
    the whole step, by the keys of `value_capture`); and of the loss of each step.
    """

    forward: Mapping[str, Measurement] = field(default_factory=dict)
    backward: Mapping[str, Measurement] = field(default_factory=dict)
    alone: Mapping[str, Measurement] = field(default_factory=dict)
    together: Mapping[str, Measurement] = field(default_factory=dict)
    losses: tuple[float | None, ...] = ()


def measure_step_noise(
    opened: TrainingSide, batches: Sequence[Batch], trace: StepTrace, folder: Path
) -> tuple[StepNoise | None, tuple[Finding, ...]]:
    """Take the reference's steps in float64; None, and a finding that says why, where it cannot."""
    try:
        wide = _widened(opened)
        if isinstance(wide, str):
            return None, _unmeasured(opened, wide)
        forward: dict[str, Measurement] = {}
        backward: dict[str, Measurement] = {}

        def seen(tensor: ReplacedTensor) -> float:
            if tensor.meant is not None and tensor.value is not None:
                own = forward if tensor.way == "forward" else backward
                own |= noise_of(tensor.capture, tensor.meant, tensor.value, WIDE)
            return 0.0

        alone = ReplacedStep(trace, Themselves(trace), seen)
        opened.trainer.take_steps(wide, batches[:1], alone)
        writer = StepWriter(folder, {}, seen=0, begun=lambda step: trace.values(step - 1, AFTER) if step else {})
        with writer:
            opened.trainer.take_steps(wide, batches, writer)
    except UserCodeError as error:
        return None, _unmeasured(opened, error.message)
    together = StepTrace(folder, writer.losses, writer.updates)
    of_values = _of_values(trace, alone.computed_gradients, COMPUTED, 0) | _of_values(trace, alone.after, AFTER, 0)
    gathered: dict[str, Measurement] = {}
    for step in range(len(batches)):
        for what in (COMPUTED, GIVEN):
            gathered |= _of_values(trace, together.values(step, what), what, step)
    return StepNoise(forward, backward, of_values, gathered, tuple(writer.losses)), ()


def _widened(opened: TrainingSide) -> Training | str:
    """The model and the loss in float64, without an optimizer; or why not."""
    training, reader = opened.training, opened.side.reader
    if training.step is not None and training.loss is None:
        return "a step of the user's own has no loss that could be run in float64"
    if not isinstance(reader, ModelRunner):
        return f"{reader.name} models cannot run"
    model = reader.widened(training.model)
    loss = reader.widened(training.loss) if reader.owns(training.loss) else training.loss
    if model is None:
        return f"{reader.name} models cannot run in float64"
    return replace(training, model=model, loss=loss, optimizer=None, step=None)


def _of_values(trace: StepTrace, wide: Mapping[str, Array], what: str, step: int) -> dict[str, Measurement]:
    found: dict[str, Measurement] = {}
    ordinary = trace.values(step, what)
    for name in wide.keys() & ordinary.keys():
        found |= noise_of(value_capture(name, step, what, ordinary[name]), ordinary[name], wide[name], WIDE)
    return found


def _unmeasured(opened: TrainingSide, reason: str) -> tuple[Finding, ...]:
    message = f"limits come from a table by dtype, since nothing was measured in float64: {reason}"
    return (Finding("noise-unmeasured", "note", opened.label, message),)
