"""A step that is another one each time cannot be compared: what differs would count as rounding, or as a fault.

It may draw random numbers, or keep something from one taking to the next that is not put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.errors import CannotRunError
from align.models.restore_state import other_seed
from align.training.steps.record_step import COMPUTED, GIVEN, UpdateTrace, take_again
from align.training.thresholds import SAME_GRADIENTS_SHARE
from align.training.updates.apply_rule import blocks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.protocols import Batch
    from align.training.open_training import TrainingSide
    from align.training.steps.free_run import FreeRun

    Loss = float | None

_NOTHING: Mapping[str, Array] = {}


def refuse_random_steps(
    side: TrainingSide,
    batches: Sequence[Batch],
    trace: UpdateTrace,
    free: FreeRun,
    folder: Path,
    start: Mapping[str, Array] = _NOTHING,
) -> None:
    """Take the first step again from another seed; raises CannotRunError if loss or gradients are then others.

    It is not taken again where the `free` run, which began from another seed too, shows that they stay the same. A step
    of the user's own is, and is refused too if it updates other parameters than before. `start` are the values that it
    began from, where they are not the side's own.
    """
    values = trace.values(0, COMPUTED)
    if side.training.step is None and _shows_the_same(values, trace.losses[0], free):
        return
    with other_seed():
        again = take_again(side, batches[:1], folder, start)
    apart = _distance(values, again.values(0, COMPUTED))
    if side.training.step is not None:
        _refuse_kept(side, trace, (again, take_again(side, batches, folder.with_name(f"{folder.name}-all"), start)))
    if (apart is not None and apart > SAME_GRADIENTS_SHARE) or not _is_same_loss(trace.losses[0], again.losses[0]):
        raise CannotRunError.of("training_error.step_draws", side=side.label, apart=apart)


def _shows_the_same(values: Mapping[str, Array], loss: Loss, free: FreeRun) -> bool:
    apart = _distance(values, free.first_gradients)
    return (
        apart is not None
        and apart <= SAME_GRADIENTS_SHARE
        and bool(free.losses)
        and _is_same_loss(loss, free.losses[0])
    )


def _is_same_loss(one: Loss, other: Loss) -> bool:
    """Tell so where one of them is not known too."""
    if one is None or other is None or not (np.isfinite(one) and np.isfinite(other)):
        return True
    return abs(one - other) <= SAME_GRADIENTS_SHARE * abs(one)


def _refuse_kept(side: TrainingSide, trace: UpdateTrace, takings: Sequence[UpdateTrace]) -> None:
    """Raise CannotRunError where a step updates other parameters than when it was taken first.

    Of a counter whatever its period is shows: one taking goes on behind all steps, the other one a step later.
    """
    for again in takings:
        for step in range(len(again.losses)):
            before, now = (one.names(step, GIVEN) for one in (trace, again))
            if before != now:
                counts = {"first": len(before), "later": len(now)}
                raise CannotRunError.of("training_error.step_changes", step=step + 1, side=side.label, **counts)


def _distance(ones: Mapping[str, Array], others: Mapping[str, Array]) -> float | None:
    """Relative distance of all gradients as one vector; None where there are none, or where they are not finite."""
    square = apart = 0.0
    for name in ones.keys() & others.keys():
        flat = ones[name].reshape(-1), others[name].reshape(-1)
        for block in blocks_of(len(flat[0])):
            one, other = flat[0][block].astype(np.float64), flat[1][block].astype(np.float64)
            with np.errstate(all="ignore"):  # infinities
                square, apart = square + float(np.sum(one**2)), apart + float(np.sum((one - other) ** 2))
    return float(np.sqrt(apart / square)) if square and np.isfinite(apart) and np.isfinite(square) else None
