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
from align.forward.relation_thresholds import (
    LARGEST_ATTENTION_IN_CODE,
    LARGEST_ATTENTION_SAMPLE,
    MOST_ATTENTION_HEADS,
    MOST_ATTENTION_TENSORS,
    MOST_TERMS,
    TRIED_POSITIONS,
)
from align.forward.relations.gates_and_turns import explain_gates, explain_turns
from align.forward.relations.input_relations import explain_function, explain_inputs, explain_resizing
from align.forward.relations.kept_lengths import explain_kept_keys, explain_kept_means, kept_numbers
from align.forward.relations.output_relations import NARROW, likeliest_relation
from align.forward.relations.pointwise import FUNCTIONS, name_functions, softmax, swap_sides
from align.forward.relations.relation import Relation, agreement, at_places, with_facts
from align.forward.relations.slices import divisors
from align.forward.thresholds import SCALE_DIGITS
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.forward.relations.input_relations import Function
    from align.forward.relations.relation import Fact, Question


def explain_code(question: Question, known: Mapping[str, Array]) -> Iterator[Relation]:
    """Yield what explains the candidate by the tensors known before, the latest first."""
    floats = {name: value for name, value in known.items() if value.dtype.kind == "f" and value.size}
    yield from explain_inputs(question, floats)
    for name, value in floats.items():
        for family in FAMILIES:
            for found in family(question, value):
                yield replace(found, facts={**found.facts, "input": name})
    yield from explain_attention_in_code(question, floats)
    yield from explain_other_tensor(question, floats)
    terms = [*explain_terms(question, floats)]
    yield from terms
    if not any(one.explains for one in terms):
        yield from explain_scaled_term(question, floats)


def explain_other_tensor(question: Question, known: Mapping[str, Array]) -> Iterator[Relation]:
    """Where both sides apply one function, or none, to other tensors: a layer or a level is left out."""
    same = {name: value for name, value in known.items() if value.shape == question.reference.shape}
    ours, theirs = (dict(_made_of(side, same, question)) for side in (question.reference, question.candidate))
    for function in ours.keys() & theirs.keys():
        (mine, _), (other, left) = ours[function], theirs[function]
        if mine != other:
            named: dict[str, Fact] = {} if function == NOTHING else {"function": name_functions([function])}
            yield Relation("other-tensor", left, facts={**named, "reference": mine, "candidate": other})


NOTHING = "function_form.nothing"


def _made_of(output: Array, known: Mapping[str, Array], question: Question) -> Iterator[tuple[str, tuple[str, float]]]:
    """The functions, each with the first tensor of which it makes an output and what is left of the limit."""
    some = at_places(output, question.places)
    found: set[str] = set()
    functions: dict[str, Function] = {NOTHING: np.positive, **FUNCTIONS}
    for name, value in known.items():
        sample = at_places(value, question.places)
        for function, of in functions.items():
            if function in found or np.any(np.abs(of(sample) - some) > question.limit.max_abs):
                continue
            left = agreement(output, of(value.astype(np.float64)), question.limit)
            if left is not None:
                found.add(function)
                yield function, (name, left)


def explain_scaled_term(question: Question, known: Mapping[str, Array]) -> Iterator[Relation]:
    """Where the candidate is off by a number times a tensor before: a term with another factor, or one that is missing.

    A tensor with fewer axes stands for itself repeated along those behind it or before it.
    """
    error = question.candidate_sample - question.sample
    for name, value in [*known.items()][:MOST_TERMS]:
        for term in _repeated_as(value, question.reference.shape):
            sample = at_places(term, question.places)
            square = float(sample @ sample)
            scale = float(sample @ error) / square if square > 0.0 else 0.0
            whole = square > 0.0 and question.fits(float(sample @ question.sample) / square * sample)
            if whole or scale == 0.0 or not question.fits(question.candidate_sample - scale * sample):
                continue
            rest = question.candidate.astype(np.float64) - scale * term
            named = {1.0: "residual-extra", -1.0: "residual-missing"}.get(round(scale, SCALE_DIGITS), "term-scaled")
            found = question.confirm(named, rest, fitted=int(named == "term-scaled"))
            facts: dict[str, Fact] = {"input": name, **({"too_much": scale} if named == "term-scaled" else {})}
            yield from filter(None, [with_facts(found, facts)])


