"""Running statistics of a layer that a step calls several times: by which momentum each side follows its batches.

Each call mixes in the statistics of what it is given, which the reference's inputs tell. So the momentum of a side is
the one number with which all calls, one after another, lead to the values after the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.training.steps.gradient_relations import UNKNOWN, GradientRelation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.dtypes import Array

LEFT = 1e-3  # of how far they moved, as for a layer that is called once
GRID = 256  # momenta that are tried first
ROUNDS = 48
CHANNELS = 1  # the axis of what a normalisation is given; else the last one
SAME = 5e-3  # of two momenta


def relate_repeated(before: Array, meant: Array, value: Array, inputs: Sequence[Array]) -> GradientRelation:
    """Say by which momenta both sides come from `before` to their values, given what the layer was called with.

    A momentum is the share of each batch, as in torch. Nothing is told of a layer that is called once.
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
    if abs(mine - theirs) <= SAME * mine:
        return UNKNOWN
    cause = "statistics-momentum-swapped" if abs(mine + theirs - 1.0) <= SAME else "statistics-momentum"
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

    places = np.linspace(0.0, 1.0, GRID + 1)
    near = float(places[int(np.argmin([missed(float(one)) for one in places]))])
    low, high = max(0.0, near - 1.0 / GRID), min(1.0, near + 1.0 / GRID)
    for _ in range(ROUNDS):
        third = (high - low) / 3
        low, high = (low, high - third) if missed(low + third) < missed(high - third) else (low + third, high)
    found = (low + high) / 2
    return found if missed(found) <= LEFT * moved else None
