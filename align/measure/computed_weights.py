"""Weights that one side computed of the other's: rounded, times a factor, with a number added, quantized and back.

The question that all relations are asked of stands here too: both tensors, some elements of each, and the dtype in
which they are compared, which is that of the side with fewer digits. Whole tensors are read in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from math import log2, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.core.parameters import EPSILON, dtype_name, numpy_dtype
from align.core.transforms import IDENTITY, Add, Cast, Scale, chained
from align.measure.thresholds import (
    BITS_OF_A_STEP,
    FEWEST_DISTINCT_WEIGHTS,
    GRID_DEVIATION,
    GROUPS_SAMPLED,
    LARGEST_QUANTIZED_WHOLE,
    LARGEST_UNIT_OF_STEP,
    LEAST_RELATION_BITS,
    LEAST_SPREAD_OF_RELATED,
    MOST_LEVELS,
    RELATED_BLOCK,
    SAMPLED_ELEMENTS,
    UNITS_OF_COMPUTED_WEIGHTS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array, Shape
    from align.core.transforms import Transform


class WeightRelation(NamedTuple):
    """What makes the candidate of the reference: its `id`, words, and the transform, None where no map can make it.

    `units` is how far elements may be off, in units of the last place of the coarser dtype; 0 where all are equal.
    """

    id: str
    says: str
    transform: Transform | None
    units: float = 0.0


@dataclass(frozen=True)
class WeightQuestion:
    """Both tensors, and the dtype in which they are compared: that of the coarser one, stored or by its values."""

    reference: Array
    candidate: Array

    @cached_property
    def samples(self) -> tuple[Array, Array]:
        """Elements of both at the same flat places, in float64."""
        return sampled(self.reference), sampled(self.candidate)

    @cached_property
    def stored(self) -> tuple[str, str]:
        """The dtypes of both."""
        return dtype_name(self.reference.dtype), dtype_name(self.candidate.dtype)

    @cached_property
    def grains(self) -> tuple[str, str]:
        """The coarsest dtype that holds all values of each side."""
        return _grain(self.reference), _grain(self.candidate)

    @cached_property
    def rounds(self) -> str:
        """The dtype of the side that is coarser than the other, "" where both have as many digits."""
        first, second = self.grains
        return "" if EPSILON[first] == EPSILON[second] else max(first, second, key=EPSILON.__getitem__)

    @property
    def unit(self) -> float:
        """Epsilon of the coarser side's digits."""
        return max(EPSILON[dtype] for dtype in self.grains)

    @property
    def cast(self) -> Transform:
        """What gives the reference the digits and the dtype of the candidate."""
        before, after = self.stored
        through = self.rounds if self.rounds == self.grains[1] else ""
        digits = Cast(through, before) if through and through not in (before, after) else IDENTITY
        dtype = through if digits is not IDENTITY else before
        return chained(digits, IDENTITY if dtype == after else Cast(after, dtype))

    def same(self, ours: Array, theirs: Array) -> bool:
        """Whether all elements of two views are equal in the coarser dtype."""
        if not self.rounds:
            return holds_everywhere(ours, theirs, lambda a, b: a == b)
        kind = numpy_dtype(self.rounds)
        return holds_everywhere(ours, theirs, lambda a, b: a.astype(kind) == b.astype(kind))

    def alike(self, ours: Array, theirs: Array) -> bool:
        """Whether some elements are equal in the coarser dtype."""
        kind = numpy_dtype(self.rounds) if self.rounds else np.dtype(np.float64)
        return bool(np.array_equal(ours.astype(kind), theirs.astype(kind)))

    def finished(self, change: Transform) -> Transform | None:
        """The change, then the digits and the dtype of the candidate; None where the candidate has more digits."""
        return None if self.rounds and self.rounds != self.grains[1] else chained(change, self.cast)


def informs(values: Array) -> bool:
    """Whether values have enough to say: some distinct ones, and so many bits together."""
    return bits_of(values) >= LEAST_RELATION_BITS and np.unique(values).size >= FEWEST_DISTINCT_WEIGHTS


