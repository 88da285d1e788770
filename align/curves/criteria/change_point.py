"""Where a difference leaves its limit and stays: the stretch of a curve over which it is most outside.

Each point scores by how far it is outside (above zero) or inside (below), at most 1 either way, so that no single
point outweighs another. The stretch with the largest sum is the one that a CUSUM chart (Page, Biometrika 41, 100,
1954) would mark: where it starts is the maximum-likelihood change point for scores of two known distributions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria_thresholds import AGREEING_SCORE, EXCURSION_WEIGHT

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Floats


class Stretch(NamedTuple):
    """The indices of the first and the last point of a stretch that is outside; `ended`: what follows it agrees."""

    first: int
    last: int
    ended: bool = False


def find_stretch(difference: Floats, limit: Floats, within: Booleans) -> Stretch | None:
    """Find the stretch over which sizes of `difference` are most beyond `limit`; None if there are only excursions.

    All have shape (points,). A point without a limit (NaN) counts by `within` alone. Where the difference is zero up
    to a step and outside its limit from there on, the stretch starts exactly there.
    """
    totals = np.concatenate([[0.0], np.cumsum(score_points(difference, limit, within))])
    lowest = np.minimum.accumulate(totals)
    end = int(np.argmax(totals - lowest))
    if not totals[end] - lowest[end] > (0.0 if end == len(difference) else EXCURSION_WEIGHT):
        return None
    first = int(np.flatnonzero(totals[:end] == lowest[end])[-1])
    rest = totals[-1] - totals[end]
    return Stretch(first, end - 1, bool(rest < -EXCURSION_WEIGHT and rest < AGREEING_SCORE * (len(difference) - end)))


def score_points(difference: Floats, limit: Floats, within: Booleans | None = None) -> Floats:
    """Return how far each point, shape (points,), is beyond its limit, in limits, from -1 to 1.

    What has no such score is 1, or -1 where it is `within` its limit.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        beyond = np.abs(difference) / limit - 1.0
    extreme = 1.0 if within is None else np.where(within, -1.0, 1.0)
    scores: Floats = np.clip(np.where(np.isnan(beyond), extreme, beyond), -1.0, 1.0)
    return scores
