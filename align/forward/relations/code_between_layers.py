"""What code between layers makes of the tensors before: sums, functions, attention, reductions.

The tensors are the reference's; nothing is said unless its own value is made of them in a known way.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import numpy_dtype
from align.forward.relations.attention_in_code import explain_attention_in_code
from align.forward.relations.input_relations import explain_function, explain_inputs
from align.forward.relations.output_relations import likeliest_relation
from align.forward.relations.pointwise import swap_sides
from align.forward.relations.relation import Relation, agreement, at_places
from align.forward.relations.resizing import explain_resizing
from align.forward.relations.rounding import NARROW
from align.forward.thresholds import MOST_TERMS
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question


def explain_code(question: Question, known: Mapping[str, Array]) -> Iterator[Relation]:
    """Yield what explains the candidate by the tensors known before, the latest first."""
    floats = {name: value for name, value in known.items() if value.dtype.kind == "f" and value.size}
    yield from explain_inputs(question, floats)
    for name, value in floats.items():
        for family in (explain_function, explain_resizing, explain_reduction):
            for found in family(question, value):
                yield replace(found, facts={**found.facts, "input": name})
    yield from explain_attention_in_code(question, floats)
    yield from explain_terms(question, floats)


def explain_terms(question: Question, known: Mapping[str, Array]) -> Iterator[Relation]:
    """Where the reference is the sum of two: what became of one of them in the candidate, named as `term`."""
    same = [(name, value) for name, value in known.items() if value.shape == question.reference.shape][:MOST_TERMS]
    samples = {name: at_places(value, question.places) for name, value in same}
    for (one, first), (other, second) in combinations(same, 2):
        if question.fits(samples[one] + samples[other]):
            for name, term, rest in ((one, first, second), (other, second, first)):
                found = _cast(question, term, rest) or likeliest_relation(
                    term, question.candidate - rest, question.limit
                )
                if found and found.factor <= 1.0:
                    yield replace(found, facts={**found.facts, "term": name})


def _cast(question: Question, term: Array, rest: Array) -> Relation | None:
    """A term that was rounded before it was added: the sum no longer shows it in its bits."""
    for dtype in NARROW:
        if found := swap_sides(question).confirm("rounded", rest + term.astype(numpy_dtype(dtype)).astype(np.float64)):
            return replace(found, facts={"dtype": dtype})
    return None


REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "mean": lambda value, axes: value.mean(axis=axes),
    "sum": lambda value, axes: value.sum(axis=axes),
    "largest": lambda value, axes: value.max(axis=axes),
    "first": lambda value, axes: _at(value, axes, 0),
    "last": lambda value, axes: _at(value, axes, -1),
}


def explain_reduction(question: Question, value: Array) -> Iterator[Relation]:
    """Two ways to make one number of many along some axes: the mean for the largest, the first for the mean."""
    lost = value.ndim - question.reference.ndim
    if lost < 1:
        return
    ours, theirs = (_reductions(side, value, lost, question) for side in (question.reference, question.candidate))
    if ours and theirs and not ours.keys() & theirs.keys():
        facts: dict[str, Fact] = {"reference": joined(" or ", [*ours]), "candidate": joined(" or ", [*theirs])}
        yield Relation("reduction-differs", min(theirs.values()), facts=facts)


def _reductions(output: Array, value: Array, lost: int, question: Question) -> dict[str, float]:
    found: dict[str, float] = {}
    for axes in combinations(range(value.ndim), lost):
        if tuple(length for axis, length in enumerate(value.shape) if axis not in axes) == output.shape:
            for name, reduce in REDUCTIONS.items():
                left = agreement(output, reduce(value.astype(np.float64), axes), question.limit)
                if left is not None:
                    found[sentence("reduction_form.over_axes", reduction=name, axes=axes)] = left
    return found


def _at(value: Array, axes: tuple[int, ...], place: int) -> Array:
    return value[tuple(place if axis in axes else slice(None) for axis in range(value.ndim))]
