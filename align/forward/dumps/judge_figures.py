"""Two tensors of which only figures or checksums are known: what these show, and that they prove nothing else.

Neither the largest, the smallest nor the mean value can differ by more than the largest difference of two elements, and
the root mean squares not by more than that of the differences. So figures show that tensors differ, and by how much at
least; where they agree nobody knows. Equal checksums are equal bytes.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from align.core.measurements import Limit, Measurement, smallest_factor
from align.measure.limits import limit_for
from align.measure.measure_arrays import DECADES
from align.measure.tensor_statistics import summarize_tensor
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.core.measurements import TensorStatistics
    from align.core.traces import DumpedTensor
    from align.forward.forward_result import LayerComparison

_CRC = "crc32:"
_WHOLE = ("int", "uint", "bool")  # dtypes whose values must be equal


def judge_figures(
    row: LayerComparison, mine: DumpedTensor, theirs: DumpedTensor, floor: float = 0.0, *, same_order: bool = True
) -> LayerComparison:
    """The row with what the figures show; `same_order` says that elements of both lie in the same places.

    `floor` is what both may differ by at least.
    """
    if prod(mine.shape) != prod(theirs.shape):
        shapes = {"reference": list(mine.shape), "candidate": list(theirs.shape)}
        return replace(row, note=sentence("forward_note.shapes_differ", **shapes))
    if not prod(mine.shape):
        return replace(row, note=sentence("forward_note.no_elements"))
    sums = _digest(mine, theirs), _digest(theirs, mine)
    known = bool(sums[0] and sums[1]) and same_order and mine.dtype == theirs.dtype
    if known and sums[0] == sums[1]:
        return _equal(row, mine)
    if known and mine.dtype.startswith(_WHOLE):
        limit = limit_for(_measured(0, 0.0, 0.0, (0.0, 0.0)), (mine.dtype, theirs.dtype), None)
        return replace(row, outcome="not aligned", limit=limit, factor=inf, note=sentence("dump_row.other_numbers"))
    return _by_figures(row, (mine, theirs), floor, known=known)


def _by_figures(
    row: LayerComparison, pair: tuple[DumpedTensor, DumpedTensor], floor: float, *, known: bool
) -> LayerComparison:
    """What figures show of tensors whose checksums, where they are `known`, differ."""
    mine, theirs = pair
    own, other = _figures(mine), _figures(theirs)
    if own is None or other is None:
        key = "dump_row.other_checksum" if known else "dump_row.nothing_dumped"
        return replace(row, note=sentence(key))
    least = _least_difference(own, other)
    floor = max(floor, (mine.precision + theirs.precision) * least.reference_max)
    limit = raised(limit_for(least, (mine.dtype, theirs.dtype), None), floor)
    if _one_is_finite(own, other):
        note = sentence("dump_row.one_is_finite")
        return replace(row, outcome="not aligned", limit=limit, factor=inf, note=note)
    factor = smallest_factor(least, limit)
    if factor > 1.0:
        note = sentence("dump_row.figures_differ", difference=least.max_abs)
        return replace(row, outcome="not aligned", limit=limit, factor=factor, note=note)
    return replace(row, note=sentence("dump_row.only_checksums" if known else "dump_row.figures_agree"))


def _one_is_finite(mine: TensorStatistics, theirs: TensorStatistics) -> bool:
    """Tell whether one holds NaN or Inf and the other none: the norm and the mean of such a tensor are no numbers."""
    odd = [bool(one.nan or one.inf) for one in (mine, theirs)]
    other = theirs if odd[0] else mine
    return odd[0] != odd[1] and (other.rms, other.mean) != (None, None)


def raised(limit: Limit, floor: float) -> Limit:
    """The limit, or the floor where that is larger."""
    return Limit(max(limit.max_abs, floor), max(limit.rmse, floor), limit.source)


def _least_difference(mine: TensorStatistics, theirs: TensorStatistics) -> Measurement:
    """What two tensors differ by at least, as a measurement without all that figures do not tell."""
    pairs = ((getattr(mine, name), getattr(theirs, name)) for name in ("min", "max", "mean"))
    largest = max((abs(one - other) for one, other in pairs if one is not None and other is not None), default=0.0)
    rms = abs((mine.rms or 0.0) - (theirs.rms or 0.0)) if None not in (mine.rms, theirs.rms) else 0.0
    sizes = [abs(one) for one in (mine.min, mine.max) if one is not None]
    scale = max(sizes, default=mine.rms or abs(mine.mean or 0.0))
    return _measured(0, max(largest, rms), rms, (scale, scale if mine.rms is None else mine.rms))


def _equal(row: LayerComparison, one: DumpedTensor) -> LayerComparison:
    known = _figures(one)
    scale = max((abs(size) for size in (known.min, known.max) if size is not None), default=0.0) if known else 0.0
    measurement = _measured(prod(one.shape), 0.0, 0.0, (scale, (known.rms if known else None) or 0.0))
    limit = limit_for(measurement, (one.dtype, one.dtype), None)
    note = sentence("dump_row.same_checksum")
    return replace(row, outcome="aligned", measurement=measurement, limit=limit, factor=0.0, note=note)


def _measured(count: int, largest: float, rms: float, scale: tuple[float, float]) -> Measurement:
    return Measurement(
        count=count, max_abs=largest, max_rel=None, mean_abs=0.0, rmse=rms, relative_l2=0.0 if not rms else None,
        cosine=None, reference_max=scale[0], reference_rms=scale[1], nan_reference=0, nan_candidate=0, inf_reference=0,
        inf_candidate=0, non_finite_mismatch=0, mismatched=0, worst=(), decades=(0,) * DECADES,
    )  # fmt: skip


def _figures(one: DumpedTensor) -> TensorStatistics | None:
    """Those of the dump, or of the tensor where that was dumped."""
    return one.statistics if one.load is None else summarize_tensor(one.load())


def _digest(one: DumpedTensor, other: DumpedTensor) -> str:
    """The checksum of the dump; of a tensor that was dumped, the one that the other side has."""
    if one.digest or one.load is None or not other.digest.startswith(_CRC):
        return one.digest
    return f"{_CRC}{crc32(np.ascontiguousarray(one.load()).tobytes()):08x}"
