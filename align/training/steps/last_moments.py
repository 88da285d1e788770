"""What the optimizers of a live side keep after the last step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.training import MomentReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from align.core.dtypes import Array
    from align.training.open_training import TrainingSide


def last_moments(side: TrainingSide, steps: int) -> Callable[[int], Iterable[tuple[str, str, Array]]]:
    """What gives a StepWriter the moments of a side after the last of these steps."""

    def after(step: int) -> Iterator[tuple[str, str, Array]]:
        reader = side.side.reader
        for optimizer in side.training.optimizers if step == steps - 1 else ():
            if isinstance(reader, MomentReader):
                yield from reader.read_moments(optimizer, side.training.model)

    return after
