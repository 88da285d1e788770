"""Both sides left to themselves from the reference's start, and how far apart they come: what rounding explains of it.

Training is chaotic: two right sides part, each step by more. So the reference is run once more with its values rounded
at random before each step, and how far that brings it from itself is shown beside. Single steps may differ by more
than rounding, as two places of Adam's epsilon make them: that is shown too. Parameters are held against the reference's
trace as they come; only the rounded run keeps its own, to go on from them.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import sqrt
from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.training.step_result import FreeStep
from align.training.steps.compare_values import paired_value
from align.training.steps.free_run import FreeRun, filled, shares_of, squared_distance, take_freely, ways_of
from align.training.steps.record_step import AFTER
from align.training.thresholds import FREE_RUN_FACTOR, FREE_RUN_LEAST_SHARE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.record_step import StepTrace

    Distance = Callable[[int, Iterable[tuple[str, Array]]], float]
    Pairings = dict[str, list[Pairing]]


def run_candidate_freely(seen: SeenSteps) -> FreeRun | None:
    """Let a live candidate go on by itself from the reference's values; None for one that was recorded apart."""
    if seen.live is None:
        return None
    run = FreeRun(seen.start, partial(_from_candidate, _parameters(seen), seen.traces[0]))
    take_freely(seen.live, seen.sides[0].batches, run)
    return run


def compare_free_runs(seen: SeenSteps, run: FreeRun | None) -> tuple[FreeStep, ...]:
    """Put the candidate's free run beside the reference; what was recorded apart from it is a free run too.

    So is what was seen of the reference; of a live candidate each step is from the reference's state and under its
    gradients.
    """
    traces, pairings = seen.traces, _parameters(seen)
    ways = ways_of({one.source for group in pairings.values() for one in group}, traces[0])
    steps = [*_steps(pairings, traces)]
    losses, distances, single = traces[1].losses, steps, []
    if run is not None:
        losses, distances, single = run.losses, run.distances, [*accumulate(steps)]
    shares = shares_of(distances, ways), filled(seen.noise.growth, len(ways)), shares_of(single, ways)
    rows = zip(traces[0].losses, filled(losses, len(ways)), *shares, strict=True)
    return tuple(FreeStep(number, *row) for number, row in enumerate(rows, 1))


def free_run_findings(free: Sequence[FreeStep]) -> Iterator[Finding]:
    """Say if the candidate parts from the reference by far more than rounding and its single steps explain."""
    for one in free:
        explained = max((one.noise or 0.0) + (one.single_steps or 0.0), FREE_RUN_LEAST_SHARE)
        if one.apart is not None and one.noise is not None and not one.apart <= FREE_RUN_FACTOR * explained:
            facts: dict[str, float | int | str] = {"apart": one.apart, "explained": explained}
            message = sentence("run_finding.apart", step=one.step, **facts)
            yield Finding("free-run-apart", "note", "free run", message, facts)
            return


def _steps(pairings: Pairings, traces: tuple[StepTrace, StepTrace]) -> Iterator[float]:
    """How far apart both sides are after each recorded step."""
    for step in range(len(traces[0].losses)):
        yield _from_candidate(pairings, traces[0], step, traces[1].values(step, AFTER).items())


def _parameters(seen: SeenSteps) -> Pairings:
    """The pairings of the reference's parameters, by the candidate's names."""
    own = {one.name for one in seen.parameters[0].parameters if not one.buffer}
    found: Pairings = {}
    for one in seen.names.pairings:
        if one.source in own:
            found.setdefault(one.target, []).append(one)
    return found


def _from_candidate(pairings: Pairings, reference: StepTrace, step: int, values: Iterable[tuple[str, Array]]) -> float:
    whole, after = 0.0, reference.values(step, AFTER)
    for name, value in values:
        pairs = (paired_value(one, after.get(one.source), value) for one in pairings.get(name, ()))
        whole += sum(squared_distance(one.meant, one.value) for one in pairs if one is not None)
    return sqrt(whole)
