"""Whether steps start again with each epoch, as the data shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from align.curves.loss_log import Integers


def starts_again(steps: Integers, epochs: Integers) -> bool:
    """Tell whether the ranges of steps of two epochs overlap; both arrays have shape (records,)."""
    known, index = np.unique(epochs, return_inverse=True)
    first, last = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), -1)
    np.minimum.at(first, index, steps)
    np.maximum.at(last, index, steps)
    return bool(np.any(first[1:] <= last[:-1]))
