"""The figures of one tensor in one pass over blocks that fit the cache: a trace without tensors keeps nothing else.

One thread does it: the framework's own keep the other cores busy for a while after each layer.
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.trace_metadata import TensorStatistics
from align.measure.thresholds import STATISTICS_BLOCK, STATISTICS_PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array

_ONES = {np.dtype(dtype): np.ones(STATISTICS_PIECE, dtype) for dtype in (np.float32, np.float64)}


def summarize_tensor(value: Array) -> TensorStatistics:
    """Figures of the finite elements, and how many are not; those of complex values are of their absolute values.

    Sums run in the tensor's dtype inside a piece (float32 at least) and in float64 across pieces: they are good to
    about six digits, for the eye and for alarms, not for a verdict.
    """
    sums = _Sums()
    for block in _blocks(value.reshape(-1)):
        sums.add(_as_plain_floats(block))
    if not sums.count:
        return TensorStatistics(None, None, None, None, sums.nan, sums.inf)
    mean, rms = sums.sum / sums.count, sqrt(sums.squares / sums.count)
    return TensorStatistics(sums.low, sums.high, mean, rms, sums.nan, sums.inf)


def _blocks(flat: Array) -> Iterator[Array]:
    """Blocks of whole pieces, and what is left."""
    whole = flat.size - flat.size % STATISTICS_PIECE
    for start in range(0, whole, STATISTICS_BLOCK):
        yield flat[start : min(start + STATISTICS_BLOCK, whole)]
    if whole < flat.size:
        yield flat[whole:]


class _Sums:
    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")
        self.sum = self.squares = 0.0
        self.count = self.nan = self.inf = 0

    def add(self, block: Array) -> None:
        low, high = _range(block)
        if 1e-15 < max(-low, high) < 1e15 and isfinite(low + high):
            self._add(block.size, (low, high), _products(block))
            return
        # Seldom: squares of float32 would overflow or vanish, or some elements are not finite.
        self.nan += int(np.isnan(block).sum())
        self.inf += int(np.isinf(block).sum())
        wide = block[np.isfinite(block)].astype(np.float64)
        if wide.size:
            with np.errstate(over="ignore"):  # of float64 beyond 1e154
                self._add(wide.size, _range(wide), (float(wide.sum()), float(np.square(wide).sum())))

    def _add(self, count: int, extremes: tuple[float, float], sums: tuple[float, float]) -> None:
        self.count += count
        self.low, self.high = min(self.low, extremes[0]), max(self.high, extremes[1])
        self.sum += sums[0]
        self.squares += sums[1]


def _range(block: Array) -> tuple[float, float]:
    return float(np.minimum.reduce(block)), float(np.maximum.reduce(block))


def _products(block: Array) -> tuple[float, float]:
    """The sum, and the sum of squares, both as products: BLAS adds up three times as fast as `sum`."""
    pieces = block.reshape(-1, 1, min(block.size, STATISTICS_PIECE))
    ones = _ONES[block.dtype][: pieces.shape[2]]
    sums, squares = np.matmul(pieces, ones), np.matmul(pieces, pieces.transpose(0, 2, 1))
    return sum(sums.ravel().tolist()), sum(squares.ravel().tolist())


def _as_plain_floats(block: Array) -> Array:
    if block.dtype.kind == "c":
        block = np.abs(block)
    if block.dtype in (np.float32, np.float64):
        return block
    return block.astype(np.float32 if block.dtype.itemsize <= 2 and block.dtype.kind in "fV" else np.float64)