def _repeated_as(value: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    if value.shape == shape:
        yield value
    elif 1 < value.ndim < len(shape) and value.shape == shape[: value.ndim]:
        yield np.broadcast_to(value.reshape(*value.shape, *([1] * (len(shape) - value.ndim))), shape)
    elif 1 < value.ndim < len(shape) and value.shape == shape[-value.ndim :]:
        yield np.broadcast_to(value, shape)
    elif value.ndim == 2 and len(shape) == 3 and value.shape == (shape[0], shape[2]):
        yield np.broadcast_to(value[:, None], shape)


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
        others = {
            "1": 1.0,
            "1/sqrt(features)": 1.0 / sqrt(features * self.heads),
            "1/features of a head": 1.0 / features,
        }
        return others.get(self.scale, 1.0 / sqrt(features))


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
        yield from _other_keys(question, way, given)
    elif len(tensors) > 2:
        for way, given in islice(_made(question, tensors, whole=False), 1):
            masked = [*_other_keys(question, way, given)]
            yield from masked or _others_masked(question, way, given)


def _other_keys(question: Question, way: _Way, given: tuple[Array, Array, Array]) -> Iterator[Relation]:
    """Attention to other keys of each sample."""
    query, key, value = given
    if question.reference.size * key.shape[1] > LARGEST_ATTENTION_IN_CODE or way.causal:
        return
    yield from explain_kept_keys(
        question, lambda first, stop: way.of(query, key[:, first:stop], value[:, first:stop]), key.shape[1]
    )


def _others_masked(question: Question, way: _Way, given: tuple[Array, Array, Array]) -> Iterator[Relation]:
    """Another scale or number of heads, where both sides attend to the same first keys of each sample."""
    query, key, value = given
    numbers = range(1, key.shape[1] + 1)
    if question.reference.size * key.shape[1] > LARGEST_ATTENTION_IN_CODE or way.causal:
        return
    kept = kept_numbers(
        question.reference, np.stack([way.of(query, key[:, :n], value[:, :n]) for n in numbers]), question
    )
    samples = [(slice(place, place + 1), slice(stop)) for place, stop in enumerate(kept)]
    for name, other, facts in _others(way, _heads(question)) if kept else ():
        made = [other.of(query[one], key[one, keys], value[one, keys]) for one, keys in samples]
        found = swap_sides(question).confirm(name, np.concatenate(made))
        yield from filter(None, [with_facts(found, facts)])


def _tensors(known: Mapping[str, Array], shape: tuple[int, ...]) -> Iterator[Array]:
    """The thirds of fused ones, which hardly anything else has, and those of the shape."""
    floats = [value.astype(np.float64) for value in known.values() if value.dtype.kind == "f"]
    for value in floats:
        if value.shape == (*shape[:2], 3 * shape[2]):
            yield from np.split(value, 3, axis=2)
    yield from (value for value in floats if value.shape == shape)


def _unlike(tensors: Iterator[Array]) -> Iterator[Array]:
    """Each value once: what several layers are given comes as often."""
    seen: list[Array] = []
    for one in tensors:
        if not any(np.array_equal(one, other) for other in seen):
            seen.append(one)
            yield one


def _made(
    question: Question, tensors: list[Array], *, whole: bool = True
) -> Iterator[tuple[_Way, tuple[Array, Array, Array]]]:
    """The ways that make the reference, and of what; some positions of the first sample are tried first.

    Of other samples a mask may hide keys; then they need not agree on the `whole`.
    """
    middle, allowed = question.reference.shape[1] // 2, question.limit.max_abs
    few = question.reference[:1, middle : middle + TRIED_POSITIONS]
    ways = [_Way(count, causal=causal) for count in _heads(question) for causal in (False, True)]
    for value in tensors:
        if not _is_between(few, value[:1], allowed):
            continue
        for (query, key), way in product(permutations([one for one in tensors if one is not value], 2), ways):
            near = np.abs(way.of(query[:1], key[:1], value[:1], middle, TRIED_POSITIONS) - few) <= allowed
            if not near.all():
                continue
            if not whole or agreement(question.reference, way.of(query, key, value), question.limit) is not None:
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
    for scale in ("1", "1/sqrt(features)", "1/features of a head"):
        yield "attention-scale", replace(usual, scale=scale), {"reference": usual.scale, "candidate": scale}
    yield "softmax-axis", replace(usual, axis=-2), {"reference": "keys", "candidate": "queries"}
    masks = ["none", "causal"]
    facts: dict[str, Fact] = {"reference": masks[usual.causal], "candidate": masks[not usual.causal]}
    yield "attention-mask", replace(usual, causal=not usual.causal), facts


FAMILIES = (
    explain_function,
    explain_resizing,
    explain_reduction,
    explain_kept_means,
    explain_gates,
    explain_turns,
)
