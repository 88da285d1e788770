"""From elements to transforms: which elements of the source a target consists of, as steps that a map can hold."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.core.piece_transforms import Part, Slice
from align.core.transforms import IDENTITY, Permute, Reshape, chained
from align.names.thresholds import MOST_RUNS_OF_A_TENSOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.core.parameters import Shape
    from align.core.transforms import Transform

    Places = NDArray[np.int64]


def transforms_of(places: Places, shape: Shape) -> list[Transform] | None:
    """The transforms that make a target of a source of this shape; None if none of those that a map knows does.

    `places` has the target's shape, and in it the flat place in the source of each element, -1 where it is made of
    something else. There are several transforms where parts of the target are made one by one.
    """
    filled = places >= 0
    if filled.all() and (whole := _of_region(places, shape)) is not None:
        return [whole]
    for axis in range(places.ndim):
        others = tuple(one for one in range(places.ndim) if one != axis)
        have = filled.all(others) if others else filled
        if not np.array_equal(have, filled.any(others) if others else filled):
            continue
        found = _runs(places, shape, axis, have)
        if found is not None:
            return found
    return _nested(places, shape)


def _nested(places: Places, shape: Shape) -> list[Transform] | None:
    """Parts within each place of the first axis, as of the experts of one tensor."""
    if places.ndim < 2 or places.shape[0] > MOST_RUNS_OF_A_TENSOR:
        return None
    found: list[Transform] = []
    for at in range(places.shape[0]):
        inner = places[at : at + 1]
        if (inner >= 0).any():
            parts = transforms_of(inner, shape) if places.shape[0] > 1 else None
            if parts is None:
                return None
            found += [chained(one, Part(0, at, at + 1, places.shape)) for one in parts]
    return found if len(found) <= MOST_RUNS_OF_A_TENSOR else None


def _runs(places: Places, shape: Shape, axis: int, have: NDArray[np.bool_]) -> list[Transform] | None:
    """One transform for each run along an axis that one transform makes."""
    found: list[Transform] = []
    rows = np.flatnonzero(have)
    start = 0
    while start < len(rows):
        stop = _end_of_run(places, rows, start, axis)
        made = None
        while stop > start and made is None:
            first, last = int(rows[start]), int(rows[stop - 1]) + 1
            region = places[(slice(None),) * axis + (slice(first, last),)]
            made = _of_region(region, shape)
            if made is None:
                stop = start + (stop - start) // 2
        if made is None or len(found) >= MOST_RUNS_OF_A_TENSOR:
            return None
        whole = first == 0 and last == places.shape[axis]
        found.append(chained(made, *([] if whole else [Part(axis, first, last, places.shape)])))
        start = stop
    return found


def _end_of_run(places: Places, rows: NDArray[np.int64], start: int, axis: int) -> int:
    """How far rows follow each other in the target, and as regularly in the source as the first two do."""
    heads = np.moveaxis(places, axis, 0).reshape(places.shape[axis], -1)[:, 0]
    stop = start + 1
    step = heads[rows[stop]] - heads[rows[start]] if stop < len(rows) else 0
    while stop < len(rows) and rows[stop] == rows[stop - 1] + 1 and heads[rows[stop]] - heads[rows[stop - 1]] == step:
        stop += 1
    return stop


def _of_region(region: Places, shape: Shape) -> Transform | None:
    """The transform that makes a whole array of these places: the source or a slice of it, turned and shaped."""
    flat = region.reshape(-1)
    if len(flat) == prod(shape):
        return _turned(region - 0, shape) if flat.min() == 0 else None
    for before in _groupings(shape):
        for axis, size in enumerate(before):
            stride = prod(before[axis + 1 :])
            along = (flat // stride) % size
            start, stop = int(along.min()), int(along.max()) + 1
            cut = (*before[:axis], stop - start, *before[axis + 1 :])
            if prod(cut) != len(flat):
                continue
            outer, inner = flat // (stride * size), flat % stride
            local = (outer * (stop - start) + along - start) * stride + inner
            turned = _turned(local.reshape(region.shape), cut)
            if turned is not None:
                return chained(_shaped(shape, before), Slice(axis, start, stop, before), turned)
    return None


def _groupings(shape: Shape) -> Iterator[Shape]:
    """The shape itself, and those in which first axes are one: a slice of two axes is one of their product."""
    yield shape
    for axes in range(2, len(shape) + 1):
        yield (prod(shape[:axes]), *shape[axes:])


def _turned(places: Places, shape: Shape) -> Transform | None:
    """The reshape and the permutation between two arrays of one size: axes that are cut may stand in another order."""
    own = np.arange(prod(shape)).reshape(shape)
    wanted = places.reshape(-1)
    if np.array_equal(own.reshape(-1), wanted):
        return _shaped(shape, places.shape)
    axes = [axis for size, line in _lines(places) if size > 1 for axis in _cut_axis(line)]
    order = sorted(range(len(axes)), key=lambda at: -axes[at][1])
    before = tuple(axes[at][0] for at in order)
    if prod(before) != len(wanted):
        return None
    turn = tuple(int(one) for one in np.argsort(order))
    if len(before) <= len(shape) and (same := _permuted(shape, wanted)) is not None:
        before, turn = shape, same
    turned = own.reshape(before).transpose(turn)
    if not np.array_equal(turned.reshape(-1), wanted):
        return None
    return chained(_shaped(shape, before), Permute(turn), _shaped(turned.shape, places.shape))


def _shaped(before: Shape, after: Shape) -> Transform:
    return IDENTITY if before == after else Reshape(after, before)


def _permuted(shape: Shape, wanted: Places) -> tuple[int, ...] | None:
    """The order of a tensor's own axes in which its elements are these."""
    own = np.arange(prod(shape)).reshape(shape)
    orders = permutations(range(len(shape)))
    return next((order for order in orders if np.array_equal(own.transpose(order).reshape(-1), wanted)), None)


def _lines(places: Places) -> Iterator[tuple[int, Places]]:
    """The places along each axis, from the first element on."""
    for axis, size in enumerate(places.shape):
        yield size, places[(0,) * axis + (slice(None),) + (0,) * (places.ndim - axis - 1)]


def _cut_axis(line: Places) -> list[tuple[int, int]]:
    """An axis as axes of one stride each, the outermost first: (size, stride)."""
    found: list[tuple[int, int]] = []
    while len(line) > 1:
        steps = np.diff(line)
        run = int(np.argmax(steps != steps[0])) + 1 if (steps != steps[0]).any() else len(line)
        if steps[0] <= 0 or len(line) % run:
            return [(0, 0)]
        found.insert(0, (run, int(steps[0])))
        line = line[::run]
    return found


def form_between(before: Shape, after: Shape) -> Transform | None:
    """The one way in which a tensor has the other's shape: as it is, or turned."""
    one, two = bare_shape(before), bare_shape(after)
    if one == two:
        return _shaped(before, after)
    if sorted(one) != sorted(two) or len(set(one)) < len(one):
        return None
    turn = Permute(tuple(one.index(size) for size in two))
    return chained(_shaped(before, one), turn, _shaped(two, after))


def bare_shape(shape: Shape) -> Shape:
    """The shape without axes of length 1."""
    return tuple(n for n in shape if n != 1)
