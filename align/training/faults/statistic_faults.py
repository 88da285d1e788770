"""Running statistics that are others after a step on the same tensors: another momentum, another variance.

Each call of a layer mixes in the statistics of what it is given, which the reference's inputs show. Where a step calls
it several times, the momentum of a side is the one number with which all calls, one by one, lead to its values.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.training.faults.find_step_faults import value_culprits, values_by_themselves
from align.training.steps.compare_values import judge_values, owners_of, paired_values
from align.training.steps.gradient_relations import UNKNOWN, GradientRelation
from align.training.steps.record_step import AFTER
from align.training.thresholds import (
    MOMENTUM_GRID,
    MOMENTUM_ROUNDS,
    MOMENTUM_TOLERANCE,
    STATISTIC_ROUNDING_SHARE,
    SWAPPED_MOMENTUM_RATIO,
    UNEXPLAINED_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.training.step_result import StepCulprit
    from align.training.steps.both_steps import SeenSteps


CHANNELS = 1  # format: the axis of what a normalisation is given; else the last one


def statistic_culprits(seen: SeenSteps, owners: Mapping[str, str]) -> list[StepCulprit]:
    """Running statistics after the first step on the reference's tensors."""
    buffers = {one.name for one in seen.parameters[0].parameters if one.buffer}
    after = {name: value for name, value in seen.traces[0].values(0, AFTER).items() if name in buffers}
    held = {name: value for name, value in seen.first.after.items() if value.dtype.kind == "f"}
    pairs = [one for one in paired_values(seen.names, after, held) if one.meant is not None and one.value is not None]
    found = []
    judged = judge_values(iter(pairs), seen.noise.alone, (0, AFTER), alone=True, coarser=seen.precision_of)
    for pair, one in zip(pairs, judged, strict=True):
        before = seen.start.get(pair.pairing.target)
        if one.factor > 1.0 and before is not None and pair.meant is not None and pair.value is not None:
            if np.abs(pair.value - pair.meant).max() <= STATISTIC_ROUNDING_SHARE * _size_of_inputs(
                seen, pair.pairing.source
            ):
                continue  # a mean of nearly nothing, of large values that cancel
            relation = relate_statistics(before, pair.meant, pair.value)
            if not relation.cause:
                inputs = _inputs_of(seen, pair.pairing.source)
                relation = relate_repeated(before, pair.meant, pair.value, inputs)
            found.append(replace(one, relation=relation))
    if not seen.live:
        found = values_by_themselves(found, seen.judge.seen, owners)
    return value_culprits(found, "buffer", "layer", owners)


def _size_of_inputs(seen: SeenSteps, buffer: str) -> float:
    """The root mean square of what the layer of a statistic was given, or its square if that is more."""
    values = _inputs_of(seen, buffer)
    square = max((float(np.mean(one.astype(np.float64) ** 2)) for one in values), default=0.0)
    return max(sqrt(square), square)


def _inputs_of(seen: SeenSteps, buffer: str) -> list[Array]:
    """What the layer of a statistic was given, call by call."""
    module = owners_of(seen.parameters[0]).get(buffer, "")
    trace = seen.traces[0].forward
    return [trace.value(one) for one in trace.inputs if one.module == module and is_float(one.dtype)]


