"""Neighbouring values of a curve are alike: they are averaged over blocks until the averages are not.

The blocking of Flyvbjerg and Petersen (J. Chem. Phys. 91, 461, 1989): blocks of 1, 2, 4 ... values, until neighbouring
averages are not positively correlated. Stopping at zero instead of at "not significant" makes blocks rather too long:
that costs power and keeps the false-alarm rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from align.core.curves import Floats


def block_means(values: Floats, length: int) -> Floats:
    """Average the last axis of `values` over blocks of `length`; what is left at the end is left out."""
    count = values.shape[-1] // length
    means: Floats = values[..., : count * length].reshape(*values.shape[:-1], count, length).mean(-1)
    return means


def independent_length(values: Floats, fewest: int, *, detrend: bool) -> int | None:
    """Return the shortest block length, a power of two, whose averages are uncorrelated with their neighbours.

    `values` has shape (..., points); correlations are averages over all other axes. `detrend` takes a straight line
    out first: what goes up or down steadily is no correlation. None if fewer than `fewest` blocks would be left.
    """
    length, means = 1, values
    while means.shape[-1] >= max(fewest, 2):
        around = means - _line(means) if detrend else means
        if np.vdot(around[..., 1:], around[..., :-1]) <= 0.0:
            return length
        length, means = 2 * length, block_means(means, 2)
    return None


def centred_times(count: int) -> Floats:
    """Return 0 ... count - 1 around their mean."""
    return np.arange(count) - (count - 1) / 2


def _line(values: Floats) -> Floats:
    times = centred_times(values.shape[-1])
    slope = values @ times / (times @ times)
    fitted: Floats = values.mean(-1, keepdims=True) + slope[..., None] * times
    return fitted
