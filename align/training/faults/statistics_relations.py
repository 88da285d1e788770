"""How running statistics after a step follow from the right ones: another momentum, another variance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.training.steps.gradient_relations import UNKNOWN, GradientRelation

if TYPE_CHECKING:
    from align.core.dtypes import Array

# What is left of the values, relative to how far they moved, where a relation holds.
LEFT = 1e-3
# A momentum m gives the share m of a batch's statistics: 9 times as much is 0.9 in the place of 0.1.
SWAPPED = 9.0


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
    if np.abs(own_moved - factor * moved).max() <= LEFT * np.abs(own_moved).max():
        swapped = abs(factor - SWAPPED) < LEFT * SWAPPED or abs(factor - 1 / SWAPPED) < LEFT
        cause = "statistics-momentum-swapped" if swapped else "statistics-momentum"
        return GradientRelation(cause, {"factor": float(f"{factor:.4g}")})
    columns = np.stack([old, right], axis=1)
    (share, ratio), *_ = np.linalg.lstsq(columns, own, rcond=None)
    if np.abs(columns @ [share, ratio] - own).max() <= LEFT * np.abs(own_moved).max():
        return GradientRelation("statistics-of-another-kind", {"ratio": float(f"{ratio:.6g}")})
    return UNKNOWN
