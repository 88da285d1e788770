"""A side left to itself: it goes on from its own values, and how far it comes is measured step by step."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.errors import UserCodeError
from align.measure.measure_arrays import measure
from align.models.restore_state import other_seed
from align.models.spilled_arrays import MadeArrays, SpilledArrays
from align.training.steps.measure_step_noise import RandomRounding
from align.training.steps.record_step import AFTER, BEFORE
from align.training.updates.apply_rule import moved_norm
from align.training.watch_step import StepUnseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.parameters import ParameterSet
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.steps.record_step import StepTrace

    Distance = Callable[[int, Iterable[tuple[str, Array]]], float]


def run_rounded(opened: TrainingSide, parameters: ParameterSet, batches: Sequence[Batch], trace: StepTrace) -> FreeRun:
    """Let a live side go on from where its recorded steps begin, with values that are rounded at random."""
    rounded = FreeRun(trace.values(0, BEFORE), partial(_from_itself, _own(parameters), trace), RandomRounding())
    take_freely(opened, batches, rounded)
    return rounded


def rounding_growth(rounded: FreeRun, parameters: ParameterSet, trace: StepTrace) -> tuple[float | None, ...]:
    """How far a side that was rounded at random came from its recorded steps, over the way of these."""
    return tuple(shares_of(rounded.distances, ways_of(_own(parameters), trace)))


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


def squared_distance(one: Array | None, other: Array | None) -> float:
    """The squared distance of two tensors; infinite where one is no number."""
    if one is None or other is None:
        return 0.0
    if "c" not in (one.dtype.kind, other.dtype.kind):
        with np.errstate(all="ignore"):
            square = moved_norm(one, other) ** 2
        if isfinite(square):
            return square
    figures = measure(one, other)
    return inf if figures.non_finite_mismatch else figures.rmse**2 * figures.count


def shares_of(distances: Sequence[float], ways: Sequence[float]) -> list[float | None]:
    """The distances over the ways, None where there is none, and behind the last step that could be taken."""
    known = (one / way if way and isfinite(way) else None for one, way in zip(distances, ways, strict=False))
    return filled([*known], len(ways))


def filled(values: Sequence[float | None], length: int) -> list[float | None]:
    """As many as there are steps: None for those that could not be taken."""
    return [*values, *[None] * (length - len(values))]
