"""What is done over a whole axis, or left out: the mean taken away, scaled to a norm or to a sum of one, added up.

And an axis one or two steps on, where what falls out at one end is made up for at the other: labels, positions, causal
shifts. Nothing is fitted.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relation_thresholds import FARTHEST_DISPLACEMENT
from align.forward.relations.pointwise import swap_sides
from align.forward.relations.relation import with_facts
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Question, Relation


def _scaled_by(value: Array, size: Array) -> Array:
    return np.divide(value, size, out=np.zeros_like(value), where=size != 0.0)


OVER: dict[str, Callable[[Array, int], Array]] = {
    "axis_form.mean_taken_away": lambda value, axis: value - value.mean(axis, keepdims=True),
    "axis_form.norm_of_one": lambda value, axis: _scaled_by(value, np.linalg.norm(value, axis=axis, keepdims=True)),
    "axis_form.sum_of_one": lambda value, axis: _scaled_by(value, value.sum(axis, keepdims=True)),
    "axis_form.largest_of_one": lambda value, axis: _scaled_by(value, np.abs(value).max(axis, keepdims=True)),
    "axis_form.added_up": np.cumsum,
}


def explain_over_axis(question: Question) -> Iterator[Relation]:
    """Yield the first function over an axis that one side lacks: `activation-missing` or `activation-extra`."""
    ways = product((("activation-missing", question), ("activation-extra", swap_sides(question))), OVER)
    found = (
        with_facts(one, {"function": sentence(key), "axis": axis})
        for (name, asked), key in ways
        for axis in range(asked.candidate.ndim)
        if asked.candidate.shape[axis] > 1 and (one := _confirmed(asked, name, key, axis))
    )
    yield from islice((one for one in found if one), 1)


def _confirmed(question: Question, name: str, key: str, axis: int) -> Relation | None:
    """Ask a first row along the axis, then the whole."""
    row = tuple(slice(None) if one == axis else slice(1) for one in range(question.candidate.ndim))
    few = OVER[key](question.candidate[row].astype(np.float64), axis)
    if np.any(np.abs(few - question.reference[row]) > question.limit.max_abs):
        return None
    return question.confirm(name, OVER[key](question.candidate.astype(np.float64), axis))


def explain_step(question: Question) -> Iterator[Relation]:
    """Yield `displaced` where an axis stands a step or two farther on, and its end is repeated or zero."""
    steps = [one for one in range(-FARTHEST_DISPLACEMENT, FARTHEST_DISPLACEMENT + 1) if one]
    other = swap_sides(question)
    axes = [axis for axis, length in enumerate(question.reference.shape) if length > 2 * FARTHEST_DISPLACEMENT]
    found = (
        with_facts(one, {"axis": axis, "by": by, "end": sentence(end)})
        for axis, by, end in product(axes, steps, ("axis_form.end_repeated", "axis_form.end_zero"))
        if (one := _moved(other, axis, by, is_zero=end == "axis_form.end_zero"))
    )
    yield from islice((one for one in found if one), 1)


def _moved(other: Question, axis: int, by: int, *, is_zero: bool) -> Relation | None:
    """`other` has the candidate as what is to be explained."""
    length = other.candidate.shape[axis]
    places = np.arange(length) - by
    outside = (places < 0) | (places >= length)
    index = np.unravel_index(other.places, other.candidate.shape)
    taken = [*index]
    taken[axis] = np.clip(index[axis] - by, 0, length - 1)
    some = other.candidate[tuple(taken)].astype(np.float64)
    if not other.fits(np.where(outside[index[axis]] & is_zero, 0.0, some)):
        return None
    made = other.candidate.take(np.clip(places, 0, length - 1), axis)
    shape = [-1 if one == axis else 1 for one in range(made.ndim)]
    return other.confirm("displaced", np.where(outside.reshape(shape) & is_zero, 0.0, made))