def relate_statistics(before: Array, meant: Array, value: Array) -> GradientRelation:
    """Say how the values after a step follow from those meant, with what both began from.

    A running statistic is (1 - m) x before + m x that of the batch. With other m it moves by another multiple; with a
    variance over n in the place of n - 1, the batch's share is another one.
    """
    old, right, own = (one.astype(np.float64).reshape(-1) for one in (before, meant, value))
    if not old.shape == right.shape == own.shape:
        return UNKNOWN
    moved, own_moved = right - old, own - old
    if not own_moved.any():
        return GradientRelation("statistics-kept") if moved.any() else UNKNOWN
    if not moved.any():
        return GradientRelation("statistics-not-kept")
    factor = float(moved @ own_moved) / float(moved @ moved)
    if np.abs(own_moved - factor * moved).max() <= UNEXPLAINED_SHARE * np.abs(own_moved).max():
        swapped = (
            abs(factor - SWAPPED_MOMENTUM_RATIO) < UNEXPLAINED_SHARE * SWAPPED_MOMENTUM_RATIO
            or abs(factor - 1 / SWAPPED_MOMENTUM_RATIO) < UNEXPLAINED_SHARE
        )
        cause = "statistics-momentum-swapped" if swapped else "statistics-momentum"
        return GradientRelation(cause, {"factor": float(f"{factor:.4g}")})
    columns = np.stack([old, right], axis=1)
    (share, ratio), *_ = np.linalg.lstsq(columns, own, rcond=None)
    if np.abs(columns @ [share, ratio] - own).max() <= UNEXPLAINED_SHARE * np.abs(own_moved).max():
        return GradientRelation("statistics-of-another-kind", {"ratio": float(f"{ratio:.6g}")})
    return UNKNOWN


def relate_repeated(before: Array, meant: Array, value: Array, inputs: Sequence[Array]) -> GradientRelation:
    """Say by which momenta both sides come from `before` to their values, given what the layer was called with.

    A momentum is the share of each batch, as in torch. Nothing is said of a layer that is called once.
    """
    if len(inputs) < 2 or before.ndim != 1 or not before.shape == meant.shape == value.shape:
        return UNKNOWN
    start, *ends = (one.astype(np.float64) for one in (before, meant, value))
    for statistics in _statistics(inputs, len(before)):
        momenta = [_momentum(start, one, statistics) for one in ends]
        if momenta[0] is not None and momenta[1] is not None:
            return _relation(momenta[0], momenta[1])
    return UNKNOWN


def _relation(mine: float, theirs: float) -> GradientRelation:
    if abs(mine - theirs) <= MOMENTUM_TOLERANCE * mine:
        return UNKNOWN
    cause = "statistics-momentum-swapped" if abs(mine + theirs - 1.0) <= MOMENTUM_TOLERANCE else "statistics-momentum"
    return GradientRelation(cause, {"share of the batch": f"{mine:.3g} vs {theirs:.3g}"})


def _statistics(inputs: Sequence[Array], channels: int) -> Iterator[list[Array]]:
    """Means of all batches, then their variances over n - 1 and over n."""
    rows = [_by_channel(one, channels) for one in inputs]
    known = [one for one in rows if one is not None and one.shape[1] > 1]
    if len(known) < len(rows):
        return
    yield [one.mean(axis=1) for one in known]
    for less in (1, 0):
        yield [one.var(axis=1, ddof=less) for one in known]


def _by_channel(values: Array, channels: int) -> Array | None:
    """One row for each channel, in float64."""
    axes = [axis for axis in (CHANNELS, values.ndim - 1) if axis < values.ndim and values.shape[axis] == channels]
    if not axes:
        return None
    return np.moveaxis(values, axes[0], 0).reshape(channels, -1).astype(np.float64)


def _momentum(before: Array, after: Array, statistics: Sequence[Array]) -> float | None:
    """The momentum that leads from one to the other, None if there is none."""
    moved = np.abs(after - before).max()

    def missed(momentum: float) -> float:
        reached = before
        for one in statistics:
            reached = (1.0 - momentum) * reached + momentum * one
        return float(np.abs(reached - after).max())

    places = np.linspace(0.0, 1.0, MOMENTUM_GRID + 1)
    near = float(places[int(np.argmin([missed(float(one)) for one in places]))])
    low, high = max(0.0, near - 1.0 / MOMENTUM_GRID), min(1.0, near + 1.0 / MOMENTUM_GRID)
    for _ in range(MOMENTUM_ROUNDS):
        third = (high - low) / 3
        low, high = (low, high - third) if missed(low + third) < missed(high - third) else (low + third, high)
    found = (low + high) / 2
    return found if missed(found) <= UNEXPLAINED_SHARE * moved else None
