"""Where the candidate is wrong, if it is right in most places: at the border, in some slices, where it is zero.

These say where a fault is, and seldom what it is: a border points to padding, zeros of dropout or of a mask.
"""

from __future__ import annotations

from itertools import chain, islice
from math import inf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.measurements import smallest_factor
from align.forward.relations.relation import Relation, agreement
from align.forward.relations.slices import other_axes
from align.forward.thresholds import (
    DROPOUT_DEVIATIONS,
    ENOUGH_BITS,
    MOST_LISTED_PLACES,
    MOST_WRONG_SLICES,
    WIDEST_BORDER,
    WRONG_THROUGHOUT,
)
from align.measure.measure_arrays import measure
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question


def explain_non_finite(reference: Array, candidate: Array) -> Relation | None:
    """NaN or Inf of the candidate where the reference has numbers: the large ones only, or any."""
    ours, theirs = np.isfinite(reference), np.isfinite(candidate)
    odd = ours & ~theirs
    count, nan = int(np.count_nonzero(odd)), int(np.count_nonzero(np.isnan(candidate) & ours))
    if not count:
        return None
    facts: dict[str, Fact] = {"elements": count, "of": odd.size, "nan": nan}
    smallest, kept = float(np.abs(reference[odd]).min()), float(np.abs(reference[ours & theirs]).max(initial=0.0))
    if smallest <= kept or nan == count:
        return Relation("not-finite", inf, 1.0 - count / odd.size, facts=facts)
    return Relation("overflowed", inf, 1.0 - count / odd.size, facts={**facts, "smallest": smallest, "kept": kept})


def explain_wrong_regions(question: Question) -> Iterator[Relation]:
    """Yield the narrowest description of where the candidate is wrong, if it is right elsewhere."""
    far = np.abs(question.reference - question.candidate) > question.limit.max_abs
    yield from islice(chain(_zeros(question), _border(question, far), _slices(question, far)), 1)


def _zeros(question: Question) -> Iterator[Relation]:
    """All that is wrong is zero, and so not by ones and twos; what is left may be larger by what dropout makes up."""
    zero = (question.candidate == 0.0) & (np.abs(question.reference) > question.limit.rmse)
    kept, share = ~zero, float(np.count_nonzero(zero)) / zero.size
    if share * zero.size < ENOUGH_BITS:
        return
    if share == 1.0:
        yield Relation("zeros", question.factor, 0.0, facts={"zeros": share})
        return
    reference, candidate = question.reference[kept].astype(np.float64), question.candidate[kept].astype(np.float64)
    left = smallest_factor(measure(reference, candidate), question.limit)
    if left <= 1.0:
        yield Relation("zeros", left, 1.0 - share, facts={"zeros": share})
        return
    scale = float(candidate @ reference / max(float(candidate @ candidate), np.finfo(float).tiny))
    left = smallest_factor(measure(reference, candidate * scale), question.limit)
    if left <= 1.0 and abs(1.0 - scale - share) < DROPOUT_DEVIATIONS * sqrt(share * (1.0 - share) / zero.size):
        yield Relation("dropout", left, 1.0 - share, 1, {"p": 1.0 - scale, "zeros": share})


def _border(question: Question, far: Array) -> Iterator[Relation]:
    """Right inside and wrong within some elements of the ends of the spatial axes, channels first or last."""
    for axes in (range(2, far.ndim), range(1, far.ndim - 1)):
        for width in range(1, WIDEST_BORDER + 1):
            if not axes or min(far.shape[axis] for axis in axes) < 4 * width:
                break
            inside = tuple(slice(width, -width) if axis in axes else slice(None) for axis in range(far.ndim))
            left = _agreement(question, inside) if not far[inside].any() else None
            if left is not None:
                ends = joined(", ", [*_wrong_ends(far, axes, width)])
                share = 1.0 - float(np.count_nonzero(far)) / far.size
                yield Relation("border", left, share, facts={"width": width, "ends": ends})


def _wrong_ends(far: Array, axes: range, width: int) -> Iterator[str]:
    """Which ends of which axes are wrong, away from the corners."""
    for axis in axes:
        inside = [slice(width, -width) if one in axes and one != axis else slice(None) for one in range(far.ndim)]
        ends = {"slice_form.first_of_axis": slice(0, width), "slice_form.last_of_axis": slice(-width, None)}
        for key, end in ends.items():
            inside[axis] = end
            if np.any(far[tuple(inside)]):
                yield sentence(key, axis=axis)


def _slices(question: Question, far: Array) -> Iterator[Relation]:
    """Right but for some slices of the axis of which the smallest share is wrong, and those wrong throughout."""
    wrong = {axis: far.any(axis=other_axes(axis, far.ndim)) for axis in range(far.ndim) if far.shape[axis] > 1}
    if not wrong:
        return
    axis = min(wrong, key=lambda one: (float(wrong[one].mean()), -far.shape[one]))
    places, length = np.flatnonzero(wrong[axis]), far.shape[axis]
    throughout = np.count_nonzero(far) >= WRONG_THROUGHOUT * far.size * places.size / length
    if places.size > MOST_WRONG_SLICES * length or not throughout:
        return
    left = _agreement(question, (*[slice(None)] * axis, np.flatnonzero(~wrong[axis])))
    if left is not None:
        facts: dict[str, Fact] = {"axis": axis, "slices": places.size, "of": length, "places": _ranges(places)}
        yield Relation("slices", left, 1.0 - places.size / length, facts=facts)


def _agreement(question: Question, inside: tuple[Any, ...]) -> float | None:
    return agreement(question.reference[inside], question.candidate[inside], question.limit)


def _ranges(places: Array) -> str:
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    shown = [f"{run[0]}-{run[-1]}" if run.size > 1 else f"{run[0]}" for run in runs[:MOST_LISTED_PLACES]]
    return ", ".join(shown) + (", ..." if len(runs) > MOST_LISTED_PLACES else "")
