"""What a cast loses: values that the new dtype cannot hold, and values that it only holds rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name, is_complex, is_float
from align.core.transforms import Cast

if TYPE_CHECKING:
    from align.core.dtypes import Array

BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class CastLoss:
    """Of `total` values, `lost` became something else (NaN or 300 as int8, 1e30 as float16), `rounded` a near one."""

    total: int = 0
    lost: int = 0
    rounded: int = 0

    def __add__(self, other: CastLoss) -> CastLoss:
        """The loss of both together."""
        return CastLoss(self.total + other.total, self.lost + other.lost, self.rounded + other.rounded)


def cast_loss(value: Array, dtype: str) -> CastLoss:
    """Count, in blocks, what `Cast(dtype)` does to the values; NaN and the infinities among floats are kept."""
    flat = value.reshape(-1)
    blocks = [_count(flat[start : start + BLOCK], dtype) for start in range(0, flat.size, BLOCK)]
    return CastLoss(flat.size, sum(lost for lost, _ in blocks), sum(changed - lost for lost, changed in blocks))


def _count(before: Array, dtype: str) -> tuple[int, int]:
    """Numbers of lost and of changed values."""
    after = Cast(dtype).apply(before)
    with np.errstate(all="ignore"):
        changed = _changed(before, after)
        lost = changed & _beyond(before, after)
    return int(np.count_nonzero(lost)), int(np.count_nonzero(changed))


def _changed(before: Array, after: Array) -> Array:
    if before.dtype.kind in "iub":
        signs = (before < 0) != (after.real < 0)  # -1 as uint8 and back is -1 again
        return np.asarray((after.real.astype(before.dtype) != before) | signs)
    wide = np.complex128 if np.iscomplexobj(before) else np.float64
    one, other = before.astype(wide), after.astype(wide)
    return np.asarray((one != other) & ~(np.isnan(one) & np.isnan(other)))


def _beyond(before: Array, after: Array) -> Array:
    """Where the value lies outside what the dtype of `after` holds; an imaginary part always does in a real one."""
    target = dtype_name(after.dtype)
    if is_complex(target):
        return np.asarray(~np.isfinite(after))
    imaginary = before.imag != 0 if np.iscomplexobj(before) else False
    real = before.real
    if is_float(target):
        return np.asarray(imaginary | ~np.isfinite(after))
    if real.dtype.kind in "iub":
        return np.ones(before.shape, bool)
    wide = real.astype(np.float64)
    limits = np.iinfo(after.dtype) if after.dtype.kind in "iu" else None
    outside = (wide < limits.min) | (wide >= float(limits.max) + 1) if limits else False
    return np.asarray(imaginary | outside | ~np.isfinite(wide))
