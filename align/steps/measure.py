"""All figures of one comparison from a single blocked pass with float64 sums and bounded memory.

Values are widened before they are subtracted; integers are subtracted without wrap-around; NaN and Inf are counted
first and kept out of the sums. Multi-pass float32 figures, as usual elsewhere, give cosines above 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import Measurement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.core.dtypes import Array

# Elements. A float64 copy of a block then stays below the 128 KiB from which on the allocator asks the system for each
# temporary array anew, which made larger blocks twice as slow.
BLOCK = 1 << 13
DECADES = 32
LOWEST_DECADE = -16


def measure(reference: Array, candidate: Array) -> Measurement:
    """Compare two arrays of one shape and any dtypes, element by element.

    Raises ValueError if the shapes differ: nothing is ever broadcast. Temporary memory is a few megabytes unless an
    array is not contiguous, which is then copied.
    """
    if reference.shape != candidate.shape:
        msg = f"shapes differ: {reference.shape} and {candidate.shape}"
        raise ValueError(msg)
    left, right = reference.reshape(-1), candidate.reshape(-1)
    sums = _Sums()
    with np.errstate(all="ignore"):
        for start in range(0, left.size, BLOCK):
            sums.add(left[start : start + BLOCK], right[start : start + BLOCK], start)
    return sums.result(reference.shape)


@dataclass
class _Sums:
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

    def add(self, left: Array, right: Array, start: int) -> None:
        x, y = _widened(left), _widened(right)
        difference = _absolute_difference(left, right, x, y)
        finite = x.size
        if not math.isfinite(difference.sum()):  # so if either side has NaN or Inf anywhere
            both = np.isfinite(x) & np.isfinite(y)
            finite = int(both.sum())
            self._count_non_finite(x, y, both)
            x, y, difference = (np.where(both, values, 0.0) for values in (x, y, difference))
        self.count += x.size
        self.finite += finite
        self._add_differences(difference, start)
        self._add_magnitudes(x, y, difference)

    def _count_non_finite(self, x: Array, y: Array, both: Array) -> None:
        for side, values in enumerate((x, y)):
            nan = np.isnan(values)
            self.nan[side] += int(nan.sum())
            self.inf[side] += int((np.isinf(values) & ~nan).sum())
        alike = (np.isnan(x) & np.isnan(y)) | (x == y)
        unlike = int((~both & ~alike).sum())
        self.non_finite_mismatch += unlike
        self.mismatched += unlike

    def _add_differences(self, difference: NDArray[np.float64], start: int) -> None:
        worst = int(difference.argmax())
        largest = float(difference[worst])
        if largest == 0.0:
            return
        if largest > self.max_abs:
            self.max_abs, self.worst = largest, start + worst
        self.absolute += float(difference.sum())
        self.square += _dot(difference, difference)
        self._add_decades(difference, largest)

    def _add_decades(self, difference: NDArray[np.float64], largest: float) -> None:
        """Count from the largest down: a few comparisons of all elements cost less than one logarithm of each."""
        moved, counted = int(np.count_nonzero(difference)), 0
        self.mismatched += moved
        for decade in range(_decade(largest), 0, -1):
            above = int(np.count_nonzero(difference >= 10.0 ** (decade + LOWEST_DECADE)))
            self.decades[decade] += above - counted
            counted = above
            if counted == moved:
                return
        self.decades[0] += moved - counted

    def _add_magnitudes(self, x: Array, y: Array, difference: NDArray[np.float64]) -> None:
        self.reference_square += _dot(x, x)
        self.candidate_square += _dot(y, y)
        self.product += _dot(x, y)
        size = np.abs(x)
        self.reference_max = max(self.reference_max, float(size.max()))
        if np.count_nonzero(size) < size.size:
            some = size > 0
            size, difference = size[some], difference[some]
        if size.size:
            self.max_rel = max(self.max_rel or 0.0, float((difference / size).max()))

    def result(self, shape: tuple[int, ...]) -> Measurement:
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


def _quotient(dividend: float, divisor: float) -> float | None:
    """None where it is undefined: by zero, or of sums that float64 values beyond 1e154 have made infinite."""
    quotient = dividend / divisor if divisor > 0 else math.nan
    return quotient if math.isfinite(quotient) else None


def _widened(values: Array) -> Array:
    if values.dtype.kind == "c":
        return values.astype(np.complex128, copy=False)
    return values.astype(np.float64, copy=False)


def _dot(x: Array, y: Array) -> float:
    """Real part of the sum of x times conjugate y, without a copy and without waking the threads of a BLAS."""
    return float(np.einsum("i,i->", x, np.conj(y) if y.dtype.kind == "c" else y).real)


def _decade(value: float) -> int:
    """Bin of a positive value; of infinity, the last one."""
    bin_number = math.floor(math.log10(value)) - LOWEST_DECADE if math.isfinite(value) else DECADES
    return min(max(bin_number, 0), DECADES - 1)


def _absolute_difference(left: Array, right: Array, x: Array, y: Array) -> NDArray[np.float64]:
    """|left - right| as float64, where x and y are both widened; integers are subtracted exactly first."""
    if left.dtype.kind in "iu" and right.dtype.kind in "iu":
        return _integer_difference(left, right)
    difference: NDArray[np.float64] = np.abs(y - x)
    return difference


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
