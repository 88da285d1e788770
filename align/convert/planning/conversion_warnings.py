"""What a conversion does not carry over: tensors beside the weights, values that a cast cannot hold or only rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.convert.planning.transformed_tensors import transformed_tensor
from align.convert.thresholds import CAST_BLOCK_ELEMENTS
from align.core.dtypes import dtype_name, is_complex, is_float, numpy_dtype
from align.core.piece_transforms import Part
from align.core.transforms import Cast
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.convert.planning.plan_conversion import ConversionPlan
    from align.core.checkpoints import Checkpoint, StoredTensor
    from align.core.dtypes import Array


@dataclass(frozen=True, slots=True)
class CastLoss:
    """Of `total` values, `lost` became something else (NaN or 300 as int8, 1e30 as float16), `rounded` a near one."""

    total: int = 0
    lost: int = 0
    rounded: int = 0

    def __add__(self, other: CastLoss) -> CastLoss:
        """The loss of both together."""
        return CastLoss(self.total + other.total, self.lost + other.lost, self.rounded + other.rounded)


Losses = dict[tuple[str, str], CastLoss]  # by the target's name and the dtypes


def left_out_warnings(checkpoint: Checkpoint) -> Iterable[str]:
    """One line for each entry that holds tensors and is not converted."""
    for name, count in checkpoint.other_tensors.items():
        yield sentence("convert_warning.not_converted", name=name, kind=checkpoint.other[name], count=count)


def cast_losses(plan: ConversionPlan) -> Losses:
    """What each cast of the plan costs, of the values that come to it; casts that cost nothing are left out."""
    losses: Losses = {}
    for planned in plan.tensors:
        before = planned.before
        for step in planned.transform.steps:
            if isinstance(step, Cast):  # in any shape the values are the same
                loss = _loss(before, step.dtype)
                if loss.lost or loss.rounded:
                    key = planned.target.name, f"{before.dtype} -> {step.dtype}"
                    losses[key] = losses.get(key, CastLoss()) + loss
            if not isinstance(step, Part):
                before = transformed_tensor(before, before.name, step)
    return losses


def _loss(source: StoredTensor, dtype: str) -> CastLoss:
    kind = numpy_dtype(source.dtype)
    return sum((cast_loss(np.frombuffer(block, kind), dtype) for block in byte_blocks(source)), CastLoss())


def cast_warnings(losses: Losses) -> Iterable[str]:
    """One line for each tensor with values that its new dtype cannot hold, one for all that are only rounded."""
    rounded: dict[str, list[str]] = {}
    for (name, dtypes), loss in losses.items():
        if loss.lost:
            counts = {"lost": loss.lost, "total": loss.total, "rounded": loss.rounded}
            yield sentence("convert_warning.cannot_hold", name=name, dtypes=dtypes, **counts)
        else:
            rounded.setdefault(dtypes, []).append(name)
    for dtypes, names in rounded.items():
        values = sum(losses[name, dtypes].rounded for name in names)
        yield sentence("convert_warning.rounds", dtypes=dtypes, values=values, count=len(names), names=names)


def cast_loss(value: Array, dtype: str) -> CastLoss:
    """Count, in blocks, what `Cast(dtype)` does to the values; NaN and the infinities among floats are kept."""
    flat = value.reshape(-1)
    blocks = [
        _count(flat[start : start + CAST_BLOCK_ELEMENTS], dtype) for start in range(0, flat.size, CAST_BLOCK_ELEMENTS)
    ]
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
