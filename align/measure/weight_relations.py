"""How two tensors of weights are related where they differ: moved, padded, zeroed, or computed of each other.

A kind is first asked of a few elements, or of the beginnings of rows, and holds only if all elements confirm it: bit
for bit, or where it is computed within two units of the last place. Tensors that say too little, such as constants,
have no relation: what would hold of any tensor explains nothing.
"""

from __future__ import annotations

from itertools import permutations
from math import gcd, lgamma, log, log2, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import EPSILON, dtype_name, is_float, numpy_dtype
from align.core.piece_transforms import Crop, Pad, Reorder
from align.core.transforms import IDENTITY, Permute, Reshape, chained
from align.measure.computed_weights import (
    WeightQuestion,
    WeightRelation,
    bits_of,
    explain_computed,
    explain_quantized,
    explain_rounded,
    holds_everywhere,
    informs,
    rows_at_once,
    said_of,
    sampled,
    spread_places,
)
from align.measure.thresholds import (
    GROUPS_SAMPLED,
    LEAST_RELATION_BITS,
    MOST_PERMUTED_AXES,
    MOST_WRITTEN_BLOCKS,
    PREFIX_OF_SLICE,
    SAMPLED_ELEMENTS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array, Shape
    from align.core.transforms import Transform


def relate_weights(reference: Array, candidate: Array) -> tuple[WeightRelation, ...]:
    """Return the relations of two floating tensors that differ, none where nothing is confirmed.

    Several mean that these values do not tell which it is. Shapes may differ.

    >>> weight = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    >>> [found.id for found in relate_weights(weight, np.ascontiguousarray(weight.T))]
    ['transposed']
    >>> [found.transform for found in relate_weights(weight, 1 + weight)]
    [Add(value=1.0)]
    """
    if not all(is_float(dtype_name(side.dtype)) for side in (reference, candidate)) or not reference.size:
        return ()
    with np.errstate(all="ignore"):
        question = WeightQuestion(reference, candidate)
        if not candidate.size or not all(map(informs, question.samples)):
            return ()
        exact = tuple(_first(question, (explain_rounded, _moved, _ordered, _padded, _zeroed)))
        return exact or tuple(_first(question, (explain_computed, explain_quantized)))


def sample_key(values: Array, dtype: str) -> bytes | None:
    """The bytes of a few elements in this dtype, by which equal tensors of one shape are known; None of a constant."""
    flat = values.reshape(-1) if values.flags.c_contiguous else values.flat
    with np.errstate(all="ignore"):
        some = np.asarray(flat[spread_places(values.size, GROUPS_SAMPLED)]).astype(numpy_dtype(dtype))
    return None if not some.size or bool((some == some[0]).all()) else some.tobytes()


def equal_weights(values: Array, other: Array, dtype: str) -> bool:
    """Whether all elements of two tensors of one shape are equal in this dtype, and say enough."""
    kind = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        return informs(sampled(values)) and holds_everywhere(
            values, other, lambda a, b: a.astype(kind) == b.astype(kind)
        )


def _first(
    question: WeightQuestion, kinds: tuple[Callable[[WeightQuestion], Iterator[WeightRelation]], ...]
) -> list[WeightRelation]:
    """The relations of the first kind that has any: what is rounded alone is not looked at as moved as well."""
    for kind in kinds:
        if found := list(kind(question)):
            return found
    return []


# Moved: axes in another order, or another shape.


def _moved(question: WeightQuestion) -> Iterator[WeightRelation]:
    reference, candidate = question.reference, question.candidate
    if reference.size != candidate.size:
        return
    if reference.shape != candidate.shape and question.alike(*question.samples):
        flat = reference.reshape(candidate.shape)
        if question.same(flat, candidate):
            change = question.finished(Reshape(candidate.shape, reference.shape))
            facts = {"before": str(list(reference.shape)), "after": str(list(candidate.shape))}
            yield WeightRelation("reshaped", said_of(question, sentence("weight_relation.reshaped", **facts)), change)
            return
    kept = tuple(length for length in reference.shape if length > 1)
    wanted = tuple(length for length in candidate.shape if length > 1)
    if not 1 < len(kept) <= MOST_PERMUTED_AXES or sorted(kept) != sorted(wanted):
        return
    view, places = reference.reshape(kept), spread_places(candidate.size, SAMPLED_ELEMENTS)
    for axes in permutations(range(len(kept))):
        turned = view.transpose(axes)
        if list(axes) == sorted(axes) or turned.shape != wanted:
            continue
        if not question.alike(turned[np.unravel_index(places, wanted)], question.samples[1]):
            continue
        if question.same(turned, candidate.reshape(wanted)):
            yield _turned(question, kept, axes)


def _turned(question: WeightQuestion, kept: Shape, axes: tuple[int, ...]) -> WeightRelation:
    before, after = question.reference.shape, question.candidate.shape
    wanted = tuple(kept[axis] for axis in axes)
    change = chained(
        IDENTITY if before == kept else Reshape(kept, before),
        Permute(axes),
        IDENTITY if after == wanted else Reshape(after, wanted),
    )
    key = "weight_relation.transposed" if len(axes) == 2 else "weight_relation.axes"
    words = sentence(key, axes=str(list(axes)))
    return WeightRelation("transposed", said_of(question, words), question.finished(change))


# In another order: slices along an axis stand at other places.


def _ordered(question: WeightQuestion) -> Iterator[WeightRelation]:
    """Slices are known by a sum over their bits: the same sums on both sides are the same slices, found in O(n log n).

    The beginnings of all slices are looked at first.
    """
    if question.reference.shape != question.candidate.shape:
        return
    for axis, length in enumerate(question.reference.shape):
        if length < 2:
            continue
        views = [np.moveaxis(side, axis, 0) for side in (question.reference, question.candidate)]
        starts = [_slice_sums(question, _beginning(view)) for view in views]
        if not np.array_equal(np.sort(starts[0]), np.sort(starts[1])):
            continue
        sums = [_slice_sums(question, view) for view in views]
        if not np.array_equal(np.sort(sums[0]), np.sort(sums[1])):
            continue
        order = np.empty(length, np.int64)
        order[np.argsort(sums[1], kind="stable")] = np.argsort(sums[0], kind="stable")
        if _says_enough(question, axis, order) and _in_order(question, views, order):
            yield _order_relation(question, axis, order)


def _says_enough(question: WeightQuestion, axis: int, order: Array) -> bool:
    """Whether what moved holds more than it takes to choose an order of it: of few levels any two have one."""
    moved = int(np.count_nonzero(order != np.arange(len(order))))
    some, digits = question.samples[1], EPSILON[max(question.grains, key=EPSILON.__getitem__)]
    bits = bits_of(some) / some.size
    if np.unique(some).size == some.size and digits <= EPSILON["float16"]:
        bits = max(bits, -log2(digits))
    blocks = len(order) // _block_length(order)
    elements = moved * (question.candidate.size // question.candidate.shape[axis])
    return moved > 0 and bits * elements - lgamma(min(blocks, moved) + 1) / log(2) >= LEAST_RELATION_BITS


def _block_length(order: Array) -> int:
    """The largest length of blocks that stay together."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(order) != 1) + 1])
    return gcd(len(order), *map(int, starts), *map(int, order[starts]))


def _beginning(view: Array) -> Array:
    """The first elements of each slice."""
    index, left = [slice(None)] * view.ndim, PREFIX_OF_SLICE
    for axis in range(view.ndim - 1, 0, -1):
        index[axis] = slice(0, left)
        left = max(1, left // view.shape[axis])
    return view[tuple(index)]


def _slice_sums(question: WeightQuestion, view: Array) -> Array:
    """A number of 64 bits for each slice, made of all bits of all its elements and of their order."""
    width = prod(view.shape[1:])
    kind = numpy_dtype(question.rounds) if question.rounds else np.dtype(np.float64)
    words = np.dtype(f"u{kind.itemsize}")
    factors = np.random.default_rng(0).integers(0, 1 << 63, width, np.uint64) * np.uint64(2) + np.uint64(1)
    sums = np.empty(len(view), np.uint64)
    step = rows_at_once((len(view), width))
    for start in range(0, len(view), step):
        block = view[start : start + step].astype(kind) + kind.type(0)  # -0.0 is 0.0
        bits = np.ascontiguousarray(block.astype(kind)).view(words).reshape(len(block), width).astype(np.uint64)
        bits ^= bits >> np.uint64(29)
        sums[start : start + step] = ((bits * factors) ^ (bits >> np.uint64(7)) * factors[::-1]).sum(1, np.uint64)
    return sums


def _in_order(question: WeightQuestion, views: list[Array], order: Array) -> bool:
    step = rows_at_once(views[0].shape)
    return all(
        question.same(views[0][order[start : start + step]], views[1][start : start + step])
        for start in range(0, len(order), step)
    )


def _order_relation(question: WeightQuestion, axis: int, order: Array) -> WeightRelation:
    """The order in words, by the largest blocks that stay together, and as a transform."""
    shape = question.reference.shape
    block = _block_length(order)
    blocks = order[::block] // block
    facts: dict[str, Any] = {"axis": axis, "count": len(blocks), "block": block}
    if grid := _grid(blocks):
        facts |= dict(zip(("outer", "first", "second"), grid, strict=True))
        words = said_of(question, sentence("weight_relation.interleaved", **facts))
        return WeightRelation("interleaved", words, question.finished(_exchange(shape, axis, (*grid, block))))
    reorder: Transform = Reorder(axis, tuple(map(int, blocks)))
    if len(blocks) == 2:
        words = sentence("weight_relation.halves", axis=axis)
        return WeightRelation("halves-exchanged", said_of(question, words), question.finished(reorder))
    kind = "blocks" if block > 1 else "slices"
    moved = int(np.count_nonzero(blocks != np.arange(len(blocks))))
    words = said_of(question, sentence(f"weight_relation.{kind}", moved=moved, **facts))
    written = len(blocks) <= MOST_WRITTEN_BLOCKS
    return WeightRelation("permuted", words, question.finished(reorder) if written else None)


def _exchange(shape: Shape, axis: int, sizes: tuple[int, ...]) -> Transform:
    """Read an axis as four, of which those of one entry are left out, and exchange the two in the middle."""
    kept = [place for place, size in enumerate(sizes) if size > 1]
    rows = (*shape[:axis], *(sizes[place] for place in kept), *shape[axis + 1 :])
    swapped = (axis + kept.index(place) for place in (0, 2, 1, 3) if place in kept)
    axes = (*range(axis), *swapped, *range(axis + len(kept), len(rows)))
    after = tuple(rows[place] for place in axes)
    return chained(Reshape(rows, shape), Permute(axes), Reshape(shape, after))


def _grid(order: Array) -> tuple[int, int, int] | None:
    """Sizes (a, b, c) by which an order is that of a grid whose last two axes are exchanged; None if it is no such."""
    if len(order) < 4 or order[0] or order[1] < 2:
        return None
    second = int(order[1])
    steps = np.flatnonzero(order != np.arange(len(order)) * second)
    first = int(steps[0]) if steps.size else len(order)
    outer, rest = divmod(len(order), first * second)
    if rest or first < 2:
        return None
    meant = np.arange(len(order)).reshape(outer, first, second).swapaxes(1, 2).ravel()
    return (outer, first, second) if np.array_equal(order, meant) else None


# Padded and zeroed: the one has more rows, or zeros in the place of values.


def _padded(question: WeightQuestion) -> Iterator[WeightRelation]:
    sides = question.reference, question.candidate
    shapes = [side.shape for side in sides]
    odd = [axis for axis, (a, b) in enumerate(zip(*shapes, strict=False)) if a != b]
    if len(shapes[0]) != len(shapes[1]) or len(odd) != 1:
        return
    axis, (before, after) = odd[0], (shape[odd[0]] for shape in shapes)
    less, more = sorted((before, after))
    head = (*[slice(None)] * axis, slice(0, less))
    ours, theirs = (side[head] for side in sides)
    if not informs(sampled(ours)) or not question.alike(sampled(ours), sampled(theirs)):
        return
    if not question.same(ours, theirs):
        return
    tail = (sides[0] if before == more else sides[1])[(*[slice(None)] * axis, slice(less, None))]
    value = float(tail[(0,) * tail.ndim])
    constant = bool(np.isfinite(value)) and holds_everywhere(tail, tail, lambda a, _: a == tail.dtype.type(value))
    facts = {"axis": axis, "count": more - less, "value": value}
    kind = "longer" if after == more else "shorter"
    words = sentence(f"weight_relation.{kind}{'' if constant else '_by_own'}", **facts)
    change: Transform = Crop(axis, after, value if constant else 0.0, before)
    if kind == "longer":
        change = Pad(axis, after, value, before)
    possible = kind == "shorter" or constant
    name = "padded" if kind == "longer" else "cropped"
    yield WeightRelation(name, said_of(question, words), question.finished(change) if possible else None)


def _zeroed(question: WeightQuestion) -> Iterator[WeightRelation]:
    """One side is zero where the other is not, and all else is equal."""
    if question.reference.shape != question.candidate.shape:
        return
    for side, (zeros, whole) in enumerate((question.samples, question.samples[::-1])):
        equal = whole[zeros != 0]
        if np.any((zeros != whole) & (zeros != 0)) or not informs(equal):
            continue
        sides = question.reference, question.candidate
        empty, full = sides if side == 0 else sides[::-1]
        fits = holds_everywhere(empty, full, lambda a, b: (a == b) | (a == 0))
        if fits and not holds_everywhere(empty, full, lambda a, b: a == b):
            yield _zero_relation(question, side, empty, full)


def _zero_relation(question: WeightQuestion, side: int, zeros: Array, whole: Array) -> WeightRelation:
    name = ("reference", "candidate")[side]
    for axis, length in enumerate(zeros.shape if zeros.ndim > 1 else ()):
        other, empty = _slices_that_differ(np.moveaxis(zeros, axis, 0), np.moveaxis(whole, axis, 0))
        if not np.any(other & ~empty) and np.count_nonzero(other) < length:
            return _zero_rows(question, name, axis, np.flatnonzero(other))
    step = rows_at_once(zeros.shape)
    starts = range(0, len(zeros), step)
    count = sum(int(np.count_nonzero(zeros[at : at + step] != whole[at : at + step])) for at in starts)
    facts = {"side": name, "count": count, "total": zeros.size}
    return WeightRelation("zero-elements", sentence("weight_relation.zero_elements", **facts), None)


def _slices_that_differ(zeros: Array, whole: Array) -> tuple[Array, Array]:
    """For each slice along the first axis whether it differs, and whether it is all zero on the first side."""
    step, rest = rows_at_once(zeros.shape), tuple(range(1, zeros.ndim))
    starts = range(0, len(zeros), step)
    other = [(zeros[start : start + step] != whole[start : start + step]).any(rest) for start in starts]
    empty = [(zeros[start : start + step] == 0).all(rest) for start in starts]
    return np.concatenate(other), np.concatenate(empty)


def _zero_rows(question: WeightQuestion, side: str, axis: int, rows: Array) -> WeightRelation:
    length = question.reference.shape[axis]
    first = int(rows[0])
    tail = first + len(rows) == length and first > 0
    facts = {"side": side, "axis": axis, "count": len(rows), "length": length, "first": first, "last": int(rows[-1])}
    words = sentence("weight_relation.zero_tail" if tail else "weight_relation.zero_rows", **facts)
    change = chained(Crop(axis, first, 0.0, length), Pad(axis, length, 0.0, first))
    return WeightRelation("zero-rows", words, question.finished(change) if tail and side == "candidate" else None)
