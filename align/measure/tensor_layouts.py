"""One tensor in two layouts: channels first or last, batch first or last, axes merged or split.

Which layout it is, is read off the values, and only where these leave no doubt: unrelated values are apart by more than
their own size.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from align.core.dtypes import rounded_as
from align.measure.tensor_statistics import axis_orders, relative_rms_distance
from align.measure.thresholds import CLEAR_LAYOUT_DISTANCE, LEAST_LAYOUT_ELEMENTS, MOST_PERMUTED_AXES, SAMPLED_ELEMENTS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.parameters import Shape


@dataclass(frozen=True, slots=True)
class PermutedLayout:
    """The candidate's tensor is the reference's with its axes in this `order`, read with the candidate's `shape`."""

    order: tuple[int, ...]
    reference: Shape
    candidate: Shape

    @property
    def is_same(self) -> bool:
        """Tell whether both have one layout."""
        return self.reference == self.candidate and self.order == tuple(range(len(self.order)))

    @property
    def note(self) -> str:
        """The layout in words, "" for the same."""
        if self.is_same:
            return ""
        shape, order = str(list(self.candidate)), list(self.order)
        if order == [*range(len(order))]:
            return sentence("layout_note.another_layout", shape=shape)
        return sentence("layout_note.another_order", shape=shape, order=str(order))

    def to_candidate(self, value: Array) -> Array:
        """Bring the reference's value into the candidate's layout."""
        return value if self.is_same else np.ascontiguousarray(value.transpose(self.order)).reshape(self.candidate)

    def to_reference(self, value: Array) -> Array:
        """Bring the candidate's value into the reference's layout."""
        if self.is_same:
            return value
        turned = value.reshape([self.reference[axis] for axis in self.order])
        return np.ascontiguousarray(turned.transpose(np.argsort(self.order)))


@dataclass(frozen=True, slots=True)
class RepeatedLayout:
    """One side has the same values for each sample, the other has them once, or once with an axis of length 1."""

    reference: Shape
    candidate: Shape

    @property
    def is_same(self) -> bool:
        """False: the shapes differ."""
        return False

    @property
    def note(self) -> str:
        """The layout in words."""
        shapes = {"reference": str(list(self.reference)), "candidate": str(list(self.candidate))}
        return sentence("layout_note.once_for_all", **shapes)

    def to_candidate(self, value: Array) -> Array:
        """Bring the reference's value into the candidate's layout."""
        return _repeated(value, self.candidate)

    def to_reference(self, value: Array) -> Array:
        """Bring the candidate's value into the reference's layout."""
        return _repeated(value, self.reference)


Layout: TypeAlias = "PermutedLayout | RepeatedLayout"


def find_permuted_layout(reference: Array, candidate: Array) -> PermutedLayout | None:
    """Return how the candidate lays out the reference's values; None if its shape differs and no value shows how."""
    if reference.shape == candidate.shape:
        return PermutedLayout(tuple(range(reference.ndim)), reference.shape, candidate.shape)
    floats = rounded_as(reference.dtype.name) and rounded_as(candidate.dtype.name)
    if (
        reference.size != candidate.size
        or not floats
        or candidate.size < LEAST_LAYOUT_ELEMENTS
        or reference.ndim > MOST_PERMUTED_AXES
    ):
        return None
    places = np.random.default_rng(0).integers(0, candidate.size, SAMPLED_ELEMENTS)
    sample = candidate.reshape(-1)[places].astype(np.float64)
    distances = [(relative_rms_distance(values, sample), order) for order, values in axis_orders(reference, places)]
    least, order = min(distances)
    return PermutedLayout(order, reference.shape, candidate.shape) if least < CLEAR_LAYOUT_DISTANCE else None


def only_layout(reference: Shape, candidate: Shape) -> PermutedLayout | None:
    """The one order of the axes that makes one shape the other; None if there are several, or none.

    Shapes that differ in axes of length 1 alone are one, as (b, c, 1, t) and (b, c, t).
    """
    mine, theirs = _lengths(reference), _lengths(candidate)
    if mine == theirs:
        return PermutedLayout(tuple(range(len(reference))), reference, candidate)
    if len(set(mine)) < len(mine) or sorted(mine) != sorted(theirs):
        return None
    ones = [axis for axis, length in enumerate(reference) if length == 1]
    return PermutedLayout((*ones, *(reference.index(length) for length in theirs)), reference, candidate)


def _lengths(shape: Shape) -> list[int]:
    """The lengths of all axes but those of length 1."""
    return [length for length in shape if length > 1]


def _is_repeated(whole: Array, once: Array) -> bool:
    """Tell whether one tensor has for each sample what the other has once."""
    inner = whole.shape[1:]
    if whole.ndim < 2 or whole.size <= once.size or once.shape not in (inner, (1, *inner)):
        return False
    return bool(np.array_equal(whole, np.broadcast_to(whole[:1], whole.shape), equal_nan=whole.dtype.kind == "f"))


def _repeated(value: Array, shape: Shape) -> Array:
    size = prod(shape)
    if value.size > size:
        return np.ascontiguousarray(value[:1]).reshape(shape)
    return value.reshape(shape) if value.size == size else np.broadcast_to(value.reshape(-1, *shape[1:])[:1], shape)


class LearnedLayouts:
    """How a port lays out its tensors: learnt where the values show it, and used where a fault hides it.

    What is learnt of one shape counts for others that differ in the last axis alone.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Shape, Shape], tuple[int, ...]] = {}

    def find(self, reference: Array, candidate: Array) -> Layout | None:
        """As `find_permuted_layout`, or as it was with other tensors of these shapes."""
        if _is_repeated(reference, candidate) or _is_repeated(candidate, reference):
            return RepeatedLayout(reference.shape, candidate.shape)
        layout = find_permuted_layout(reference, candidate)
        key = _without_last(reference.shape, candidate.shape)
        if layout is not None:
            self._learn(key, layout)
            return layout
        known = self._known.get(key) if reference.size == candidate.size else None
        return None if known is None else PermutedLayout(known, reference.shape, candidate.shape)

    def _learn(self, key: tuple[Shape, Shape], layout: PermutedLayout) -> None:
        if not layout.is_same:
            keeps_last = layout.order[-1] == len(layout.order) - 1
            if keeps_last or key == (layout.reference, layout.candidate):
                self._known[key] = layout.order


def _without_last(reference: Shape, candidate: Shape) -> tuple[Shape, Shape]:
    if reference[-1:] == candidate[-1:]:
        return reference[:-1], candidate[:-1]
    return reference, candidate
