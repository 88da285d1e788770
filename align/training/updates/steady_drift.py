"""A difference that is below rounding in each element, and the same share of the value in all of them: a weight decay.

With the rates of fine-tuning (2e-5 times a decay of 0.01) one step takes about one unit in the last place off a value.
Rounding errors go both ways and cancel over many elements, a decay does not. So the share of its value that an element
lost, over all steps, is estimated from all elements and held against the error of that estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.dtypes import Array

DEVIATIONS = 8.0  # rounding goes beyond that many of its own standard deviations in one of 1e15 cases
ROUNDING = 1.0  # units in the last place: the deviation of a step, of at most four roundings of 0.29 each


def drift_excess(gaps: Sequence[Array], others: Sequence[Array], values: Array, places: Array, dtype: str) -> float:
    """By how many limits all elements together drift in proportion to their values; up to 1 it is rounding.

    `gaps` are the differences of the movements of each step, `others` what these may be for another reason than
    rounding of the value, `values` those before the first step, and `places` their units in the last place. A factor
    of the value is itself rounded, alike for all elements: half an epsilon for each step is no drift.
    """
    total, rest = np.sum(gaps, axis=0), np.sum(others, axis=0)
    judged = np.isfinite(total) & np.isfinite(rest) & (values != 0)
    relative = np.where(judged, values / places, 0.0)
    weight = float(relative @ relative)
    if not weight:
        return 0.0
    scaled = [np.where(judged, one / places, 0.0) for one in (total, rest)]
    drift = abs(float(scaled[0] @ relative)) / weight
    allowed = float(scaled[1] @ np.abs(relative)) / weight
    chance = DEVIATIONS * ROUNDING * np.sqrt(len(gaps) / weight)
    return float(drift / (allowed + chance + len(gaps) * EPSILON[dtype] / 2))
