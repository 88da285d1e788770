"""One tensor told by few numbers: its figures, and values of it at the same places for every tensor of one size.

The figures come in one pass over blocks that fit the cache: a trace without tensors keeps nothing else. One thread does
it: the framework's own keep the other cores busy for a while after each layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import isfinite, prod, sqrt
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from align.core.parameters import rounded_as
from align.core.traces import TensorStatistics
from align.measure.thresholds import (
    CLEAR_LAYOUT_DISTANCE,
    LEAST_LAYOUT_ELEMENTS,
    MOST_PERMUTED_AXES,
    SAMPLED_ELEMENTS,
    STATISTICS_BLOCK,
    STATISTICS_PIECE,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from align.core.parameters import Array, Shape


_ONES = {np.dtype(dtype): np.ones(STATISTICS_PIECE, dtype) for dtype in (np.float32, np.float64)}


def summarize_tensor(value: Array, *, magnitude: bool = False) -> TensorStatistics:
    """Figures of the finite elements, and how many are not; those of complex values are of their absolute values.

    The sum of absolute values takes another pass, and is had only if asked for.

    Sums run in the tensor's dtype inside a piece (float32 at least) and in float64 across pieces: they are good to
    about six digits, for the eye and for alarms, not for a verdict.
    """
    sums = _Sums(magnitude=magnitude)
    for block in _blocks(value.reshape(-1)):
        sums.add(_as_plain_floats(block))
    if not sums.count:
        return TensorStatistics(None, None, None, None, sums.nan, sums.inf)
    mean, rms = sums.sum / sums.count, sqrt(sums.squares / sums.count)
    return TensorStatistics(sums.low, sums.high, mean, rms, sums.nan, sums.inf, sums.magnitude)


def _blocks(flat: Array) -> Iterator[Array]:
    """Blocks of whole pieces, and what is left."""
    whole = flat.size - flat.size % STATISTICS_PIECE
    for start in range(0, whole, STATISTICS_BLOCK):
        yield flat[start : min(start + STATISTICS_BLOCK, whole)]
    if whole < flat.size:
        yield flat[whole:]


class _Sums:
    def __init__(self, *, magnitude: bool) -> None:
        self.magnitude = 0.0 if magnitude else None
        self.low, self.high = float("inf"), float("-inf")
        self.sum = self.squares = 0.0
        self.count = self.nan = self.inf = 0

    def add(self, block: Array) -> None:
        low, high = _range(block)
        if 1e-15 < max(-low, high) < 1e15 and isfinite(low + high):
            self._add(block.size, (low, high), _products(block))
            self._add_magnitude(block)
            return
        # Seldom: squares of float32 would overflow or vanish, or some elements are not finite.
        self.nan += int(np.isnan(block).sum())
        self.inf += int(np.isinf(block).sum())
        wide = block[np.isfinite(block)].astype(np.float64)
        if wide.size:
            with np.errstate(over="ignore"):  # of float64 beyond 1e154
                self._add(wide.size, _range(wide), (float(wide.sum()), float(np.square(wide).sum())))
                self._add_magnitude(wide)

    def _add(self, count: int, extremes: tuple[float, float], sums: tuple[float, float]) -> None:
        self.count += count
        self.low, self.high = min(self.low, extremes[0]), max(self.high, extremes[1])
        self.sum += sums[0]
        self.squares += sums[1]

    def _add_magnitude(self, block: Array) -> None:
        if self.magnitude is not None:
            self.magnitude += float(np.abs(block).sum(dtype=np.float64))


def _range(block: Array) -> tuple[float, float]:
    return float(np.minimum.reduce(block)), float(np.maximum.reduce(block))


def _products(block: Array) -> tuple[float, float]:
    """The sum, and the sum of squares, both as products: BLAS adds up three times as fast as `sum`."""
    pieces = block.reshape(-1, 1, min(block.size, STATISTICS_PIECE))
    ones = _ONES[block.dtype][: pieces.shape[2]]
    sums, squares = np.matmul(pieces, ones), np.matmul(pieces, pieces.transpose(0, 2, 1))
    return sum(sums.ravel().tolist()), sum(squares.ravel().tolist())


def _as_plain_floats(block: Array) -> Array:
    if block.dtype.kind == "c":
        block = np.abs(block)
    if block.dtype in (np.float32, np.float64):
        return block
    return block.astype(np.float32 if block.dtype.itemsize <= 2 and block.dtype.kind in "fV" else np.float64)


def sample_values(value: Array) -> NDArray[np.float64]:
    """Return up to 4096 values in float64; none of what is no number."""
    flat = np.asarray(value).reshape(-1)
    chosen = flat if flat.size <= SAMPLED_ELEMENTS else flat[_places(flat.size)]
    return chosen.astype(np.float64) if chosen.dtype.kind in "fiubV" else np.zeros(0)


@lru_cache(maxsize=1024)
def _places(size: int) -> NDArray[np.int64]:
    return np.random.default_rng(size).integers(0, size, SAMPLED_ELEMENTS)


def axis_orders(value: Array, places: NDArray[np.int64]) -> Iterator[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """Yield each order of the axes with what stands at these flat places then; of too many axes to try, their own."""
    orders = permutations(range(value.ndim)) if value.ndim <= MOST_PERMUTED_AXES else [tuple(range(value.ndim))]
    for order in orders:
        turned = value.transpose(order)
        yield order, turned[np.unravel_index(places, turned.shape)].astype(np.float64)


def relative_rms_distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Root mean square of the difference as a share of that of the first; infinite for unlike sizes and NaN."""
    if first.shape != second.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        share = float(np.sqrt(np.mean((first - second) ** 2) / np.mean(first**2)))
    return share if share == share else float("inf")


# One tensor in two layouts: channels first or last, batch first or last, axes merged or split.
#
# Which layout it is, is read off the values, and only where these leave no doubt: unrelated values are apart by more
# than their own size.


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
        """Find as `find_permuted_layout` does, or take what was found for other tensors of these shapes."""
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


# Other inputs like the given ones: drawn from their elements, and left as they are where they are masks or orders.


def inputs_drawn_from(inputs: Mapping[str, Array], seed: int, *, times: int = 1) -> dict[str, Array]:
    """Draw each input from its own elements, with so many `times` as many samples; masks and orders stay."""
    generator = np.random.default_rng(seed)
    more = {name: np.concatenate([one] * times) if one.ndim else one for name, one in inputs.items()}
    return {name: one if is_structure(one) else drawn_from(one, generator) for name, one in more.items()}


def is_structure(value: Array) -> bool:
    """Tell whether an input looks like a mask or an order."""
    if not value.size:
        return True
    low, high = value.min(), value.max()
    if low != high and ((value == low) | (value == high)).all():
        return True
    if value.dtype.kind not in "iu" or not value.ndim or value.shape[-1] < 2:
        return bool(value.dtype.kind == "b")
    earlier, later = value[..., :-1], value[..., 1:]
    return bool((earlier <= later).all() or (earlier >= later).all())


def drawn_from(value: Array, generator: np.random.Generator) -> Array:
    """Draw each element from all of them; floats that are all alike become normal ones of that size."""
    flat = value.reshape(-1)
    if not flat.size:
        return value
    if value.dtype.kind in "fcV" and (flat == flat[0]).all():
        size = abs(flat[0].astype(np.complex128)) or 1.0
        normal: Array = (size * generator.standard_normal(value.shape)).astype(value.dtype)
        return normal
    drawn: Array = flat[generator.integers(0, flat.size, flat.size)].reshape(value.shape)
    return drawn
