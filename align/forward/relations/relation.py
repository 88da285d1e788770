"""A relation between two arrays, what would have to be so for the one to become the other, and when it counts as found.

It must leave nothing above the limit, and what it puts right must be much more than what was chosen or fitted to get
there. An element that is put right gives log2(spread / limit) bits, since a wrong relation leaves an error of the size
of the spread; never more than the different values of the array can give. With as many fitted numbers as elements
anything explains everything: a fitted number must put four elements right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, log2
from typing import TYPE_CHECKING

import numpy as np

from align.core.measurements import smallest_factor
from align.forward.relation_thresholds import (
    ELEMENTS_PER_NUMBER,
    ENOUGH_BITS,
    LEAST_BITS_OF_ELEMENT,
    LEAST_RELATION_GAIN,
)
from align.measure.measure_arrays import measure
from align.measure.thresholds import SAMPLED_ELEMENTS

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.measurements import Limit

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
