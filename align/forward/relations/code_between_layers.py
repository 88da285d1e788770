"""What code between layers makes of the tensors before: sums, functions, attention, reductions.

The tensors are the reference's; nothing is said unless its own value is made of them in a known way. For attention the
queries, keys and values are looked for among the tensors before, at a few positions first: that tells heads, scale,
axis of the softmax and causal mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, islice, permutations, product
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import numpy_dtype
from align.forward.relations.input_relations import explain_function, explain_inputs, explain_resizing
from align.forward.relations.output_relations import NARROW, likeliest_relation
from align.forward.relations.pointwise import softmax, swap_sides
from align.forward.relations.relation import Relation, agreement, at_places, with_facts
from align.forward.relations.slices import divisors
from align.forward.thresholds import (
    LARGEST_ATTENTION_IN_CODE,
    LARGEST_ATTENTION_SAMPLE,
    MOST_ATTENTION_HEADS,
    MOST_ATTENTION_TENSORS,
    MOST_TERMS,
    TRIED_POSITIONS,
)
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


@dataclass(frozen=True, slots=True)
class _Way:
    """How queries, keys and values of shape (batch, position, feature) are mixed."""

    heads: int
    scale: str = "1/sqrt(features of a head)"
    axis: int = -1
    causal: bool = False

    def of(self, query: Array, key: Array, value: Array, first: int = 0, count: int | None = None) -> Array:
        """The output at `count` positions from the first on, in float64."""
        query, key, value = (self._split(one) for one in (query, key, value))
        query = query[:, :, first : None if count is None else first + count]
        scores = query @ key.swapaxes(-1, -2) * self._factor(query.shape[-1])
        if self.causal:
            later = np.arange(scores.shape[-1]) > np.arange(first, first + scores.shape[-2])[:, None]
            scores = np.where(later, -1e30, scores)
        mixed = softmax(scores, self.axis) @ value
        return mixed.swapaxes(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1)

    def _split(self, values: Array) -> Array:
        return values.reshape(*values.shape[:2], self.heads, -1).swapaxes(1, 2)

    def _factor(self, features: int) -> float:
        return {"1": 1.0, "1/sqrt(features)": 1.0 / sqrt(features * self.heads)}.get(self.scale, 1.0 / sqrt(features))


def explain_attention_in_code(question: Question, known: Mapping[str, Array]) -> Iterator[Relation]:
    """Yield what the candidate does otherwise with the tensors of which attention made the reference's value."""
    shape = question.reference.shape
    if (
        len(shape) != 3
        or shape[1] * shape[2] > LARGEST_ATTENTION_SAMPLE
        or question.reference.size > LARGEST_ATTENTION_IN_CODE
    ):
        return
    tensors = list(islice(_unlike(_tensors(known, shape)), MOST_ATTENTION_TENSORS))
    if usual := next(_made(question, tensors), None):
        way, given = usual
        for name, other, facts in _others(way, _heads(question)):
            found = swap_sides(question).confirm(name, other.of(*given))
            yield from filter(None, [with_facts(found, facts)])


def _tensors(known: Mapping[str, Array], shape: tuple[int, ...]) -> Iterator[Array]:
    """Those of the shape, and the thirds of fused ones."""
    for value in known.values():
        if value.dtype.kind == "f" and value.shape == shape:
            yield value.astype(np.float64)
        elif value.dtype.kind == "f" and value.shape == (*shape[:2], 3 * shape[2]):
            yield from np.split(value.astype(np.float64), 3, axis=2)


def _unlike(tensors: Iterator[Array]) -> Iterator[Array]:
    """Each value once: what several layers are given comes as often."""
    seen: list[Array] = []
    for one in tensors:
        if not any(np.array_equal(one, other) for other in seen):
            seen.append(one)
            yield one


def _made(question: Question, tensors: list[Array]) -> Iterator[tuple[_Way, tuple[Array, Array, Array]]]:
    """The ways that make the reference, and of what; some positions of the first sample are tried first."""
    middle, allowed = question.reference.shape[1] // 2, question.limit.max_abs
    few = question.reference[:1, middle : middle + TRIED_POSITIONS]
    ways = [_Way(count, causal=causal) for count in _heads(question) for causal in (False, True)]
    for value in tensors:
        if not _is_between(few, value[:1], allowed):
            continue
        for (query, key), way in product(permutations([one for one in tensors if one is not value], 2), ways):
            near = np.abs(way.of(query[:1], key[:1], value[:1], middle, TRIED_POSITIONS) - few) <= allowed
            if near.all() and agreement(question.reference, way.of(query, key, value), question.limit) is not None:
                yield way, (query, key, value)


def _is_between(few: Array, value: Array, allowed: float) -> bool:
    """Whether each element lies between the least and the largest of its feature, as any mixture does."""
    low, high = value.min(1, keepdims=True), value.max(1, keepdims=True)
    return bool(np.all(few >= low - allowed) and np.all(few <= high + allowed))


def _heads(question: Question) -> list[int]:
    return [count for count in divisors(question.reference.shape[2]) if count <= MOST_ATTENTION_HEADS]


def _others(usual: _Way, heads: list[int]) -> Iterator[tuple[str, _Way, dict[str, Fact]]]:
    for count in heads:
        if count != usual.heads:
            yield "attention-heads", replace(usual, heads=count), {"reference": usual.heads, "candidate": count}
    for scale in ("1", "1/sqrt(features)"):
        yield "attention-scale", replace(usual, scale=scale), {"reference": usual.scale, "candidate": scale}
    yield "softmax-axis", replace(usual, axis=-2), {"reference": "keys", "candidate": "queries"}
    masks = ["none", "causal"]
    facts: dict[str, Fact] = {"reference": masks[usual.causal], "candidate": masks[not usual.causal]}
    yield "attention-mask", replace(usual, causal=not usual.causal), facts
