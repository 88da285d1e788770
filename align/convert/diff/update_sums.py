"""Tensors read side by side, and sums over four of them, before and after on both sides, in one pass and in float64.

An update is the difference of two stored numbers, so it is known no better than these are rounded: each of the four
may be off by half a unit in its last place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.core.dtypes import EPSILON, is_complex, numpy_dtype, rounded_as
from align.measure.thresholds import SHARED_BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array

Wide = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(slots=True)
class UpdateSums:
    """Sums of squares and products of what a pair of tensors moved by.

    `u` is the reference's update, `v` the candidate's, `w` the reference's values before, and `d` is v - u. `rounding`
    is what d may be by the units of the values, of which `unit` is the largest epsilon; `start` the candidate's values
    before less the reference's. `non_finite` counts elements of which a value is NaN or infinite; they are in no sum.
    """

    count: int = 0
    non_finite: int = 0
    uu: float = 0.0
    vv: float = 0.0
    uv: float = 0.0
    ww: float = 0.0
    dd: float = 0.0
    dw: float = 0.0
    rounding: float = 0.0
    start: float = 0.0
    unit: float = 0.0

    def add(self, values: Sequence[Wide], units: Sequence[float]) -> None:
        """Add a block: values before and after of the reference, then of the candidate."""
        finite = np.isfinite(values[0])
        for one in values[1:]:
            finite &= np.isfinite(one)
        self.count += finite.size
        if not finite.all():
            self.non_finite += int(finite.size - np.count_nonzero(finite))
            values = [one[finite] for one in values]
        before, after, other_before, other_after = values
        u, v = after - before, other_after - other_before
        self.uu, self.vv, self.uv = self.uu + float(u @ u), self.vv + float(v @ v), self.uv + float(u @ v)
        d = v - u
        self.dd, self.dw, self.ww = (
            self.dd + float(d @ d),
            self.dw + float(d @ before),
            self.ww + float(before @ before),
        )
        known = np.add.reduce([_last_place(one, unit) for one, unit in zip(values, units, strict=True)]) / 2
        apart = other_before - before
        self.rounding, self.start = self.rounding + float(known @ known), self.start + float(apart @ apart)
        self.unit = max(units)


def sum_updates(tensors: Sequence[StoredTensor]) -> UpdateSums:
    """The sums of four tensors of one shape: before and after of the reference, then of the candidate.

    Read block by block. Raises NotACheckpointError if a file has become shorter since it was opened.
    """
    sums = UpdateSums()
    units = [EPSILON.get(rounded_as(one.dtype), 0.0) for one in tensors]
    for values in array_blocks(tensors, real=True):
        sums.add([one.astype(np.float64) for one in values], units)
    return sums


def _last_place(values: Wide, unit: float) -> Wide:
    """A unit in the last place of each value; 0 for 0, and for numbers that are not rounded."""
    return np.ldexp(unit * (values != 0.0), np.frexp(values)[1] - 1) if unit else np.zeros_like(values)


def array_blocks(tensors: Sequence[StoredTensor], *, real: bool = False) -> Iterator[list[Array]]:
    """Yield the elements of tensors of one size side by side, in blocks that are cut where those of any end.

    With `real`, complex numbers are two real ones each.
    """
    streams = [_arrays(one, real=real) for one in tensors]
    held = [np.empty(0) for _ in tensors]
    done, size = 0, prod(tensors[0].shape) * (2 if real and is_complex(tensors[0].dtype) else 1)
    while done < size:
        held = [one if one.size else next(stream) for one, stream in zip(held, streams, strict=True)]
        step = min(one.size for one in held)
        yield [one[:step] for one in held]
        held, done = [one[step:] for one in held], done + step


def _arrays(tensor: StoredTensor, *, real: bool) -> Iterator[Array]:
    dtype = numpy_dtype((real and rounded_as(tensor.dtype)) or tensor.dtype)
    for block in byte_blocks(tensor, SHARED_BLOCK * numpy_dtype(tensor.dtype).itemsize):
        yield np.frombuffer(block, dtype)
