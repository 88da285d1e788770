"""Positions that the given mask calls padding: what a model returns there is nobody's, and implementations differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.forward.layers.number_batches import batch_ends, batch_number
from align.models.batches import batches_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Inputs
    from align.core.traces import Capture, Trace


@dataclass(frozen=True, slots=True)
class Padding:
    """Where the masks of the batches are 0, each of shape (samples, positions); None for a batch without one.

    Without any mask there are none. `ends` are the orders at which the batches of the reference's run end.
    """

    masks: tuple[NDArray[np.bool_] | None, ...] = ()
    ends: Sequence[int] = ()

    def at(self, capture: Capture) -> NDArray[np.bool_] | None:
        """The padded positions of the batch in which the reference made a capture."""
        return self.masks[batch_number(self.ends, capture.order) - 1] if self.masks else None


NO_PADDING = Padding()


def padding_of(inputs: Inputs, reference: Trace) -> Padding:
    """Read the masks among the inputs of a run.

    A mask is an input of two axes whose name says so and which holds ones and zeros, both of them.
    """
    masks = tuple(map(_padded, batches_of(inputs)))
    return Padding(masks, batch_ends(reference)) if any(one is not None for one in masks) else NO_PADDING


def _padded(batch: Batch) -> NDArray[np.bool_] | None:
    masks = [value for name, value in batch.items() if "mask" in name.lower() and _is_mask(value)]
    if not masks or any(one.shape != masks[0].shape for one in masks):
        return None
    padded: NDArray[np.bool_] = np.logical_and.reduce([one == 0 for one in masks])
    return padded


def _is_mask(value: Array) -> bool:
    return value.ndim == 2 and value.dtype.kind in "biuf" and set(np.unique(value).tolist()) == {0, 1}
