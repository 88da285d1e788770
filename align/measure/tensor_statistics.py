"""One tensor told by few numbers: its figures, and values of it at the same places for every tensor of one size.

The figures come in one pass over blocks that fit the cache: a trace without tensors keeps nothing else. One thread does
it: the framework's own keep the other cores busy for a while after each layer.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from math import isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import TensorStatistics
from align.measure.thresholds import MOST_PERMUTED_AXES, SAMPLED_ELEMENTS, STATISTICS_BLOCK, STATISTICS_PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array


_ONES = {np.dtype(dtype): np.ones(STATISTICS_PIECE, dtype) for dtype in (np.float32, np.float64)}


def summarize_tensor(value: Array, *, magnitude: bool = False) -> TensorStatistics:
    """Figures of the finite elements, and how many are not; those of complex values are of their absolute values.

    The sum of absolute values takes another pass, and is had only if asked for.

    Sums run in the tensor's dtype inside a piece (float32 at least) and in float64 across pieces: they are good to
    about six digits, for the eye and for alarms, not for a verdict.
    """
    sums = _Sums(magnitude=magnitude)
    for block in _blocks(value.reshape(-1)):
        sums.add(_as_plain_floats(block))
    if not sums.count:
        return TensorStatistics(None, None, None, None, sums.nan, sums.inf)
    mean, rms = sums.sum / sums.count, sqrt(sums.squares / sums.count)
    return TensorStatistics(sums.low, sums.high, mean, rms, sums.nan, sums.inf, sums.magnitude)


def _blocks(flat: Array) -> Iterator[Array]:
    """Blocks of whole pieces, and what is left."""
    whole = flat.size - flat.size % STATISTICS_PIECE
    for start in range(0, whole, STATISTICS_BLOCK):
        yield flat[start : min(start + STATISTICS_BLOCK, whole)]
    if whole < flat.size:
        yield flat[whole:]


class _Sums:
    def __init__(self, *, magnitude: bool) -> None:
        self.magnitude = 0.0 if magnitude else None
        self.low, self.high = float("inf"), float("-inf")
        self.sum = self.squares = 0.0
        self.count = self.nan = self.inf = 0

    def add(self, block: Array) -> None:
        low, high = _range(block)
        if 1e-15 < max(-low, high) < 1e15 and isfinite(low + high):
            self._add(block.size, (low, high), _products(block))
            self._add_magnitude(block)
            return
        # Seldom: squares of float32 would overflow or vanish, or some elements are not finite.
        self.nan += int(np.isnan(block).sum())
        self.inf += int(np.isinf(block).sum())
        wide = block[np.isfinite(block)].astype(np.float64)
        if wide.size:
            with np.errstate(over="ignore"):  # of float64 beyond 1e154
                self._add(wide.size, _range(wide), (float(wide.sum()), float(np.square(wide).sum())))
                self._add_magnitude(wide)

    def _add(self, count: int, extremes: tuple[float, float], sums: tuple[float, float]) -> None:
        self.count += count
        self.low, self.high = min(self.low, extremes[0]), max(self.high, extremes[1])
        self.sum += sums[0]
        self.squares += sums[1]

    def _add_magnitude(self, block: Array) -> None:
        if self.magnitude is not None:
            self.magnitude += float(np.abs(block).sum(dtype=np.float64))


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


def sample_values(value: Array) -> NDArray[np.float64]:
    """Return up to 4096 values in float64; none of what is no number."""
    flat = np.asarray(value).reshape(-1)
    chosen = flat if flat.size <= SAMPLED_ELEMENTS else flat[_places(flat.size)]
    return chosen.astype(np.float64) if chosen.dtype.kind in "fiubV" else np.zeros(0)


@lru_cache(maxsize=1024)
def _places(size: int) -> NDArray[np.int64]:
    return np.random.default_rng(size).integers(0, size, SAMPLED_ELEMENTS)


def axis_orders(value: Array, places: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """Yield each order of the axes with what stands at these flat places then; of too many axes to try, their own."""
    orders = permutations(range(value.ndim)) if value.ndim <= MOST_PERMUTED_AXES else [tuple(range(value.ndim))]
    for order in orders:
        turned = value.transpose(order)
        yield order, turned[np.unravel_index(places, turned.shape)].astype(np.float64)


def relative_rms_distance(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Root mean square of the difference as a share of that of the first; infinite for unlike sizes and NaN."""
    if one.shape != two.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        share = float(np.sqrt(np.mean((one - two) ** 2) / np.mean(one**2)))
    return share if share == share else float("inf")
