"""Positions that the given mask calls padding: what a model returns there is nobody's, and implementations differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.models.batches import batches_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.protocols import Inputs


def padded_positions(inputs: Inputs) -> NDArray[np.bool_] | None:
    """Where the mask among the inputs is 0, of shape (samples, positions); None without one, or for several batches.

    A mask is an input of two axes whose name says so and which holds ones and zeros, both of them.
    """
    batches = batches_of(inputs)
    masks = [value for name, value in batches[0].items() if "mask" in name.lower() and _is_mask(value)]
    if len(batches) != 1 or not masks or any(one.shape != masks[0].shape for one in masks):
        return None
    padded: NDArray[np.bool_] = np.logical_and.reduce([one == 0 for one in masks])
    return padded


def _is_mask(value: Array) -> bool:
    return value.ndim == 2 and value.dtype.kind in "biuf" and set(np.unique(value).tolist()) == {0, 1}
