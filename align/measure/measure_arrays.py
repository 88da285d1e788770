"""All figures of two arrays, with NumPy alone: one pass, in blocks that stay in the cache.

Values are widened before they are subtracted; integers are subtracted without wrap-around; NaN and Inf are counted
first and kept out of the sums. All temporaries live in the kernel and are used again: a kernel belongs to one thread.
Blocks are large for the sake of threads, which hand the interpreter lock on at every operation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from align.measure.running_sums import LOWEST_DECADE, RunningSums, decade
from align.measure.thresholds import LONGEST_DOT, MEASURED_BLOCK, PEEKED_ELEMENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.measurements import Measurement


def measure(reference: Array, candidate: Array) -> Measurement:
    """Compare two arrays of one shape and any dtypes, element by element.

    Raises ValueError if the shapes differ: nothing is ever broadcast. Temporary memory is about a megabyte unless an
    array is not contiguous, which is then copied.
    """
    if reference.shape != candidate.shape:
        msg = f"shapes differ: {reference.shape} and {candidate.shape}"
        raise ValueError(msg)
    sums = RunningSums()
    NumpyKernel(min(MEASURED_BLOCK, 2 * max(reference.size, 1))).add(sums, reference.ravel(), candidate.ravel())
    return sums.result(reference.shape)


class NumpyKernel:
    """Adds pairs of flat, contiguous arrays of any dtypes to sums; memory for `block` elements, some 25 bytes each."""

    def __init__(self, block: int = MEASURED_BLOCK) -> None:
        self.block = block
        self._x, self._y, self._difference, self._scratch = np.empty((4, block))
        self._flags = np.empty(block, np.bool_)

    def add(self, sums: RunningSums, left: Array, right: Array, start: int = 0) -> None:
        """Add all pairs of `left` (the reference) and `right`; `start` is the flat index of their first element."""
        step = self.block // 2 if "c" in (left.dtype.kind, right.dtype.kind) else self.block
        with np.errstate(all="ignore"):
            for begin in range(0, left.size, step):
                ours, theirs = left[begin : begin + step], right[begin : begin + step]
                same = _same_bits(ours, theirs)
                sums.identical &= same
                if not (same and self._add_equal(sums, ours)):
                    self._add_block(sums, ours, theirs, start + begin)

    def _add_equal(self, sums: RunningSums, values: Array) -> bool:
        """Add a block that is the same on both sides; False, and nothing added, if it holds NaN or Inf."""
        x = _widened(values, self._x)
        square = _dot(x, x)
        if not math.isfinite(square):
            return False
        sums.count += x.size
        sums.finite += x.size
        sums.reference_square += square
        sums.candidate_square += square
        sums.product += square
        if largest := self._largest(x):
            sums.reference_max = max(sums.reference_max, largest)
            sums.add_relative(0.0)
        return True

    def _add_block(self, sums: RunningSums, left: Array, right: Array, start: int) -> None:
        x, y = _widened(left, self._x), _widened(right, self._y)
        difference = self._absolute_difference(left, right, x, y)
        total = float(difference.sum())
        finite = x.size
        if not math.isfinite(total):  # so if either side has NaN or Inf anywhere
            finite = _take_out_non_finite(sums, x, y, difference)
            total = float(difference.sum())
        sums.count += x.size
        sums.finite += finite
        self._add_differences(sums, difference, total, start)
        self._add_magnitudes(sums, x, y, difference)

    def _absolute_difference(self, left: Array, right: Array, x: Array, y: Array) -> NDArray[np.float64]:
        """|left - right| as float64, where x and y are both widened; integers are subtracted exactly first."""
        out: NDArray[np.float64] = self._difference[: x.size]
        if left.dtype.kind in "iu" and right.dtype.kind in "iu":
            out[:] = _integer_difference(left, right)
        elif "c" in x.dtype.kind + y.dtype.kind:
            np.abs(y - x, out=out)
        else:
            np.subtract(y, x, out=out)
            np.abs(out, out=out)
        return out

    def _add_differences(self, sums: RunningSums, difference: NDArray[np.float64], total: float, start: int) -> None:
        worst = int(difference.argmax())
        largest = float(difference[worst])
        if largest == 0.0:
            return
        sums.add_largest(largest, start + worst)
        sums.absolute += total
        sums.square += _dot(difference, difference)
        self._add_decades(sums, difference, largest)

    def _add_decades(self, sums: RunningSums, difference: NDArray[np.float64], largest: float) -> None:
        """Count from the largest down: a few comparisons of all elements cost less than one logarithm of each."""
        flags = self._flags[: difference.size]
        moved, counted = int(np.count_nonzero(np.greater(difference, 0.0, out=flags))), 0
        sums.mismatched += moved
        for power in range(decade(largest), 0, -1):
            above = int(np.count_nonzero(np.greater_equal(difference, 10.0 ** (power + LOWEST_DECADE), out=flags)))
            sums.decades[power] += above - counted
            counted = above
            if counted == moved:
                return
        sums.decades[0] += moved - counted

    def _add_magnitudes(self, sums: RunningSums, x: Array, y: Array, difference: NDArray[np.float64]) -> None:
        sums.reference_square += _dot(x, x)
        sums.candidate_square += _dot(y, y)
        sums.product += _dot(x, y)
        largest = self._largest(x)
        if largest == 0.0:
            return
        sums.reference_max = max(sums.reference_max, largest)
        size = self._scratch[: x.size]  # where `_largest` has left |x|
        relative = np.divide(difference, size, out=self._y[: x.size])
        worst = float(relative[relative.argmax()])
        if not math.isfinite(worst):  # a reference of zero somewhere
            some = size > 0.0
            worst = float((difference[some] / size[some]).max())
        sums.add_relative(worst)

    def _largest(self, x: Array) -> float:
        """The largest |x|; leaves them all in the scratch memory."""
        size = np.abs(x, out=self._scratch[: x.size])
        return float(size[size.argmax()])


def _same_bits(left: Array, right: Array) -> bool:
    """Tell whether all bits are equal; most unlike blocks show it in their first elements."""
    if left.dtype != right.dtype or left[:PEEKED_ELEMENTS].tobytes() != right[:PEEKED_ELEMENTS].tobytes():
        return False
    raw = f"u{min(left.itemsize, 8)}"
    return bool(np.array_equal(left.view(raw), right.view(raw)))


def _widened(values: Array, memory: NDArray[np.float64]) -> Array:
    """The values as float64 or complex128 in the given memory."""
    out: Array = memory.view(np.complex128) if values.dtype.kind == "c" else memory
    out = out[: values.size]
    out[:] = values
    return out


def _dot(x: Array, y: Array) -> float:
    """Real part of the sum of x times conjugate y, in pieces that wake no threads."""
    if x.dtype != y.dtype:
        x, y = x.real, y.real  # a real number times a complex one
    elif x.dtype.kind == "c":
        x, y = x.view(np.float64), y.view(np.float64)
    whole = x.size - x.size % LONGEST_DOT
    total = float(np.dot(x[whole:], y[whole:]))
    if whole:
        total += float(np.matmul(x[:whole].reshape(-1, 1, LONGEST_DOT), y[:whole].reshape(-1, LONGEST_DOT, 1)).sum())
    return total


def _take_out_non_finite(sums: RunningSums, x: Array, y: Array, difference: NDArray[np.float64]) -> int:
    """Count NaN and Inf, set such pairs to 0 in place, and return how many pairs are left."""
    both = np.isfinite(x) & np.isfinite(y)
    for side, values in enumerate((x, y)):
        nan = np.isnan(values)
        sums.nan[side] += int(nan.sum())
        sums.inf[side] += int((np.isinf(values) & ~nan).sum())
    alike = (np.isnan(x) & np.isnan(y)) | (x == y)
    unlike = int((~both & ~alike).sum())
    sums.non_finite_mismatch += unlike
    sums.mismatched += unlike
    for values in (x, y, difference):
        values[~both] = 0.0
    return int(both.sum())


def _integer_difference(left: Array, right: Array) -> NDArray[np.float64]:
    """Larger minus smaller modulo 2^64, which is exact."""
    if left.dtype != right.dtype:
        common = np.promote_types(left.dtype, right.dtype)
        if common.kind == "f":  # uint64 and a signed dtype: no integer dtype holds both
            signed, unsigned = (left, right) if left.dtype.kind == "i" else (right, left)
            below_zero = -np.minimum(signed, 0).astype(np.float64)
            return _integer_difference(np.maximum(signed, 0).astype(np.uint64), unsigned) + below_zero
        left, right = left.astype(common), right.astype(common)
    high, low = np.maximum(left, right), np.minimum(left, right)
    exact: NDArray[np.float64] = (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    return exact
