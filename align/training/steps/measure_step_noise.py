"""The reference's own rounding in a training step: the same step in float64, by itself and layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON, dtype_name
from align.core.protocols import ModelRunner
from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.models.spilled_arrays import MadeArrays, SpilledArrays
from align.traces.rounding_noise import NoiseSink, noise_of
from align.training.steps.record_step import AFTER, COMPUTED, GIVEN, StepWriter, UpdateTrace, value_capture
from align.training.steps.replace_step import ReplacedStep, Themselves
from align.training.thresholds import OWN_SEED, WIDE_STEP_SHARE
from align.training.updates.apply_rule import blocks_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.protocols import Batch
    from align.core.training import Training
    from align.traces.trace_folder import TraceFolder
    from align.training.open_training import TrainingSide
    from align.training.steps.record_step import StepTrace
    from align.training.steps.replace_step import ReplacedTensor

WIDE = "float64"
UNMEASURED = "noise-unmeasured"


@dataclass(frozen=True, slots=True)
class StepNoise:
    """What a step in float64 differs by from the ordinary one.

    Of what layers take and return (`forward`) and of the gradients that come back to it (`backward`), each layer alone,
    by the keys of captures; of gradients and values of parameters (`alone`, and `together` where errors gather through
    the whole step, by the keys of `value_capture`); and of the loss of each step. `gathered_forward` and
    `gathered_backward` are those of layers where errors gather, of captured steps only. `growth` is how far the side
    comes from itself, step by step, when it is left to itself and rounded at random: over the way of its parameters.
    """

    forward: Mapping[str, Measurement] = field(default_factory=dict)
    backward: Mapping[str, Measurement] = field(default_factory=dict)
    alone: Mapping[str, Measurement] = field(default_factory=dict)
    together: Mapping[str, Measurement] = field(default_factory=dict)
    gathered_forward: Mapping[str, Measurement] = field(default_factory=dict)
    gathered_backward: Mapping[str, Measurement] = field(default_factory=dict)
    losses: tuple[float | None, ...] = ()
    growth: tuple[float | None, ...] = ()


def measure_step_noise(
    opened: TrainingSide, batches: Sequence[Batch], trace: StepTrace, folder: Path, *, layers: bool = False
) -> tuple[StepNoise, tuple[Finding, ...]]:
    """Take the reference's steps in float64; where it cannot, with values rounded at random, and a finding says why.

    Rounding at random moves each element by up to a unit in the last place: what a layer is given, its parameters, the
    gradients that come back to it. That shows how much of it reaches what the layer makes, not what the layer adds.
    With `layers`, noise that gathers is measured for them too.
    """
    noise = partial(_noise, opened, batches, trace, folder, layers=layers)
    try:
        wide = _widened(opened)
        if isinstance(wide, str):
            return noise(opened.training, ""), _unmeasured(opened, wide)
        found = noise(wide, WIDE)
        if opened.training.step is None or _is_rounding(found):
            return found, ()
        reason = sentence("run_finding.loop_differs")
        return noise(opened.training, ""), _unmeasured(opened, reason)
    except UserCodeError as error:
        return noise(opened.training, ""), _unmeasured(opened, error.message)


def _is_rounding(noise: StepNoise) -> bool:
    """Tell whether gradients of the whole steps are as far apart as rounding may bring them, all as one vector."""
    apart = sum(one.rmse**2 * one.count for one in noise.together.values())
    whole = sum(one.reference_rms**2 * one.count for one in noise.together.values())
    return not apart > WIDE_STEP_SHARE**2 * whole


def _noise(  # noqa: PLR0913 - a side and its steps
    opened: TrainingSide,
    batches: Sequence[Batch],
    trace: StepTrace,
    folder: Path,
    training: Training,
    dtype: str,
    *,
    layers: bool,
) -> StepNoise:
    """Take the steps in another dtype, or with rounded values for ""."""
    forward: dict[str, Measurement] = {}
    backward: dict[str, Measurement] = {}

    def seen(tensor: ReplacedTensor) -> float:
        if tensor.meant is not None and tensor.value is not None:
            own = forward if tensor.way == "forward" else backward
            own |= noise_of(tensor.capture, tensor.meant, tensor.value, dtype)
        return 0.0

    moved = np.asarray if dtype else RandomRounding()
    start = SpilledArrays()
    for name, one in ({} if dtype else opened.side.reader.read_values(training.model)).items():
        start[name] = moved(one)
    alone = ReplacedStep(trace, Themselves(trace), seen, start, moved)
    opened.trainer.take_steps(training, batches[:1], alone)

    def begun(step: int) -> Mapping[str, Array]:
        if not step:
            return start
        return MadeArrays({name: partial(moved, one) for name, one in trace.values(step - 1, AFTER).items()})

    folder = folder if dtype else folder.with_name(f"{folder.name}-moved")
    with StepWriter(folder, {}, seen=int(layers), begun=begun) as writer:
        opened.trainer.take_steps(training, batches, writer)
    together = UpdateTrace(folder, writer.losses)
    of_values = _of_values(trace, alone.computed_gradients, (COMPUTED, 0), dtype)
    of_values |= _of_values(trace, alone.after, (AFTER, 0), dtype)
    gathered: dict[str, Measurement] = {}
    for step in range(len(batches)):
        for what in (COMPUTED, GIVEN):
            gathered |= _of_values(trace, together.values(step, what), (what, step), dtype)
    noise = StepNoise(forward, backward, of_values, gathered, losses=tuple(writer.losses))
    return _with_layers(noise, trace, writer.trace(), dtype) if layers else noise


def _with_layers(noise: StepNoise, trace: StepTrace, together: StepTrace, dtype: str) -> StepNoise:
    return replace(
        noise,
        gathered_forward=_of_layers(trace.forward, together.forward, dtype),
        gathered_backward=_of_layers(trace.backward, together.backward, dtype),
    )


def _of_layers(ordinary: TraceFolder, other: TraceFolder, dtype: str) -> dict[str, Measurement]:
    """Of what layers took and returned in the whole step, or of the gradients that came back to it."""
    sink = NoiseSink(ordinary, dtype)
    for one in other.captures:
        sink.add(one, other.value(one))
    for one in other.inputs:
        sink.enter(one.module, one.call, {one.output: other.value(one)})
    return sink.noise


class RandomRounding:
    """Moves each element of a floating array by up to one unit in the last place, at random."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng(OWN_SEED)

    def __call__(self, value: Array) -> Array:
        """Return a copy that was moved."""
        unit = EPSILON.get(dtype_name(value.dtype))
        if unit is None:
            return value
        found, flat = np.empty(value.size, value.dtype), value.reshape(-1)
        for block in blocks_of(value.size):
            share = 1.0 + unit * self._generator.uniform(-1.0, 1.0, flat[block].shape)
            found[block] = (flat[block].astype(np.float64) * share).astype(value.dtype)
        return found.reshape(value.shape)


