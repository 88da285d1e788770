"""The losses, layers and gradients of both sides, each against its limit, and how far apart both come when left alone.

Training is chaotic: two right sides part, each step by more. So the reference is run once more with its values rounded
at random before each step, and how far that brings it from itself is shown beside. Single steps may differ by more
than rounding, as two places of Adam's epsilon make them: that is shown too. Parameters are held against the reference's
trace as they come; only the rounded run keeps its own, to go on from them.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import isfinite, sqrt
from typing import TYPE_CHECKING

from align.core.verdicts import Finding
from align.training.step_result import ComparedGradient, ComparedLayer, ComparedLoss, FreeStep
from align.training.steps.compare_values import judge_values, owners_of, paired_value, paired_values, values_of_both
from align.training.steps.free_run import FreeRun, filled, shares_of, squared_distance, take_freely, ways_of
from align.training.steps.record_step import AFTER, COMPUTED
from align.training.thresholds import (
    FREE_RUN_FACTOR,
    FREE_RUN_LEAST_SHARE,
    LOSS_NOISE_FACTOR,
    LOSS_ROUNDING_SHARE,
    LOSS_SHARE,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.training.step_result import StepOutcome
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue
    from align.training.steps.record_step import StepTrace
    from align.training.steps.step_precision import GradientsOfOne

    Distance = Callable[[int, Iterable[tuple[str, Array]]], float]
    Pairings = dict[str, list[Pairing]]


def judged_gradients(seen: SeenSteps, values: Mapping[str, Array], what: str, *, alone: bool) -> list[JudgedValue]:
    """Hold the gradients of parameters in the first step against the reference's, each layer `alone` or the whole."""
    pairs = paired_values(seen.names, seen.traces[0].values(0, what), values)
    noise = seen.noise.alone if alone else seen.noise.together
    coarser = seen.precision_of if alone else lambda _: seen.precision.whole
    return [*judge_values(pairs, noise, (0, what), alone=alone, coarser=coarser)]


def gradients_with_owners(
    name_map: NameMap, parameters: tuple[ParameterSet, ParameterSet], traces: tuple[StepTrace, StepTrace]
) -> Iterator[GradientsOfOne]:
    """Yield the gradients of the first step that both sides have, with the modules of their parameters.

    Of weights only: that of a bias before a normalisation is what sums leave, few bits of it that any dtype holds.
    """
    mine, theirs = (owners_of(one) for one in parameters)
    for pairing, meant, value in values_of_both(name_map, *(trace.values(0, COMPUTED) for trace in traces)):
        if meant.ndim > 1:
            yield (mine.get(pairing.source, ""), theirs.get(pairing.target, "")), (meant, value)


def compared_losses(seen: SeenSteps) -> Iterator[ComparedLoss]:
    """Yield the losses of all steps; one that is no number has no limit, nor have later ones of sides apart."""
    first, second = seen.traces
    wide = seen.noise.losses
    for number, (mine, theirs) in enumerate(zip(first.losses, second.losses, strict=False)):
        limit = None
        if mine is not None and isfinite(mine) and (seen.live or not number):
            known = wide[number] if number < len(wide) else None
            limit = LOSS_SHARE * abs(mine)
            if known is not None and isfinite(known):
                limit = max(LOSS_NOISE_FACTOR * abs(known - mine), LOSS_ROUNDING_SHARE * abs(mine))
            limit = max(limit, seen.precision.loss_share * abs(mine))
        alone = seen.first.loss if seen.live and not number else None
        yield ComparedLoss(number + 1, mine, theirs, alone, limit)


def compared_layers(seen: SeenSteps) -> Iterator[ComparedLayer]:
    """Yield each paired call with the worst factors of what it makes by itself."""
    worst: dict[tuple[str, int, str], float] = {}
    for one in seen.judge.seen:
        if (one.way == "forward") == (one.own.role == "output"):
            key = one.own.module, one.own.call, one.way
            worst[key] = max(worst.get(key, 0.0), one.factor)
    for pair in seen.calls.pairs:
        a, b = pair.reference, pair.candidate
        own = (b.module, b.call)
        yield ComparedLayer(
            a.module, b.module, a.class_name, b.class_name, b.call, a.depth,
            worst.get((*own, "forward")), worst.get((*own, "backward")),
        )  # fmt: skip


def compared_gradients(
    alone: Sequence[JudgedValue], together: Sequence[JudgedValue], owners: Mapping[str, str]
) -> Iterator[ComparedGradient]:
    """Yield each paired parameter; what decides is the layer alone."""
    gathered = {(one.pairing.source, one.pairing.target): one for one in together}
    for one in alone:
        names = one.pairing.source, one.pairing.target
        whole = gathered.get(names, one)
        outcome: StepOutcome = "could not tell" if one.is_noise else "not aligned" if one.factor > 1.0 else "aligned"
        yield ComparedGradient(
            *names, owners.get(names[1], ""), outcome, whole.measurement, whole.limit, whole.factor, one.factor,
            *whole.norms,
        )  # fmt: skip


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
