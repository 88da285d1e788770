"""A relation between two arrays, what would have to be so for the one to become the other, and when it counts as found.

It must leave nothing above the limit, and what it puts right must be much more than what was chosen or fitted to get
there. An element that is put right gives log2(spread / limit) bits, since a wrong relation leaves an error of the size
of the spread; never more than the different values of the array can give. With as many fitted numbers as elements
anything explains everything: a fitted number must put four elements right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import inf, isqrt, log2, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.traces import smallest_factor
from align.forward.thresholds import (
    ELEMENTS_PER_NUMBER,
    ENOUGH_BITS,
    LEAST_BITS_OF_ELEMENT,
    LEAST_KEPT_FEATURES,
    LEAST_PART_LENGTH,
    LEAST_RELATION_GAIN,
    LONGEST_KEPT_AXIS,
    MOST_LISTED_PLACES,
    MOST_REORDERED_PARTS,
    MOST_UNEQUAL_PARTS,
    SLICE_COLUMNS,
    SLICE_TABLE_CELLS,
)
from align.measure.measure_arrays import measure
from align.measure.thresholds import SAMPLED_ELEMENTS
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array
    from align.core.traces import Limit


Fact = int | float | str


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation, with its figures.

    `id` names it (`permuted`, `bias-missing`; docs/causes.md lists them). `factor` is the multiple of the limit that
    is left once the relation is taken into account, over the `share` of the elements that it speaks of: <= 1 explains
    these. `fitted` counts the numbers that were read off the data.
    """

    id: str
    factor: float
    share: float = 1.0
    fitted: int = 0
    facts: dict[str, Fact] = field(default_factory=dict)

    @property
    def explains(self) -> bool:
        """True if nothing is left to explain: all elements are within the limit."""
        return self.factor <= 1.0 and self.share == 1.0


@dataclass(frozen=True)
class Question:
    """Why does the candidate differ from the reference by more than its limit? Real floating arrays, without NaN."""

    reference: Array
    candidate: Array
    limit: Limit

    @cached_property
    def factor(self) -> float:
        """Multiple of the limit that the candidate needs as it is."""
        if self.reference.shape != self.candidate.shape:
            return inf
        return smallest_factor(measure(self.reference, self.candidate), self.limit)

    @cached_property
    def wrong(self) -> int:
        """How many elements differ by more than the typical error allowed."""
        if self.reference.shape != self.candidate.shape:
            return self.reference.size
        return int(np.count_nonzero(np.abs(self.reference - self.candidate) > self.limit.rmse))

    @cached_property
    def places(self) -> Array:
        """Flat indices of up to SAMPLED_ELEMENTS elements, the same for the same size, in ascending order."""
        return sample_places(self.reference.size, SAMPLED_ELEMENTS)

    def confirm(
        self, name: str, predicted: Array, *, fitted: int = 0, choice_bits: float = 0.0, wrong: int | None = None
    ) -> Relation | None:
        """The relation, if the prediction of the reference is right and could not be so by chance.

        `choice_bits` is the logarithm of the number of relations among which this one was looked for, `wrong` the
        number of elements that it puts right, where that is not all that were wrong.
        """
        mended = self.wrong if wrong is None else wrong
        if mended < ELEMENTS_PER_NUMBER * fitted or mended * self.bits < ENOUGH_BITS + choice_bits:
            return None
        left = smallest_factor(measure(self.reference, predicted), self.limit)
        return Relation(name, left, fitted=fitted) if left <= min(1.0, self.factor / LEAST_RELATION_GAIN) else None

    @cached_property
    def bits(self) -> float:
        """How many bits one element of the reference gives; 0 where the limit leaves none."""
        return information_bits(self.sample, self.limit)

    def fits(self, predicted: Array) -> bool:
        """Whether a prediction of the sample (at `places`) is within the limit: a quick look before the whole."""
        return bool(np.all(np.abs(self.sample - predicted) <= self.limit.max_abs))

    @cached_property
    def sample(self) -> Array:
        """The reference's values at `places`."""
        return at_places(self.reference, self.places)

    @cached_property
    def candidate_sample(self) -> Array:
        """The candidate's values there."""
        return at_places(self.candidate, self.places)


def agreement(reference: Array, candidate: Array, limit: Limit) -> float | None:
    """Multiple of the limit at which two arrays agree; None if they do not, or might by chance."""
    left = smallest_factor(measure(reference, candidate), limit)
    sample = reference.reshape(-1)[sample_places(reference.size, SAMPLED_ELEMENTS)]
    return left if left <= 1.0 and reference.size * information_bits(sample, limit) >= ENOUGH_BITS else None


def at_places(values: Array, places: Array) -> Array:
    """Elements of an array, or of a view of one, at flat indices, in float64."""
    view = np.atleast_1d(values)
    found: Array = view[np.unravel_index(places, view.shape)].astype(np.float64)
    return found


def sample_places(size: int, count: int) -> Array:
    """Up to `count` of `size` places, drawn once and for all, ascending."""
    if size <= count:
        return np.arange(size)
    places: Array = np.unique(np.random.default_rng(0).integers(0, size, count))
    return places


