"""What a pass over two arrays has found so far: sums that merge, so that blocks, threads and kernels combine.

Whoever adds, and in whatever order, the figures are the same but for the rounding of float64 additions; of equal
largest differences the first in C order counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import Measurement

if TYPE_CHECKING:
    from numpy.typing import NDArray

DECADES = 32  # format: the field `decades` of documents
LOWEST_DECADE = -16  # format: the field `decades` of documents


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
