"""All figures of two arrays, with NumPy alone: one pass, in blocks that stay in the cache.

Values are widened before they are subtracted; integers are subtracted without wrap-around; NaN and Inf are counted
first and kept out of the sums. All temporaries live in the kernel and are used again: a kernel belongs to one thread.
Blocks are large for the sake of threads, which hand the interpreter lock on at every operation. What was found so far
are sums that merge: whoever adds, and in whatever order, the figures are the same but for the rounding of float64
additions; of equal largest differences the first in C order counts.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.core.traces import Measurement
from align.measure.thresholds import LONGEST_DOT, MEASURED_BLOCK, PEEKED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array

DECADES = 32  # format: the field `decades` of documents
LOWEST_DECADE = -16  # format: the field `decades` of documents


def measure(reference: Array, candidate: Array) -> Measurement:
    """Compare two arrays of one shape and any dtypes, element by element.

    Raises ValueError if the shapes differ: nothing is ever broadcast. Temporary memory is about a megabyte unless an
    array is not contiguous, which is then copied.
    """
    if reference.shape != candidate.shape:
        msg = f"shapes differ: {reference.shape} and {candidate.shape}"
        raise ValueError(msg)
    sums = RunningSums()
    make = _make_kernel.get()
    if make is None or reference.size < MEASURED_BLOCK:
        kernel = NumpyKernel(min(MEASURED_BLOCK, 2 * max(reference.size, 1)))
    else:
        kernel = make()
    kernel.add(sums, reference.ravel(), candidate.ravel())
    return sums.result(reference.shape)


_make_kernel: ContextVar[Callable[[], NumpyKernel] | None] = ContextVar("make_kernel", default=None)


@contextmanager
def measured_by(make: Callable[[], NumpyKernel]) -> Iterator[None]:
    """Have `measure` take larger arrays with the kernels that `make` gives, for as long as the block runs."""
    token = _make_kernel.set(make)
    try:
        yield
    finally:
        _make_kernel.reset(token)


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


@dataclass(slots=True)
class RunningSums:
    """Sums over the elements seen; those of differences and magnitudes are over finite pairs only.

    `worst` is the flat index of `max_abs`. `identical` says whether all that was seen is equal bit for bit.
    """

    count: int = 0
    finite: int = 0
    max_abs: float = 0.0
    worst: int = 0
    max_rel: float | None = None
    absolute: float = 0.0
    square: float = 0.0
    reference_square: float = 0.0
    candidate_square: float = 0.0
    product: float = 0.0
    reference_max: float = 0.0
    nan: list[int] = field(default_factory=lambda: [0, 0])
    inf: list[int] = field(default_factory=lambda: [0, 0])
    non_finite_mismatch: int = 0
    mismatched: int = 0
    decades: NDArray[np.int64] = field(default_factory=lambda: np.zeros(DECADES, dtype=np.int64))
    identical: bool = True

    def merge(self, other: RunningSums) -> None:
        """Take in what another pass has found in other elements."""
        if other.max_abs > 0.0:
            self.add_largest(other.max_abs, other.worst)
        if other.max_rel is not None:
            self.add_relative(other.max_rel)
        self.reference_max = max(self.reference_max, other.reference_max)
        self.nan = [ours + theirs for ours, theirs in zip(self.nan, other.nan, strict=True)]
        self.inf = [ours + theirs for ours, theirs in zip(self.inf, other.inf, strict=True)]
        self.decades += other.decades
        self.identical &= other.identical
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_largest(self, difference: float, index: int) -> None:
        """Note a block's largest difference and its flat index."""
        if (difference, -index) > (self.max_abs, -self.worst):
            self.max_abs, self.worst = difference, index

    def add_relative(self, largest: float) -> None:
        """Note a block's largest relative difference."""
        self.max_rel = max(self.max_rel or 0.0, largest)

    def result(self, shape: tuple[int, ...]) -> Measurement:
        """Return the figures of arrays of this shape."""
        reference_norm, norm = math.sqrt(self.reference_square), math.sqrt(self.candidate_square)
        cosine = _quotient(self.product, reference_norm * norm)
        number = max(self.finite, 1)
        return Measurement(
            count=self.count,
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            mean_abs=self.absolute / number,
            rmse=math.sqrt(self.square / number),
            relative_l2=_quotient(math.sqrt(self.square), reference_norm),
            cosine=None if cosine is None else max(-1.0, min(1.0, cosine)),
            reference_max=self.reference_max,
            reference_rms=math.sqrt(self.reference_square / number),
            nan_reference=self.nan[0],
            nan_candidate=self.nan[1],
            inf_reference=self.inf[0],
            inf_candidate=self.inf[1],
            non_finite_mismatch=self.non_finite_mismatch,
            mismatched=self.mismatched,
            worst=tuple(int(i) for i in np.unravel_index(self.worst, shape)) if self.max_abs > 0 else (),
            decades=tuple(int(n) for n in self.decades),
        )


_ADDED = (
    "count", "finite", "absolute", "square", "reference_square", "candidate_square", "product", "non_finite_mismatch",
    "mismatched",
)  # fmt: skip


def decade(value: float) -> int:
    """Bin of a positive difference; of infinity, the last one."""
    bin_number = math.floor(math.log10(value)) - LOWEST_DECADE if math.isfinite(value) else DECADES
    return min(max(bin_number, 0), DECADES - 1)


def _quotient(dividend: float, divisor: float) -> float | None:
    """None where it is undefined: by zero, or of sums that float64 values beyond 1e154 have made infinite."""
    quotient = dividend / divisor if divisor > 0 else math.nan
    return quotient if math.isfinite(quotient) else None
