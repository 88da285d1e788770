"""Neighbouring values of a curve are alike: they are averaged over blocks until the averages are not.

The blocking of Flyvbjerg and Petersen (J. Chem. Phys. 91, 461, 1989): blocks of 1, 2, 4 ... values, until neighbouring
averages are not positively correlated. Stopping at zero instead of at "not significant" makes blocks rather too long,
which costs power and keeps the false-alarm rate, but for a slow wander that fast jitter hides
(docs/loss-statistics.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria_thresholds import SUM_ROUNDING

if TYPE_CHECKING:
    from align.curves.loss_log import Floats


class Blocks(NamedTuple):
    """Averages over blocks of `length` values, shape (..., blocks), and the correlation of neighbours."""

    length: int
    means: Floats
    correlation: float


def average_blocks(values: Floats, fewest: int, *, detrend: bool) -> Blocks:
    """Average the last axis of `values` over the shortest blocks that are uncorrelated with their neighbours.

    Correlations are taken over all other axes together. `detrend` takes a straight line out first: what goes up or down
    steadily is no correlation. Where no length does that leaves `fewest` blocks, the correlation stays above 0.
    """
    length, means = 1, values
    correlation = _correlation(means, detrend)
    while correlation > 0.0 and means.shape[-1] // 2 >= fewest:
        pairs = means.shape[-1] // 2
        length, means = 2 * length, means[..., : 2 * pairs].reshape(*means.shape[:-1], pairs, 2).mean(-1)
        correlation = _correlation(means, detrend)
    return Blocks(length, means, correlation)


def centred_times(count: int) -> Floats:
    """Return 0 ... count - 1 around their mean."""
    return np.arange(count) - (count - 1) / 2


def _correlation(values: Floats, detrend: bool) -> float:
    around = values - _line(values) if detrend and values.shape[-1] > 1 else values
    whole = float(np.vdot(around, around))
    if whole <= SUM_ROUNDING**2 * float(np.vdot(values, values)):
        return 0.0
    return float(np.vdot(around[..., 1:], around[..., :-1])) / whole


def _line(values: Floats) -> Floats:
    times = centred_times(values.shape[-1])
    slope = values @ times / (times @ times)
    fitted: Floats = values.mean(-1, keepdims=True) + slope[..., None] * times
    return fitted
