"""Reductions and attention over a part of the positions: how many each sample keeps, read off the values.

A mask of padding keeps the first positions of each sample, an inverted one those behind. How many, the reference's own
value shows, since one number fits a sample only by what it keeps; then what the candidate keeps is asked.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relation_thresholds import LEAST_KEPT_FEATURES, LONGEST_KEPT_AXIS
from align.forward.relations.relation import Relation, agreement
from align.forward.thresholds import MOST_LISTED_PLACES
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question


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
    """By name, what each number of kept positions makes: (number, sample, ...)."""
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


def kept_numbers(output: Array, made: Array, question: Question) -> list[int]:
    """For each sample the largest number of kept positions whose value is right; [] if one has none."""
    over = tuple(range(2, made.ndim))
    near = np.abs(made - output).max(axis=over) <= question.limit.max_abs  # (number, sample)
    if not near.any(0).all():
        return []
    kept = len(made) - np.argmax(near[::-1], axis=0)
    whole = made[kept - 1, np.arange(made.shape[1])]
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
