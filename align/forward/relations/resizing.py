"""Which convention of resizing each side follows: nearest or linear, and where the centres of the elements lie."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.relation import Relation, agreement
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question

    # From the places of the output, the lengths of the input and of the output to places of the input.
    Places = Callable[[Array, int, int], Array]

LINEAR: dict[str, Places] = {
    "resizing_form.linear_half_pixel": lambda place, size, out: (place + 0.5) * size / out - 0.5,
    "resizing_form.linear_corners": lambda place, size, out: place * (size - 1) / max(out - 1, 1),
    "resizing_form.linear_asymmetric": lambda place, size, out: place * size / out,
}
NEAREST: dict[str, Places] = {
    "resizing_form.nearest": lambda place, size, out: np.floor(place * size / out),
    "resizing_form.nearest_half_pixel": lambda place, size, out: np.floor((place + 0.5) * size / out),
    "resizing_form.nearest_corners": lambda place, size, out: np.rint(place * (size - 1) / max(out - 1, 1)),
}


def explain_resizing(question: Question, value: Array) -> Iterator[Relation]:
    """Yield `interpolation` where both conventions are known and unlike; the axes after the channels are resized."""
    output = question.reference
    if (
        value.shape == output.shape
        or value.ndim != output.ndim
        or value.ndim < 3
        or value.shape[:2] != output.shape[:2]
        or value.dtype.kind != "f"
    ):
        return
    ways = {name: resized(value, output.shape[2:], places) for name, places in chain(LINEAR.items(), NEAREST.items())}
    ours, theirs = (_left(side, ways, question) for side in (output, question.candidate))
    if ours and theirs and not ours.keys() & theirs.keys():
        facts: dict[str, Fact] = {"reference": _named(ours), "candidate": _named(theirs)}
        yield Relation("interpolation", min(theirs.values()), facts=facts)


def _named(ways: Iterable[str]) -> str:
    return joined(" or ", [sentence(key) for key in ways])


def _left(output: Array, ways: dict[str, Array], question: Question) -> dict[str, float]:
    left = {name: agreement(output, made, question.limit) for name, made in ways.items()}
    return {name: one for name, one in left.items() if one is not None}


def resized(value: Array, lengths: tuple[int, ...], places: Places) -> Array:
    """Interpolate linearly between the elements at these places, axis by axis from the third on, in float64."""
    made = value.astype(np.float64)
    for axis, length in enumerate(lengths, start=2):
        size = value.shape[axis]
        at = np.clip(places(np.arange(length, dtype=np.float64), size, length), 0.0, size - 1.0)
        low = at.astype(int)
        share = (at - low).reshape([-1 if one == axis else 1 for one in range(value.ndim)])
        made = made.take(low, axis) * (1.0 - share) + made.take(np.minimum(low + 1, size - 1), axis) * share
    return made