def information_bits(values: Array, limit: Limit) -> float:
    """Bits that one of these values gives, if it is known to within the limit."""
    different, spread = np.unique(values).size, float(values.std(dtype=np.float64)) if values.size else 0.0
    if spread == 0.0:
        return 0.0
    ratio = spread / limit.rmse if limit.rmse > 0.0 else inf
    by_limit = log2(ratio) if ratio > 0.0 else 0.0  # 0 of a limit without end, NaN of values beyond all numbers
    return min(by_limit, log2(different)) if by_limit >= LEAST_BITS_OF_ELEMENT else 0.0


def with_facts(found: Relation | None, facts: dict[str, Fact], share: float = 1.0) -> Relation | None:
    """The relation, if there is one, with its figures."""
    return found and replace(found, share=share, facts=facts)


# Reductions and attention over a part of the positions: how many each sample keeps, read off the values.
#
# A mask of padding keeps the first positions of each sample, an inverted one those behind. How many, the reference's
# own value shows, since one number fits a sample only by what it keeps; then what the candidate keeps is asked.

# What keeps a part of the positions, and the same of all of them.
WHOLE = {
    "kept_form.mean_first": "kept_form.mean_all",
    "kept_form.mean_last": "kept_form.mean_all",
    "kept_form.sum_first": "kept_form.sum_all",
    "kept_form.sum_first_of_all": "kept_form.mean_all",
    "kept_form.keys_first": "kept_form.keys_all",
    "kept_form.keys_last": "kept_form.keys_all",
}


def explain_kept_means(question: Question, value: Array) -> Iterator[Relation]:
    """Yield `padding-differs` where both are means over axis 1, of other positions or divided by another number."""
    shape = question.reference.shape
    length = value.shape[1] if value.ndim > 2 else 0
    other = value.ndim != len(shape) + 1 or value.shape[:1] + value.shape[2:] != shape
    if other or not 1 < length <= LONGEST_KEPT_AXIS or prod(shape[1:]) < LEAST_KEPT_FEATURES:
        return
    ways = _means(value.astype(np.float64))
    ours, theirs = (_found(side, ways, question) for side in (question.reference, question.candidate))
    if ours and theirs and ours != theirs:
        facts: dict[str, Fact] = {"axis": 1, "reference": ours, "candidate": theirs}
        yield Relation("padding-differs", 0.0, facts=facts)


def _means(value: Array) -> dict[str, Array]:
    """For each name what each number of kept positions makes: (number, sample, ...)."""
    length = value.shape[1]
    counts = np.arange(1, length + 1).reshape(-1, *([1] * (value.ndim - 1)))
    sums = np.moveaxis(np.cumsum(value, 1), 1, 0)
    behind = np.moveaxis(np.cumsum(value[:, ::-1], 1), 1, 0)
    return {
        "kept_form.mean_first": sums / counts,
        "kept_form.mean_last": behind / counts,
        "kept_form.sum_first": sums,
        "kept_form.sum_first_of_all": sums / length,
    }


def _found(output: Array, ways: dict[str, Array], question: Question) -> str:
    """What makes an output, in words; "" if nothing does."""
    for key, made in ways.items():
        if kept := kept_numbers(output, made, question):
            whole = {*kept} == {len(made)}
            return sentence(WHOLE[key]) if whole else sentence(key, numbers=listed(kept), length=len(made))
    return ""


def kept_numbers(output: Array, by_number: Array, question: Question) -> list[int]:
    """For each sample the largest number of kept positions whose value is right; [] if one has none."""
    over = tuple(range(2, by_number.ndim))
    near = np.abs(by_number - output).max(axis=over) <= question.limit.max_abs  # (number, sample)
    if not near.any(0).all():
        return []
    kept = len(by_number) - np.argmax(near[::-1], axis=0)
    whole = by_number[kept - 1, np.arange(by_number.shape[1])]
    return [] if agreement(output, whole, question.limit) is None else [int(one) for one in kept]


def listed(numbers: list[int]) -> str:
    """The first of some numbers in words."""
    shown = joined(", ", [str(one) for one in numbers[:MOST_LISTED_PLACES]])
    return f"{shown}, ..." if len(numbers) > MOST_LISTED_PLACES else f"{shown}"


def explain_kept_keys(question: Question, mixed: Callable[[int, int], Array], length: int) -> Iterator[Relation]:
    """Yield `attention-mask` where each sample attends to other keys; `mixed(first, stop)` attends to these alone."""
    if not 1 < length <= LONGEST_KEPT_AXIS:
        return
    first = np.stack([mixed(0, stop) for stop in range(1, length + 1)])
    last = np.stack([mixed(start, length) for start in range(length - 1, -1, -1)])
    ways = {"kept_form.keys_first": first, "kept_form.keys_last": last}
    ours, theirs = (_found(side, ways, question) for side in (question.reference, question.candidate))
    if ours and theirs and ours != theirs:
        yield Relation("attention-mask", 0.0, facts={"reference": ours, "candidate": theirs})


# A tensor seen as slices along one axis (channels, rows, positions), each known by some of its elements.
#
# An order of slices has a name: flipped, rolled, two swapped, parts in another order, interleaved.


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
