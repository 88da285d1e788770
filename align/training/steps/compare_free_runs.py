"""Both sides left to themselves from the reference's start, and how far apart they come: what rounding explains of it.

Training is chaotic: two right sides part, each step by more. So the reference is run once more with its values rounded
at random before each step, and how far that brings it from itself is shown beside. Single steps may differ by more
than rounding, as two places of Adam's epsilon make them: that is shown too. Parameters are held against the reference's
trace as they come; only the rounded run keeps its own, to go on from them.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.verdicts import Finding
from align.errors import UserCodeError
from align.measure.measure_arrays import measure
from align.training.step_result import FreeStep
from align.training.steps.compare_values import paired_value
from align.training.steps.measure_step_noise import RandomRounding
from align.training.steps.record_step import AFTER
from align.training.watch_step import LayersUnseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.steps.both_steps import SeenSteps, StepTask
    from align.training.steps.record_step import StepTrace

    Distance = Callable[[int, Iterable[tuple[str, Array]]], float]
    Pairings = dict[str, list[Pairing]]

# How often what explains it a free run may be apart. The clean pairs of tests/planted/step_nets.py come to 1.02 in four
# steps of SGD, momentum and Adam, to 7 in 20 steps of Adam and in 8 of SGD at a rate that diverges: what differs grows.
# A port that computes with the weights of the step before comes to 2,700 in two steps.
FAR = 100.0
# What rounding explains at least, as a share of the way: values that are 0 are not moved by it.
LEAST = 1e-6


def compare_free_runs(task: StepTask, seen: SeenSteps) -> tuple[FreeStep, ...]:
    """Run the candidate freely from the reference's values.

    What was seen of the reference is a free run of it; of the candidate each step is from the reference's state and
    under its gradients.
    """
    traces, pairings = seen.traces, _parameters(task.sides[0], seen.names)
    candidate = _FreeRun(seen.start, partial(_from_candidate, pairings, traces[0]))
    _take(task.sides[1], task.batches, candidate)
    own = {one.source for group in pairings.values() for one in group}
    start = task.sides[0].side.reader.read_values(task.sides[0].training.model)
    rounded = _FreeRun(start, partial(_from_itself, own, traces[0]), RandomRounding())
    _take(task.sides[0], task.batches, rounded)
    ways = _ways(task.sides[0], own, traces[0])
    distances = candidate.distances, rounded.distances, [*_single_steps(pairings, traces)]
    shares = zip(*(_shares(own, ways) for own in distances), strict=True)
    losses = zip(range(1, len(ways) + 1), traces[0].losses, _filled(candidate.losses, len(ways)), strict=True)
    return tuple(FreeStep(*one, *own) for one, own in zip(losses, shares, strict=True))


def free_run_findings(free: Sequence[FreeStep]) -> Iterator[Finding]:
    """Say if the candidate parts from the reference by far more than rounding and its single steps explain."""
    for one in free:
        explained = max((one.noise or 0.0) + (one.single_steps or 0.0), LEAST)
        if one.apart is not None and one.noise is not None and not one.apart <= FAR * explained:
            message = f"left to itself, the candidate is apart by {one.apart:.2g} of the reference's way after step"
            message = f"{message} {one.step}; rounding and what single steps differ by explain {explained:.2g}"
            yield Finding("free-run-apart", "note", "free run", message, {"apart": one.apart, "explained": explained})
            return


class _FreeRun(LayersUnseen):
    """A StepSink that begins from values and goes on by itself, `moved` before each step if that is given."""

    def __init__(self, start: Mapping[str, Array], distance: Distance, moved: RandomRounding | None = None) -> None:
        self._values, self._distance, self._moved = start, distance, moved
        self.losses: list[float | None] = []
        self.distances: list[float] = []

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:  # noqa: ARG002
        """Start where the last step ended."""
        if self._moved is None:
            return {} if step else self._values
        return {name: self._moved(value) for name, value in self._values.items()}

    def computed(self, name: str, gradient: Array) -> None:
        """Nothing: gradients are the side's own."""

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:  # noqa: ARG002
        """Let the optimizer have them."""
        return {}

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:
        """Measure how far it came."""
        self.losses.append(loss)
        if self._moved is not None:
            self._values = {name: np.array(value) for name, value in values}
            values = self._values.items()
        self.distances.append(self._distance(step, values))


def _single_steps(pairings: Pairings, traces: tuple[StepTrace, StepTrace]) -> Iterator[float]:
    """What the steps from the reference's state differ by, added up."""
    steps = range(len(traces[0].losses))
    apart = (_from_candidate(pairings, traces[0], step, traces[1].values(step, AFTER).items()) for step in steps)
    return accumulate(apart)


def _take(side: TrainingSide, batches: Sequence[Batch], run: _FreeRun) -> None:
    """Take as many steps as the side can: what goes wrong only here has gone wrong by what is told elsewhere."""
    try:
        side.trainer.take_steps(side.training, batches, run)
    except UserCodeError:
        return


def _parameters(side: TrainingSide, names: NameMap) -> Pairings:
    """The pairings of the reference's parameters, by the candidate's names."""
    parameters = side.side.reader.read_parameters(side.training.model, side.label).parameters
    own = {one.name for one in parameters if not one.buffer}
    found: Pairings = {}
    for one in names.pairings:
        if one.source in own:
            found.setdefault(one.target, []).append(one)
    return found


def _ways(side: TrainingSide, names: set[str], trace: StepTrace) -> list[float]:
    """The way of the reference's parameters since its start, after each step."""
    start = side.side.reader.read_values(side.training.model)
    after = (trace.values(step, AFTER) for step in range(len(trace.losses)))
    return [sqrt(sum(_square(start.get(name), own.get(name)) for name in sorted(names))) for own in after]


def _from_candidate(pairings: Pairings, reference: StepTrace, step: int, values: Iterable[tuple[str, Array]]) -> float:
    whole, after = 0.0, reference.values(step, AFTER)
    for name, value in values:
        pairs = (paired_value(one, after.get(one.source), value) for one in pairings.get(name, ()))
        whole += sum(_square(one.meant, one.value) for one in pairs if one is not None)
    return sqrt(whole)


def _from_itself(names: set[str], reference: StepTrace, step: int, values: Iterable[tuple[str, Array]]) -> float:
    after = reference.values(step, AFTER)
    return sqrt(sum(_square(after[name], value) for name, value in values if name in names))


def _square(one: Array | None, other: Array | None) -> float:
    """The squared distance of two tensors; infinite where one is no number."""
    if one is None or other is None:
        return 0.0
    figures = measure(one, other)
    return inf if figures.non_finite_mismatch else figures.rmse**2 * figures.count


def _shares(distances: Sequence[float], ways: Sequence[float]) -> list[float | None]:
    """The distances over the ways, None where there is none, and behind the last step that could be taken."""
    known = (one / way if way and isfinite(way) else None for one, way in zip(distances, ways, strict=False))
    return _filled([*known], len(ways))


def _filled(values: Sequence[float | None], length: int) -> list[float | None]:
    return [*values, *[None] * (length - len(values))]
