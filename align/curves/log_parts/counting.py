"""How a log counts, by its printed steps: whether they start again with each epoch, and what the first is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.thresholds import PROVING_MULTIPLES

if TYPE_CHECKING:
    from align.curves.loss_log import Integers


def starts_again(steps: Integers, epochs: Integers) -> bool:
    """Tell whether the ranges of steps of two epochs overlap; both arrays have shape (records,)."""
    known, index = np.unique(epochs, return_inverse=True)
    first, last = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), -1)
    np.minimum.at(first, index, steps)
    np.maximum.at(last, index, steps)
    return bool(np.any(first[1:] <= last[:-1]))


def distance_from_zero(steps: Integers) -> int:
    """Return the number, 3 or more, of which all steps are one less than a multiple; 0 if there is none.

    What prints every 20th step shows 20, 40 ... where it counts from 1, and 19, 39 ... where it counts from 0.
    """
    distances = np.diff(steps)
    if not (distances > 0).all():
        steps = np.unique(steps)
        distances = np.diff(steps)
    if len(steps) < PROVING_MULTIPLES or (distance := int(distances.min())) < PROVING_MULTIPLES:
        return 0
    regular = not (distances % distance).any()
    return distance if regular and (int(steps[0]) + 1) % distance == 0 else 0