def sampled(values: Array) -> Array:
    """Some elements in float64, at the same places of all tensors of one size."""
    flat = values.reshape(-1) if values.flags.c_contiguous else values.flat
    return np.asarray(flat[spread_places(values.size, SAMPLED_ELEMENTS)]).astype(np.float64)


def spread_places(size: int, most: int) -> Array:
    """At most so many flat places, all over a tensor: steps of no round number, which meet all columns of a matrix."""
    if size <= most:
        return np.arange(size)
    return np.sort(np.random.default_rng(0).integers(0, size, most))


def bits_of(values: Array) -> float:
    """What it takes to tell these values, if each is drawn as all are."""
    counts = np.unique(values, return_counts=True)[1]
    shares = counts / values.size
    return float(-(shares * np.log2(shares)).sum() * values.size)


_GRAINS = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "float32", "float64")


def _grain(values: Array) -> str:
    """The coarsest dtype that holds all values, at most the stored one."""
    stored, some = dtype_name(values.dtype), sampled(values)
    for name in _GRAINS:
        if EPSILON[name] <= EPSILON[stored]:
            break
        if _is_held(some, some, numpy_dtype(name)) and holds_everywhere(
            values, values, partial(_is_held, kind=numpy_dtype(name))
        ):
            return name
    return stored


def _is_held(values: Array, _: Array, kind: np.dtype[Any]) -> bool:
    """Whether a dtype holds all of these values."""
    return bool(np.all(values.astype(kind).astype(values.dtype) == values))


def holds_everywhere(values: Array, other: Array, holds: Callable[[Any, Any], Any]) -> bool:
    """Whether this holds of all elements of two views of one shape, asked block by block."""
    if values.flags.c_contiguous and other.flags.c_contiguous:
        values, other = values.reshape(-1), other.reshape(-1)
    step = rows_at_once(values.shape)
    return all(
        bool(np.all(holds(values[start : start + step], other[start : start + step])))
        for start in range(0, len(values), step)
    )


