"""Which simple relation makes a layer's output the reference's: found on a few elements, verified on all of them.

Each family of relations yields its simplest; what counts as found is decided in one place (relation_evidence).
Unrelated arrays, and outputs that hardly vary, give nothing.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.affine import explain_affine
from align.forward.relations.moved_values import (
    explain_cut,
    explain_displaced,
    explain_order,
    explain_permuted_axes,
    explain_permuted_split_axes,
)
from align.forward.relations.pointwise import explain_pointwise
from align.forward.relations.relation import Question
from align.forward.relations.rounding import explain_error_size, explain_rounding
from align.forward.relations.softmax import explain_softmax
from align.forward.relations.wrong_regions import explain_non_finite, explain_wrong_regions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.forward.relations.relation import Relation

# Each explains everything or says nothing; those below are asked where none of these does.
WHOLE = (explain_rounding, explain_affine, explain_permuted_axes, explain_order, explain_softmax, explain_pointwise)
REST = (explain_permuted_split_axes, explain_displaced, explain_error_size, explain_wrong_regions)


def explain_output(reference: Array, candidate: Array, limit: Limit) -> tuple[Relation, ...]:
    """Return the relations that hold within the limit of the layer, the likeliest first; () if none is known to.

    Arrays of any shapes and real dtypes. NaN and Inf that both have alike are left out; where only the candidate has
    them, nothing else is asked.

    >>> from align.core.measurements import Limit
    >>> x = np.random.default_rng(0).standard_normal((8, 16))
    >>> [found.id for found in explain_output(x, x[:, ::-1], Limit(1e-5, 1e-6, "user"))]
    ['flipped']
    """
    return tuple(sorted(_relations(reference, candidate, limit), key=relation_sort_key))


def likeliest_relation(reference: Array, candidate: Array, limit: Limit) -> Relation | None:
    """Return the first relation that explains everything, else the best one: quicker, where no other is wanted."""
    found = []
    for one in _relations(reference, candidate, limit):
        if one.explains:
            return one
        found.append(one)
    return min(found, key=relation_sort_key, default=None)


def relation_sort_key(found: Relation) -> tuple[float, int, float]:
    """Sort key: what explains most first, then what fits fewest numbers."""
    return -found.share, found.fitted, found.factor


def make_question(reference: Array, candidate: Array, limit: Limit) -> Question | None:
    """The question why they differ; None if they do not, or by shape or NaN, or hold no real numbers."""
    if reference.shape != candidate.shape or not _comparable(reference, candidate):
        return None
    ours, theirs = _widened(reference), _widened(candidate)
    if explain_non_finite(ours, theirs):
        return None
    question = Question(*_without_non_finite(ours, theirs), limit)
    return question if question.factor > 1.0 else None


def _relations(reference: Array, candidate: Array, limit: Limit) -> Iterator[Relation]:
    if not _comparable(reference, candidate):
        return
    ours, theirs = _widened(reference), _widened(candidate)
    if ours.shape != theirs.shape:
        yield from _of_other_shape(ours, theirs, limit)
    elif question := make_question(ours, theirs, limit):
        yield from _of_one_shape(question)
    elif odd := explain_non_finite(ours, theirs):
        yield odd


def _comparable(*sides: Array) -> bool:
    return all(one.size and not np.iscomplexobj(one) for one in sides)


def _of_one_shape(question: Question) -> Iterator[Relation]:
    explained = False
    for family in (*WHOLE, *REST):
        if family in REST and explained:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # a wrong guess may leave the range of numbers
            found = [*family(question)]
        explained |= any(one.explains for one in found)
        yield from found


def _of_other_shape(reference: Array, candidate: Array, limit: Limit) -> Iterator[Relation]:
    question = Question(reference, candidate, limit)
    families = (
        explain_permuted_axes(question),
        explain_permuted_split_axes(question),
        explain_cut(reference, candidate, limit),
    )
    yield from islice(chain(*families), 1)


def _widened(values: Array) -> Array:
    """Floats of 32 bits and more as they are, all else in float64."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _without_non_finite(reference: Array, candidate: Array) -> tuple[Array, Array]:
    finite = np.isfinite(reference) & np.isfinite(candidate)
    if finite.all():
        return reference, candidate
    return np.where(finite, reference, 0), np.where(finite, candidate, 0)
