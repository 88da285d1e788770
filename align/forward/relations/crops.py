"""Whether the candidate is the reference seen through another window: displaced along two axes, cut along one."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.relation import Question, Relation, agreement, at_places, sample_places, with_facts
from align.forward.thresholds import FARTHEST_DISPLACEMENT, FIRST_LOOK_AT_CUT, MOST_CUT_OFFSETS, SHORTEST_DISPLACED_AXIS
from align.measure.thresholds import SAMPLED_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.forward.relations.relation import Fact


def explain_displaced(question: Question) -> Iterator[Relation]:
    """Yield a displacement by a pixel or two along two neighbouring axes at once; along one it is an order."""
    steps = [one for one in range(-FARTHEST_DISPLACEMENT, FARTHEST_DISPLACEMENT + 1) if one]
    for axis in range(question.reference.ndim - 1):
        if min(question.reference.shape[axis : axis + 2]) >= SHORTEST_DISPLACED_AXIS:
            found = (_displaced(question, axis, by) for by in product(steps, steps) if _likely(question, axis, by))
            yield from (one for one in found if one)


def _likely(question: Question, axis: int, by: tuple[int, int]) -> bool:
    """Compare some elements, as far from the border as any displacement reaches."""
    shape = [
        length - 2 * FARTHEST_DISPLACEMENT * (axis <= one <= axis + 1)
        for one, length in enumerate(question.reference.shape)
    ]
    places = [*np.unravel_index(sample_places(prod(shape), SAMPLED_ELEMENTS), shape)]
    for one in (axis, axis + 1):
        places[one] = places[one] + FARTHEST_DISPLACEMENT
    reference = question.reference[tuple(places)]
    for one, step in zip((axis, axis + 1), by, strict=True):
        places[one] = places[one] + step
    return bool(np.all(np.abs(question.candidate[tuple(places)] - reference) <= question.limit.max_abs))


def _displaced(question: Question, axis: int, by: tuple[int, int]) -> Relation | None:
    still, moved = (
        (
            *[slice(None)] * axis,
            *(slice(FARTHEST_DISPLACEMENT + one, one - FARTHEST_DISPLACEMENT or None) for one in steps),
        )
        for steps in ((0, 0), by)
    )
    part = Question(question.reference[still], question.candidate[still], question.limit)
    found = part.confirm("displaced", question.candidate[moved])
    share = part.reference.size / question.reference.size
    return with_facts(found, {"axes": f"{axis},{axis + 1}", "by": f"{by[0]},{by[1]}"}, share)


def explain_cut(reference: Array, candidate: Array, limit: Limit) -> Iterator[Relation]:
    """Yield where the one is the other without some slices at the ends of one axis."""
    odd = [axis for axis, (a, b) in enumerate(zip(reference.shape, candidate.shape, strict=False)) if a != b]
    if reference.ndim != candidate.ndim or len(odd) != 1:
        return
    axis = odd[0]
    lengths = reference.shape[axis], candidate.shape[axis]
    for offset in range(min(abs(lengths[0] - lengths[1]), MOST_CUT_OFFSETS) + 1):
        window = (*[slice(None)] * axis, slice(offset, offset + min(lengths)))
        parts = [one[window] if one.shape[axis] > min(lengths) else one for one in (reference, candidate)]
        some = sample_places(parts[0].size, FIRST_LOOK_AT_CUT)
        near = np.all(np.abs(at_places(parts[0], some) - at_places(parts[1], some)) <= limit.max_abs)
        left = agreement(parts[0], parts[1], limit) if near else None
        if left is not None:
            facts: dict[str, Fact] = {"axis": axis, "reference": lengths[0], "candidate": lengths[1], "offset": offset}
            yield Relation("cut" if lengths[1] < lengths[0] else "extended", left, facts=facts)
            return