def _widened(opened: TrainingSide) -> Training | str:
    """The model and the loss in float64, without an optimizer; or why not."""
    training, reader = opened.training, opened.side.reader
    if training.step is not None and training.loss is None:
        return sentence("run_finding.no_loss")
    if not isinstance(reader, ModelRunner):
        return sentence("run_finding.cannot_run", framework=reader.name)
    model = reader.widened(training.model)
    loss = reader.widened(training.loss) if reader.owns(training.loss) else training.loss
    if model is None:
        return sentence("run_finding.cannot_run_wide", framework=reader.name)
    return replace(training, model=model, loss=loss, optimizer=None, step=None)


def _of_values(
    trace: StepTrace, values: Mapping[str, Array], which: tuple[str, int], dtype: str
) -> dict[str, Measurement]:
    found: dict[str, Measurement] = {}
    what, step = which
    ordinary = trace.values(step, what)
    for name in values.keys() & ordinary.keys():
        found |= noise_of(value_capture(name, step, what, ordinary[name]), ordinary[name], values[name], dtype)
    return found


def _unmeasured(opened: TrainingSide, reason: str) -> tuple[Finding, ...]:
    message = sentence("run_finding.rounded_at_random", reason=reason)
    return (Finding(UNMEASURED, "note", opened.label, message),)
