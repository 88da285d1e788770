"""What a conversion does not carry over: tensors beside the weights, and digits that a cast costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.checkpoints.extents import byte_blocks
from align.convert.planning.cast_loss import CastLoss, cast_loss
from align.convert.planning.transformed_tensors import transformed_tensor
from align.core.dtypes import numpy_dtype
from align.core.piece_transforms import Part
from align.core.transforms import Cast, steps_of
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.convert.planning.plan_conversion import ConversionPlan
    from align.core.checkpoints import Checkpoint, StoredTensor

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
        for step in steps_of(planned.transform):
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
