"""Whether the candidate's values are the reference's with axes in another order, or read with another shape.

Every order of the axes is tried, also after one axis is cut into two (heads out of features), by comparing a few
elements first.
"""

from __future__ import annotations

from itertools import permutations
from math import log2
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.describe_slice_order import divisors
from align.forward.relations.relation import with_facts
from align.forward.thresholds import FIRST_LOOK_AT_AXES
from align.measure.thresholds import MOST_PERMUTED_AXES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.forward.relations.relation import Question, Relation

    Axes = tuple[int, ...]


def explain_permuted_axes(question: Question) -> Iterator[Relation]:
    """Yield the first order of the axes, or reading with another shape, that makes both equal."""
    yield from _first(question, [_without_ones(question.reference.shape)])


def explain_permuted_split_axes(question: Question) -> Iterator[Relation]:
    """The same with one axis cut into two, in each way."""
    kept = _without_ones(question.reference.shape)
    yield from _first(question, [*_cut(kept)] if len(kept) < MOST_PERMUTED_AXES else [])


def _first(question: Question, shapes: list[Shape]) -> Iterator[Relation]:
    if question.reference.size != question.candidate.size:
        return
    ways = [
        (shape, axes)
        for shape in shapes
        if len(shape) <= MOST_PERMUTED_AXES
        for axes in permutations(range(len(shape)))
    ]
    same_shape = question.reference.shape == question.candidate.shape
    few = np.linspace(0, question.reference.size - 1, FIRST_LOOK_AT_AXES).astype(int)
    for shape, axes in ways:
        in_order = axes == tuple(range(len(axes)))
        if (in_order and same_shape) or not _likely(question, shape, axes, few):
            continue
        if found := _confirmed(question, shape, axes, log2(len(ways))):
            yield found
            return


def _without_ones(shape: Shape) -> Shape:
    return tuple(length for length in shape if length > 1)


def _cut(shape: Shape) -> Iterator[Shape]:
    for axis, length in enumerate(shape):
        for outer in divisors(length)[1:-1]:
            yield (*shape[:axis], outer, length // outer, *shape[axis + 1 :])


def _likely(question: Question, shape: Shape, axes: Axes, few: Array) -> bool:
    """Whether a few elements, then the sample, are right."""
    view, flat = question.reference.reshape(shape).transpose(axes), question.candidate.reshape(-1)
    return not any(
        np.any(np.abs(view[np.unravel_index(places, view.shape)] - flat[places]) > question.limit.max_abs)
        for places in (few, question.places)
    )


def _confirmed(question: Question, shape: Shape, axes: Axes, choice_bits: float) -> Relation | None:
    moved = tuple(shape[axis] for axis in axes)
    put_right = question.candidate.reshape(moved).transpose(np.argsort(axes)).reshape(question.reference.shape)
    found = question.confirm(_name(question, shape, axes, moved), put_right, choice_bits=choice_bits)
    return with_facts(found, {"read_as": "x".join(map(str, shape)), "axes": ",".join(map(str, axes))})


def _name(question: Question, shape: Shape, axes: Axes, moved: Shape) -> str:
    if axes == tuple(range(len(axes))):
        return "reshaped"
    whole = shape == _without_ones(question.reference.shape) and moved == _without_ones(question.candidate.shape)
    return "transposed" if whole else "reordered"
