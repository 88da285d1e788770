"""A tensor seen as slices along one axis (channels, rows, positions), each known by some of its elements."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.forward.relations.relation import sample_places
from align.forward.thresholds import SLICE_COLUMNS, SLICE_TABLE_CELLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array


def slice_tables(reference: Array, candidate: Array, least: int = 1) -> Iterator[tuple[int, Array, Array]]:
    """For each axis whose slices have as many elements: the axis, and the same ones of all slices of both.

    These are in float64 and of shape (slice, element).
    """
    for axis, length in enumerate(reference.shape):
        rest = prod(reference.shape) // max(length, 1)
        if length > 1 and rest >= least:
            columns = sample_places(rest, max(8, min(SLICE_COLUMNS, SLICE_TABLE_CELLS // length)))
            yield axis, _table(reference, axis, columns), _table(candidate, axis, columns)


def other_axes(axis: int, ndim: int) -> tuple[int, ...]:
    """All axes but this one."""
    return tuple(one for one in range(ndim) if one != axis)


def _table(array: Array, axis: int, columns: Array) -> Array:
    view = np.moveaxis(array, axis, 0)
    if array.ndim == 1:
        return view[:, None].astype(np.float64)
    index: tuple[Any, ...] = (slice(None), *np.unravel_index(columns, view.shape[1:]))
    cells: Array = view[index].astype(np.float64)
    return cells
