"""Code that cuts an axis into two: a gate (GLU, SwiGLU), and the turn of rotary embeddings, by halves or neighbours.

The reference's value must be made so of a tensor before; then what the candidate makes of the same is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.pointwise import FUNCTIONS
from align.forward.relations.relation import Relation, agreement, at_places
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question

GATES = ("sigmoid", "silu", "gelu", "gelu-tanh", "relu", "tanh")


def explain_gates(question: Question, value: Array) -> Iterator[Relation]:
    """Yield `halves-swapped` or `gate-differs`: the reference is half a tensor times a function of the other half."""
    output = question.reference
    axes = [axis for axis in range(value.ndim) if _is_halved(value.shape, output.shape, axis)]
    for axis in axes:
        ours = _gates(output, value, axis, question)
        theirs = _gates(question.candidate, value, axis, question) if ours else {}
        if not theirs or ours.keys() & theirs.keys():
            continue
        (first, swapped), (second, other) = next(iter(ours)), next(iter(theirs))
        name = "halves-swapped" if first == second and swapped != other else "gate-differs"
        facts: dict[str, Fact] = (
            {"axis": axis, "function": first}
            if name == "halves-swapped"
            else {
                "axis": axis,
                "reference": _named(ours),
                "candidate": _named(theirs),
            }
        )
        yield Relation(name, min(theirs.values()), facts=facts)


def _is_halved(whole: tuple[int, ...], half: tuple[int, ...], axis: int) -> bool:
    others = whole[:axis] + whole[axis + 1 :] == half[:axis] + half[axis + 1 :]
    return len(whole) == len(half) and others and whole[axis] == 2 * half[axis]


def _gates(output: Array, value: Array, axis: int, question: Question) -> dict[tuple[str, bool], float]:
    """The functions, and whether the first half goes through it, that make this output."""
    first, second = np.split(value.astype(np.float64), 2, axis)
    samples = [at_places(one, question.places) for one in (first, second)]
    some = at_places(output, question.places)
    found: dict[tuple[str, bool], float] = {}
    for name in GATES:
        for is_first, (gated, other) in ((False, samples), (True, samples[::-1])):
            if np.any(np.abs(gated * FUNCTIONS[name](other) - some) > question.limit.max_abs):
                continue
            whole = first * FUNCTIONS[name](second) if not is_first else second * FUNCTIONS[name](first)
            left = agreement(output, whole, question.limit)
            found |= {} if left is None else {(name, is_first): left}
    return found


def _named(ways: dict[tuple[str, bool], float]) -> str:
    halves = ("gate_form.second", "gate_form.first")
    return joined(" or ", [sentence(halves[is_first], function=name) for name, is_first in ways])


def _by_halves(value: Array) -> Array:
    first, second = np.split(value, 2, -1)
    return np.concatenate([-second, first], -1)


def _by_neighbours(value: Array) -> Array:
    turned: Array = np.stack([-value[..., 1::2], value[..., ::2]], -1).reshape(value.shape)
    return turned


TURNS: dict[str, Callable[[Array], Array]] = {
    "turn_form.halves": _by_halves,
    "turn_form.halves_back": lambda value: -_by_halves(value),
    "turn_form.neighbours": _by_neighbours,
    "turn_form.neighbours_back": lambda value: -_by_neighbours(value),
}


def explain_turns(question: Question, value: Array) -> Iterator[Relation]:
    """Yield `turn-differs` where both sides turn pairs of a tensor's last axis, and not the same way."""
    if value.shape != question.reference.shape or value.ndim < 2 or value.shape[-1] % 2 or value.shape[-1] < 4:
        return
    made = {key: turn(value.astype(np.float64)) for key, turn in TURNS.items()}
    ours, theirs = (_like(side, made, question) for side in (question.reference, question.candidate))
    if ours and theirs and ours.keys() != theirs.keys():
        facts: dict[str, Fact] = {"reference": sentence(next(iter(ours))), "candidate": sentence(next(iter(theirs)))}
        yield Relation("turn-differs", min(theirs.values()), facts=facts)


def _like(output: Array, ways: dict[str, Array], question: Question) -> dict[str, float]:
    left = {name: agreement(output, made, question.limit) for name, made in ways.items()}
    return {name: one for name, one in left.items() if one is not None}
