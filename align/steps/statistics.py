"""The figures of one tensor in one pass over blocks that fit the cache: a trace without tensors keeps nothing else.

A model runs on all cores; so do the figures of its large tensors, or they would take longer than the layers themselves.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.capturing import Statistics

if TYPE_CHECKING:
    from align.core.dtypes import Array

BLOCK = 1 << 16
# Smaller tensors are done before another thread would have begun.
WORTH_THREADS = 4 * BLOCK
MOST_THREADS = 8
# NumPy hands longer products to threads of BLAS, which can stall on a busy machine.
LONGEST_PRODUCT = 8192


def summarize_tensor(value: Array) -> Statistics:
    """Figures of the finite elements, and how many are not; those of complex values are of their absolute values.

    Sums run in the tensor's dtype inside a block (float32 at least) and in float64 across blocks: they are good to
    about six digits, for the eye and for alarms, not for a verdict.
    """
    flat = value.reshape(-1)
    if flat.size < WORTH_THREADS:
        return _result([_summed(flat)])
    count = min(os.cpu_count() or 1, MOST_THREADS)
    return _result([*_threads().map(_summed, np.array_split(flat, count))])


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, "align-statistics")


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


def _summed(flat: Array) -> _Sums:
    sums = _Sums()
    for start in range(0, flat.size, BLOCK):
        sums.add(_as_plain_floats(flat[start : start + BLOCK]))
    return sums


def _result(parts: list[_Sums]) -> Statistics:
    count, nan, inf = (sum(getattr(part, name) for part in parts) for name in ("count", "nan", "inf"))
    if not count:
        return Statistics(None, None, None, None, nan, inf)
    mean, rms = sum(part.sum for part in parts) / count, sqrt(sum(part.squares for part in parts) / count)
    return Statistics(min(part.low for part in parts), max(part.high for part in parts), mean, rms, nan, inf)


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
