"""One tensor in two layouts: channels first or last, batch first or last, axes merged or split.

Which layout it is, is read off the values, and only where these leave no doubt: unrelated values are apart by more than
their own size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import rounded_as
from align.steps.samples import distance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.parameters import Shape

_SAMPLE = 4096
_FEWEST = 16  # elements; fewer agree by chance
_MOST_AXES = 5
# Relative root mean square of the difference: 1.4 for unrelated values, below 0.01 for most faults of one layer.
_CLEAR = 0.1


@dataclass(frozen=True, slots=True)
class View:
    """The candidate's tensor is the reference's with its axes in this `order`, read with the candidate's `shape`."""

    order: tuple[int, ...]
    reference: Shape
    candidate: Shape

    @property
    def is_same(self) -> bool:
        """Tell whether both have one layout."""
        return self.reference == self.candidate and self.order == tuple(range(len(self.order)))

    @property
    def told(self) -> str:
        """The layout in words, "" for the same."""
        if self.is_same:
            return ""
        turned = self.order != tuple(range(len(self.order)))
        return f"compared in the reference's layout; the port's is {list(self.candidate)}" + (
            f", axes in the order {list(self.order)}" if turned else ""
        )

    def to_candidate(self, value: Array) -> Array:
        """Bring the reference's value into the candidate's layout."""
        return value if self.is_same else np.ascontiguousarray(value.transpose(self.order)).reshape(self.candidate)

    def to_reference(self, value: Array) -> Array:
        """Bring the candidate's value into the reference's layout."""
        if self.is_same:
            return value
        turned = value.reshape([self.reference[axis] for axis in self.order])
        return np.ascontiguousarray(turned.transpose(np.argsort(self.order)))


def find_view(reference: Array, candidate: Array) -> View | None:
    """Return how the candidate lays out the reference's values; None if its shape is another and values do not tell."""
    if reference.shape == candidate.shape:
        return View(tuple(range(reference.ndim)), reference.shape, candidate.shape)
    floats = rounded_as(reference.dtype.name) and rounded_as(candidate.dtype.name)
    if reference.size != candidate.size or not floats or candidate.size < _FEWEST or reference.ndim > _MOST_AXES:
        return None
    places = np.random.default_rng(0).integers(0, candidate.size, _SAMPLE)
    sample = candidate.reshape(-1)[places].astype(np.float64)
    distances = [(distance(values, sample), order) for order, values in _orders(reference, places)]
    least, order = min(distances)
    return View(order, reference.shape, candidate.shape) if least < _CLEAR else None


class Layouts:
    """How a port lays out its tensors: learnt where the values tell, and used where a fault hides it.

    What is learnt of one shape counts for others that differ in the last axis alone.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Shape, Shape], tuple[int, ...]] = {}

    def find(self, reference: Array, candidate: Array) -> View | None:
        """As `find_view`, or as it was with other tensors of these shapes."""
        view = find_view(reference, candidate)
        key = _without_last(reference.shape, candidate.shape)
        if view is not None:
            if not view.is_same and (
                key == (reference.shape, candidate.shape) or view.order[-1] == len(view.order) - 1
            ):
                self._known[key] = view.order
            return view
        known = self._known.get(key) if reference.size == candidate.size else None
        return None if known is None else View(known, reference.shape, candidate.shape)


def _without_last(reference: Shape, candidate: Shape) -> tuple[Shape, Shape]:
    if reference[-1:] == candidate[-1:]:
        return reference[:-1], candidate[:-1]
    return reference, candidate


def _orders(reference: Array, places: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
    for order in permutations(range(reference.ndim)):
        turned = reference.transpose(order)
        yield order, turned[np.unravel_index(places, turned.shape)].astype(np.float64)
