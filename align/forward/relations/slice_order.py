"""Whether the candidate's slices along an axis are the reference's in another order, all of them or most.

Slices are put in a row by a sum of some of their elements with random weights: those that are one stand at the same
place of both rows, or close to it, so that all are found in O(n log n). A slice that is right where it stands is never
moved: zero channels are all alike.
"""

from __future__ import annotations

from math import lgamma, log, log2
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.describe_slice_order import describe_order
from align.forward.relations.relation import Question, with_facts
from align.forward.relations.slices import slice_tables
from align.forward.thresholds import LONGEST_ORDER_OF_NUMBERS, MOST_OF_SLICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Relation

STEPS = (0, -1, 1, -2, 2, -3, 3)  # no limit: what is tried, nearest first


def explain_order(question: Question) -> Iterator[Relation]:
    """Yield one relation for each axis along which slices stand in each other's places."""
    for axis, reference, candidate in slice_tables(question.reference, question.candidate):
        if reference.shape[1] == 1 and len(reference) > LONGEST_ORDER_OF_NUMBERS:
            continue  # so many numbers lie closer than the limit: no order of them shows
        order = find_order(reference, candidate, question.limit.max_abs)
        known = order >= 0
        if np.count_nonzero(known) >= MOST_OF_SLICES * order.size and (found := _confirmed(question, axis, order)):
            yield found


def find_order(reference: Array, candidate: Array, allowed: float) -> Array:
    """For each slice of the candidate, the place of the reference's slice that it is, each used once; -1: none.

    Both are tables (slice, element); two slices are one if no element differs by more than `allowed`.
    """
    right = np.abs(reference - candidate).max(1) <= allowed
    order = np.where(right, np.arange(len(reference)), -1)
    view = np.random.default_rng(0).standard_normal(reference.shape[1])
    places = np.flatnonzero(~right)
    ours, theirs = (places[np.argsort(table[places] @ view, kind="stable")] for table in (reference, candidate))
    near = np.searchsorted(reference[ours] @ view, candidate[theirs] @ view)
    free = ~right
    for ranks in (np.arange(places.size), *(near + step for step in STEPS)):  # equal slices meet by their rank
        open_ = np.flatnonzero(order[theirs] < 0)
        mine, other = theirs[open_], ours[np.clip(ranks[open_], 0, places.size - 1)]
        alike = np.flatnonzero(free[other])
        alike = alike[np.abs(reference[other[alike]] - candidate[mine[alike]]).max(1, initial=0.0) <= allowed]
        _, once = np.unique(other[alike], return_index=True)
        order[mine[alike[once]]] = other[alike[once]]
        free[other[alike[once]]] = False
    return order


def _confirmed(question: Question, axis: int, order: Array) -> Relation | None:
    """Hold the candidate's known slices against the reference's that they are said to be."""
    known = np.flatnonzero(order >= 0)
    moved = int(np.count_nonzero(order[known] != known))
    if not moved:
        return None
    whole = known.size == order.size
    reference = question.reference if whole else np.take(question.reference, order[known], axis)
    as_it_stands = question.candidate if whole else np.take(question.candidate, order[known], axis)
    put_right = np.take(question.candidate, np.argsort(order) if whole else known, axis)
    name, facts = describe_order(order)
    found = Question(reference, as_it_stands, question.limit).confirm(
        name,
        put_right,
        choice_bits=lgamma(moved + 1) / log(2) if name == "permuted" else log2(order.size) * 2,
        wrong=moved * question.reference.size // order.size,
    )
    return with_facts(found, {"axis": axis, "moved": moved, "of": order.size, **facts}, known.size / order.size)
