"""The losses, layers and gradients of both sides, each against its limit."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from align.training.step_result import ComparedGradient, ComparedLayer, ComparedLoss
from align.training.steps.compare_values import judge_values, owners_of, paired_values
from align.training.steps.record_step import COMPUTED
from align.training.thresholds import LOSS_NOISE_FACTOR, LOSS_ROUNDING_SHARE, LOSS_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.parameters import ParameterSet
    from align.training.step_result import StepOutcome
    from align.training.steps.both_steps import SeenSteps
    from align.training.steps.compare_values import JudgedValue
    from align.training.steps.record_step import StepTrace
    from align.training.steps.step_precision import GradientsOfOne


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
    for one in paired_values(name_map, *(trace.values(0, COMPUTED) for trace in traces)):
        if one.meant is not None and one.value is not None and one.meant.ndim > 1:
            owners = mine.get(one.pairing.source, ""), theirs.get(one.pairing.target, "")
            yield owners, (one.meant, one.value)


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
