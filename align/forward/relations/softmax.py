"""Softmax over another axis, of values scaled otherwise, missing, or one too many.

Shares over an axis are known by their sums. Their logarithms are what went into the softmax, but for one number that
each row along the axis has in common: so another axis, or another scale, shows without the values before.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.affine import known_number
from align.forward.relations.pointwise import softmax, swap_sides
from align.forward.relations.relation import with_facts
from align.forward.thresholds import SHARES_TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Question, Relation


def explain_softmax(question: Question) -> Iterator[Relation]:
    """Yield the first of these relations that holds."""
    axes, others = _axes_of_shares(question.reference), _axes_of_shares(question.candidate)
    found = chain(
        (_scaled(question, axis) for axis in axes & others),
        (_other_axis(question, axis, other) for axis in axes - others for other in others - axes),
        (_missing(question, axis, "activation-missing") for axis in axes - others),
        (_missing(swap_sides(question), axis, "activation-extra") for axis in others - axes),
    )
    yield from islice((one for one in found if one), 1)


def _axes_of_shares(values: Array) -> set[int]:
    """Axes over which the values, all shares, add up to 1."""
    if float(values.min()) < 0.0 or float(values.max()) > 1.0 + SHARES_TOLERANCE:
        return set()
    sums = {axis: values.sum(axis=axis, dtype=np.float64) for axis in range(values.ndim) if values.shape[axis] > 1}
    return {axis for axis, total in sums.items() if np.all(np.abs(total - 1.0) < SHARES_TOLERANCE)}


def _scaled(question: Question, axis: int) -> Relation | None:
    """Small shares say little of their logarithm: they weigh as much as they are."""
    weights = np.minimum(question.reference, question.candidate).astype(np.float64)
    middles = weights.sum(axis=axis, keepdims=True)
    logarithms = [_logarithms(one) for one in (question.reference, question.candidate)]
    ours, theirs = (one - (one * weights).sum(axis=axis, keepdims=True) / middles for one in logarithms)
    square = float(np.sum(weights * theirs**2))
    scale = float(np.sum(weights * ours * theirs)) / square if square else 0.0
    if scale <= 0.0:
        return None
    found = question.confirm("softmax-scale", softmax(logarithms[1] * scale, axis), fitted=1)
    return with_facts(found, {"axis": axis, "scale": 1.0 / scale, "scale_is": known_number(1.0 / scale)})


def _other_axis(question: Question, axis: int, other: int) -> Relation | None:
    candidate = _logarithms(question.candidate)
    lost = (_logarithms(question.reference) - candidate).mean(axis=other, keepdims=True)
    found = question.confirm("softmax-axis", softmax(candidate + lost, axis), fitted=lost.size)
    return with_facts(found, {"reference": axis, "candidate": other})


def _logarithms(shares: Array) -> Array:
    logarithms: Array = np.log(np.maximum(shares.astype(np.float64), np.finfo(np.float64).tiny))
    return logarithms


def _missing(question: Question, axis: int, name: str) -> Relation | None:
    found = question.confirm(name, softmax(question.candidate.astype(np.float64), axis))
    return with_facts(found, {"function": "softmax", "axis": axis})
