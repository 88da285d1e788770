"""A tensor seen as slices along one axis (channels, rows, positions), each known by some of its elements.

An order of slices has a name: flipped, rolled, two swapped, parts in another order, interleaved.
"""

from __future__ import annotations

from itertools import chain
from math import isqrt, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.forward.relation_thresholds import (
    LEAST_PART_LENGTH,
    MOST_REORDERED_PARTS,
    MOST_UNEQUAL_PARTS,
    SLICE_COLUMNS,
    SLICE_TABLE_CELLS,
)
from align.forward.relations.relation import sample_places
from align.forward.thresholds import MOST_LISTED_PLACES
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact


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


Description = tuple[str, "dict[str, Fact]"]


def describe_order(order: Array) -> Description:
    """Name and figures of an order: place i of the candidate holds what the reference has at `order[i]`; -1: unknown.

    >>> describe_order(np.array([4, 5, 2, 3, 0, 1]))
    ('parts-reordered', {'parts': 3, 'order': '2,1,0'})
    """
    if np.any(order < 0):
        return _partial(order)
    found = chain(_simple(order), _interleaved(order), _parts(order), _rolled(order), _unequal_parts(order))
    return next(found, _general(order))


def _simple(order: Array) -> Iterator[Description]:
    moved = np.flatnonzero(order != np.arange(order.size))
    if order.size > 2 and np.array_equal(order[::-1], np.arange(order.size)):
        yield "flipped", {}
    elif moved.size == 2:
        yield "swapped", {"first": int(moved[0]), "second": int(moved[1])}


def _parts(order: Array) -> Iterator[Description]:
    for parts in range(2, MOST_REORDERED_PARTS + 1):
        length, rest = divmod(order.size, parts)
        rows = order.reshape(parts, length) if length > 1 and not rest else order[:0]
        if rows.size and np.all(np.diff(rows) == 1) and np.all(rows[:, 0] % length == 0):
            yield "parts-reordered", {"parts": parts, "order": ",".join(map(str, rows[:, 0] // length))}


def _unequal_parts(order: Array) -> Iterator[Description]:
    """A few parts of several lengths, as levels of a pyramid, in another order."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(order) != 1) + 1])
    if 2 < starts.size <= MOST_UNEQUAL_PARTS and starts.size * LEAST_PART_LENGTH <= order.size:
        shown = ",".join(map(str, np.argsort(np.argsort(order[starts]))))
        yield "parts-reordered", {"parts": int(starts.size), "order": shown}


def _rolled(order: Array) -> Iterator[Description]:
    by = int(-order[0] % order.size)
    if np.array_equal(np.roll(np.arange(order.size), by), order):
        yield "rolled", {"by": by if by <= order.size // 2 else by - order.size}


def _interleaved(order: Array) -> Iterator[Description]:
    """Read as a matrix of blocks and transposed: heads and parts exchanged, or channels shuffled by groups.

    The first step that is not 1 comes after the first block, and leads to the second row.
    """
    block = int(np.argmax(np.diff(order) != 1)) + 1
    columns, rest = divmod(int(order[block]), block)
    if order[0] or rest or columns < 2 or order.size % (columns * block):
        return
    rows = order.size // (columns * block)
    if np.array_equal(np.arange(order.size).reshape(rows, columns, block).swapaxes(0, 1).ravel(), order):
        yield "interleaved", {"rows": rows, "columns": columns, "block": block}


def _partial(order: Array) -> Description:
    known = np.flatnonzero(order >= 0)
    by = np.unique(known - order[known])
    return ("displaced", {"by": int(by[0])}) if by.size == 1 else _general(order)


def _general(order: Array) -> Description:
    moved = np.flatnonzero((order != np.arange(order.size)) & (order >= 0))[:MOST_LISTED_PLACES]
    held = [sentence("slice_form.place_holds", place=int(place), held=int(order[place])) for place in moved]
    return "permuted", {"first": joined(", ", held)}


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})
