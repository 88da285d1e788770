"""The figures of one tensor in one pass over blocks that fit the cache: a trace without tensors keeps nothing else.

One thread does it: the framework's own keep the other cores busy for a while after each layer.
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.capturing import Statistics

if TYPE_CHECKING:
    from align.core.dtypes import Array

BLOCK = 1 << 16
# NumPy hands longer products to threads of BLAS, which can stall on a busy machine.
LONGEST_PRODUCT = 8192


def summarize_tensor(value: Array) -> Statistics:
    """Figures of the finite elements, and how many are not; those of complex values are of their absolute values.

    Sums run in the tensor's dtype inside a block (float32 at least) and in float64 across blocks: they are good to
    about six digits, for the eye and for alarms, not for a verdict.
    """
    flat = value.reshape(-1)
    sums = _Sums()
    for start in range(0, flat.size, BLOCK):
        sums.add(_as_plain_floats(flat[start : start + BLOCK]))
    if not sums.count:
        return Statistics(None, None, None, None, sums.nan, sums.inf)
    mean, rms = sums.sum / sums.count, sqrt(sums.squares / sums.count)
    return Statistics(sums.low, sums.high, mean, rms, sums.nan, sums.inf)


class _Sums:
    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")
        self.sum = self.squares = 0.0
        self.count = self.nan = self.inf = 0

    def add(self, block: Array) -> None:
        low, high = float(block.min()), float(block.max())
        if not (isfinite(low) and isfinite(high)):  # seldom: only then are elements looked at one by one
            nan, inf = int(np.isnan(block).sum()), int(np.isinf(block).sum())
            self.nan, self.inf = self.nan + nan, self.inf + inf
            block = block[np.isfinite(block)]
            if not block.size:
                return
            low, high = float(block.min()), float(block.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += block.size
        self.sum += float(block.sum())
        self.squares += _sum_of_squares(block, max(-low, high))


def _sum_of_squares(block: Array, largest: float) -> float:
    if not 1e-15 < largest < 1e15:  # squares of float32 would overflow, or vanish
        block = block.astype(np.float64)
    pieces = (block[start : start + LONGEST_PRODUCT] for start in range(0, block.size, LONGEST_PRODUCT))
    return sum(float(np.dot(piece, piece)) for piece in pieces)


def _as_plain_floats(block: Array) -> Array:
    if block.dtype.kind == "c":
        return np.abs(block)
    if block.dtype in (np.float32, np.float64):
        return block
    return block.astype(np.float32 if block.dtype.itemsize <= 2 and block.dtype.kind in "fV" else np.float64)
