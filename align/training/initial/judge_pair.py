"""Whether two parameters are drawn alike: constants exactly, what is random by a test of two samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from align.core.dtypes import EPSILON
from align.training.initial.name_distribution import fixed_places, is_orthogonal
from align.training.thresholds import EXACT_TEST_ELEMENTS, FIXED_BY_CHANCE_SHARE, OWN_VALUES_SHARE, ROUNDING_UNITS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.training.initial.draw_values import DrawnParameter
    from align.training.initial_values_result import InitialOutcome

# Values that do not depend on the seed may come out of another computation: a table of sines.
SAME_VALUES = ROUNDING_UNITS * EPSILON["float32"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a pair; the figures of the test are None where none was made."""

    outcome: InitialOutcome
    samples: int = 0
    statistic: float | None = None
    p_value: float | None = None
    note: str = ""


def judge_pair(ours: DrawnParameter, theirs: DrawnParameter) -> Judged:
    """Compare a pair; `same` still hangs on the p-value, where there is one."""
    if ours.whole.shape != theirs.whole.shape:
        return Judged("shapes differ", note=_shapes(ours.whole, theirs.whole))
    if ours.random != theirs.random:
        return Judged("random on one side")
    if not ours.random:
        return _compare_fixed(ours.whole, theirs.whole)
    if is_orthogonal(ours.whole) != is_orthogonal(theirs.whole):
        return Judged("structures differ", note=sentence("initial_note.orthogonal"))
    return _compare_random(ours.table, theirs.table)


def _compare_fixed(ours: Array, theirs: Array) -> Judged:
    one, other = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.abs(one).max(initial=0.0)
    unlike = ~(np.abs(other - one) <= SAME_VALUES * largest) & ~(np.isnan(one) & np.isnan(other))
    if not unlike.any():
        return Judged("same", one.size)
    note = sentence("initial_note.elements", unlike=int(np.count_nonzero(unlike)), count=one.size)
    return Judged("values differ", one.size, note=note)


def _shapes(ours: Array, theirs: Array) -> str:
    return sentence("initial_note.shapes", reference=str(list(ours.shape)), candidate=str(list(theirs.shape)))


def _compare_random(ours: Array, theirs: Array) -> Judged:
    """Places that hold one value in all builds must be the same on both sides; the others are pooled and tested."""
    fixed, others = fixed_places(ours), fixed_places(theirs)
    unlike = (fixed != others) | (fixed & others & (ours[0] != theirs[0]))
    if unlike.mean() > FIXED_BY_CHANCE_SHARE:
        note = sentence("initial_note.fixed", unlike=int(np.count_nonzero(unlike)), count=unlike.size)
        return Judged("structures differ", note=note)
    free = ~(fixed | others)
    ours, theirs = ours[:, free], theirs[:, free]
    first = [_first_places(side) for side in (ours, theirs)]
    if (first[0] is None) != (first[1] is None):
        return Judged("structures differ", note=sentence("initial_note.repeated"))
    if first[0] is not None:  # copies of one value would count several times
        ours, theirs = ours[:, first[0]], theirs[:, first[0]]
    one, other = ours.ravel(), theirs.ravel()
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return Judged("values differ", one.size, note=sentence("initial_note.not_finite"))
    test = stats.ks_2samp(one, other, method="auto" if one.size <= EXACT_TEST_ELEMENTS else "asymp")
    return Judged("same", one.size, float(test.statistic), float(test.pvalue))


def _first_places(table: Array) -> Array | None:
    """Where each value of a build stands first, if many are copies of others in every build; else None."""
    found = [np.unique(row, return_index=True)[1] for row in table]
    if any(places.size > OWN_VALUES_SHARE * table.shape[1] for places in found):
        return None
    return np.sort(found[0])