def rows_at_once(shape: Shape) -> int:
    """How many slices along the first axis make a block."""
    return max(1, RELATED_BLOCK // max(1, prod(shape[1:])))


def said_of(question: WeightQuestion, words: str) -> str:
    """The words, and that the values are rounded beside."""
    return sentence("weight_relation.rounded_too", relation=words, dtype=question.rounds) if question.rounds else words


# Rounded: the values of one side are those of the other in a dtype of fewer digits, kept as they are or widened again.


def explain_rounded(question: WeightQuestion) -> Iterator[WeightRelation]:
    """Yield the dtype through which the values of one side went."""
    if not question.rounds or question.reference.shape != question.candidate.shape:
        return
    ours, theirs = question.samples
    if question.alike(ours, theirs) and question.same(question.reference, question.candidate):
        forth = question.rounds == question.grains[1]
        key = "weight_relation.rounded" if forth else "weight_relation.reference_rounded"
        yield WeightRelation("rounded", sentence(key, dtype=question.rounds), question.cast if forth else None)
    elif question.rounds == "bfloat16" == question.grains[1] and question.stored == ("float32", "float32"):
        mask = np.uint32(0xFFFF0000)
        if holds_everywhere(
            question.reference, question.candidate, lambda a, b: (_bit_pattern(a) & mask) == _bit_pattern(b)
        ):
            yield WeightRelation("truncated", sentence("weight_relation.truncated"), None)


def _bit_pattern(values: Array) -> Array:
    return np.ascontiguousarray(values).view(np.uint32)


# Computed: one number added to all values, or one factor of them.


def explain_computed(question: WeightQuestion) -> Iterator[WeightRelation]:
    """Yield the one factor, or the one number added, that makes the candidate; none where they differ by rounding."""
    ours, theirs = question.samples
    if question.reference.shape != question.candidate.shape:
        return
    scale = max(float(np.abs(ours).max()), float(np.abs(theirs).max()))
    if not np.isfinite(scale) or not scale:
        return
    noise = 2 * UNITS_OF_COMPUTED_WEIGHTS * question.unit
    if bool(np.all(np.abs(ours - theirs) <= noise * np.maximum(np.abs(ours), np.abs(theirs)))):
        return  # the same numbers, rounded differently
    product = float(ours @ theirs) / (float(ours @ ours) or 1.0)
    middle = float(np.median(theirs - ours))
    if not any(_nearly(question, change, loose=True) for change in (Scale(product or 1.0), Add(middle))):
        return
    factors = [number for number in _near_numbers(question, product) if number and abs(number - 1.0) > noise]
    sums = [number for number in _near_numbers(question, middle) if abs(number) > noise * scale]
    changes: list[Scale | Add] = [*map(Scale, factors), *map(Add, sums)]
    for fits, units in ((_exactly, 0.0), (_nearly, UNITS_OF_COMPUTED_WEIGHTS)):
        if change := next(filter(partial(fits, question), changes), None):
            yield _computed_relation(question, change, units)
            return


def _computed_relation(question: WeightQuestion, change: Scale | Add, units: float) -> WeightRelation:
    before, after = question.stored
    steps = (question.cast, change) if EPSILON[after] < EPSILON[before] else (change, question.cast)  # in more digits
    if isinstance(change, Scale):
        words = sentence("weight_relation.scaled", factor=change.factor)
        return WeightRelation("scaled", words, chained(*steps), units)
    key = {1.0: "one_plus", -1.0: "minus_one"}.get(change.value, "shifted")
    return WeightRelation("shifted", sentence(f"weight_relation.{key}", value=change.value), chained(*steps), units)


def _near_numbers(question: WeightQuestion, estimate: float) -> Iterator[float]:
    """Numbers that people write near an estimate, the shortest first, also as each side's dtype holds them.

    Then come roots and fractions, and the estimate.
    """
    if not np.isfinite(estimate):
        return
    short = [float(f"{estimate:.{digits}g}") for digits in (1, 2, 3, 4, 6)]
    yield from dict.fromkeys(short)
    yield from dict.fromkeys(float(numpy_dtype(dtype).type(one)) for one in short for dtype in question.stored)
    if estimate:
        for power in (1.0, 2.0):  # 1/3, sqrt(64), 1/sqrt(64)
            size = abs(estimate) ** power
            root = round(max(size, 1.0 / size)) ** (1.0 / power)
            yield float(np.copysign(root if size >= 1.0 else 1.0 / root, estimate))
    yield estimate


def _exactly(question: WeightQuestion, change: Scale | Add) -> bool:
    """Whether the change makes all elements of the candidate, bit for bit."""
    kind = numpy_dtype(question.grains[1])

    def holds(a: Array, b: Array) -> Array:
        return np.asarray(change.apply(a.astype(np.float64)).astype(kind) == b.astype(kind))

    return bool(holds(*question.samples).all()) and holds_everywhere(question.reference, question.candidate, holds)


def _nearly(question: WeightQuestion, change: Scale | Add, *, loose: bool = False) -> bool:
    """Whether all elements are as near as rounding allows, and spread far more than that; `loose`: whether some are.

    What is added to says below which magnitude a sum is not known better.
    """
    floor = abs(change.value) if isinstance(change, Add) else 0.0
    allowed = UNITS_OF_COMPUTED_WEIGHTS * question.unit

    def holds(a: Array, b: Array) -> Array:
        wide, meant = b.astype(np.float64), change.apply(a.astype(np.float64))
        size = np.maximum(np.maximum(np.abs(meant), np.abs(wide)), floor)
        return np.asarray(np.abs(meant - wide) <= allowed * size)

    ours, theirs = question.samples
    if loose:
        allowed *= LEAST_SPREAD_OF_RELATED
        return bool(holds(ours, theirs).all())
    spread = float(theirs.std()) / (allowed * float(np.maximum(np.abs(theirs), floor).mean()))
    if spread < LEAST_SPREAD_OF_RELATED or (theirs.size - 1) * log2(spread) < LEAST_RELATION_BITS:
        return False
    return bool(holds(ours, theirs).all()) and holds_everywhere(question.reference, question.candidate, holds)


# Quantized and back: within each group the values are whole multiples of one step, next to those of the other side.


class _Levels(NamedTuple):
    """A grid: so many steps from zero to the largest magnitude, or from the least value to the largest."""

    bits: int
    steps: int
    symmetric: bool


_LEVELS = (
    *(_Levels(4, steps, True) for steps in (7, 8)),
    *(_Levels(4, steps, False) for steps in (15, 14)),
    *(_Levels(8, steps, True) for steps in (127, 128)),
    *(_Levels(8, steps, False) for steps in (255, 254)),
)


def explain_quantized(question: WeightQuestion) -> Iterator[WeightRelation]:
    """Yield with how many bits and which groups the candidate's values were quantized, and made floating again."""
    reference, candidate = question.reference, question.candidate
    if reference.shape != candidate.shape or not (reference.flags.c_contiguous and candidate.flags.c_contiguous):
        return
    for group, width in _groupings(candidate.shape):
        values, beside = candidate.reshape(-1, width), reference.reshape(-1, width)
        if group == "tensor" and np.unique(question.samples[1]).size > MOST_LEVELS:
            continue
        some = spread_places(len(values), GROUPS_SAMPLED)
        near, rows = values[some].astype(np.float64), beside[some].astype(np.float64)
        for levels in _LEVELS:
            if not _is_told(near, levels, question.unit) or not _on_grid(near, rows, levels):
                continue
            if not _on_grid(rows, rows, levels) and _all_on_grid(values, beside, levels):
                facts = {"bits": levels.bits, "group": sentence(f"quantized_by.{group}", width=width)}
                yield WeightRelation("quantized", sentence("weight_relation.quantized", **facts), None)
                return


def _all_on_grid(values: Array, beside: Array, levels: _Levels) -> bool:
    step = rows_at_once(values.shape)
    return all(
        _on_grid(values[at : at + step].astype(np.float64), beside[at : at + step].astype(np.float64), levels)
        for at in range(0, len(values), step)
    )


def _groupings(shape: Shape) -> Iterator[tuple[str, int]]:
    size, last = prod(shape), shape[-1] if shape else 1
    if size <= LARGEST_QUANTIZED_WHOLE:
        yield "tensor", size
    if len(shape) > 1:
        yield "row", size // shape[0]
    for width in (256, 128, 64, 32):
        if width < last and last % width == 0:
            yield "group", width


def _steps(values: Array, levels: _Levels) -> tuple[Array, Array, Array]:
    """Which rows have steps, how long they are there, and the place of each value of these rows in steps."""
    low = np.zeros(len(values)) if levels.symmetric else values.min(1)
    step = (np.abs(values).max(1) if levels.symmetric else values.max(1) - low) / levels.steps
    live = step > 0
    return live, step[live, None], (values[live] - low[live, None]) / step[live, None]


def _inside(places: Array, levels: _Levels) -> Array:
    """Which values lie on no last step, where what was beyond it went too."""
    whole = np.rint(places)
    inside: Array = np.abs(whole) < levels.steps if levels.symmetric else (whole > 0) & (whole < levels.steps)
    return inside


def _is_told(values: Array, levels: _Levels, unit: float) -> bool:
    """Whether so many values would not lie on steps by chance, and steps are far longer than what is rounded."""
    live, step, places = _steps(values, levels)
    inside = _inside(places, levels)
    if not inside.any() or np.any(np.abs(values[live]).max(1) * unit > step[:, 0] * LARGEST_UNIT_OF_STEP):
        return False
    kinds = np.unique(np.rint(places[inside])).size
    return kinds >= FEWEST_DISTINCT_WEIGHTS and int(inside.sum()) * BITS_OF_A_STEP >= LEAST_RELATION_BITS


def _on_grid(values: Array, beside: Array, levels: _Levels) -> bool:
    """Whether each row has steps of its own on which all its values lie, next to those beside them."""
    live, step, places = _steps(values, levels)
    off = np.abs(beside[live] - values[live]) / step
    near = off[_inside(places, levels)] <= 0.5 + GRID_DEVIATION
    on_steps = np.abs(places - np.rint(places)) <= GRID_DEVIATION
    return bool(on_steps.all() and near.all() and np.all(off <= levels.steps / 4))
