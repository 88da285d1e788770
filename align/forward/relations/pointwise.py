"""Whether one side is a well-known function of the other: an activation missing, or one too many, or clipped values.

Functions that these values do not distinguish (ReLU and ReLU6 below 6) are all named.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.activations import FUNCTIONS, name_functions
from align.forward.relations.relation import Question, with_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.forward.relations.relation import Relation


def explain_pointwise(question: Question) -> Iterator[Relation]:
    """Yield the function of the candidate that the reference is (`activation-missing`), and the reverse (`-extra`)."""
    other = swap_sides(question)
    found = chain(
        _function(question, "activation-missing"),
        _function(other, "activation-extra"),
        _clipped(other, "clipped"),
        _clipped(question, "clipping-missing"),
    )
    yield from islice(found, 1)


def swap_sides(question: Question) -> Question:
    """The same question of the candidate, whose values may be larger than those that the limit was made for."""
    ours, theirs = np.abs(question.sample).max(initial=0.0), np.abs(question.candidate_sample).max(initial=0.0)
    larger = max(1.0, float(theirs / ours)) if ours > 0.0 else 1.0
    limit = question.limit
    limit = replace(limit, max_abs=limit.max_abs * larger, rmse=limit.rmse * larger)
    return Question(question.candidate, question.reference, limit)


def _function(question: Question, name: str) -> Iterator[Relation]:
    likely = [key for key, function in FUNCTIONS.items() if question.fits(function(question.candidate_sample))]
    if not likely:
        return
    values = question.candidate.astype(np.float64)
    found = {key: question.confirm(name, FUNCTIONS[key](values)) for key in likely}
    named = {key: one for key, one in found.items() if one}
    if named:
        best = min(named.values(), key=lambda one: one.factor)
        yield replace(best, facts={"function": name_functions(named)})


def _clipped(question: Question, name: str) -> Iterator[Relation]:
    """The bounds are the largest and the smallest value; one that nothing reaches beyond is none."""
    low, high = float(question.reference.min()), float(question.reference.max())
    if not question.fits(np.clip(question.candidate_sample, low, high)):
        return
    beyond = question.limit.max_abs
    reached = {"low": low - question.candidate.min() > beyond, "high": question.candidate.max() - high > beyond}
    found = question.confirm(name, np.clip(question.candidate, low, high), fitted=sum(reached.values()))
    if found := with_facts(found, {key: bound for key, bound in (("low", low), ("high", high)) if reached[key]}):
        yield found
