"""What code between layers makes of the tensors before: sums, functions, attention, reductions.

The tensors are the reference's; nothing is said unless its own value is made of them in a known way. For attention the
queries, keys and values are looked for among the tensors before, at a few positions first: that tells heads, scale,
axis of the softmax and causal mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, combinations, islice, permutations, product
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import numpy_dtype
from align.forward.relations.moved_values import FUNCTIONS, leaky_relu, name_functions, softmax, swap_sides
from align.forward.relations.output_relations import NARROW, likeliest_relation
from align.forward.relations.relation import (
    Relation,
    agreement,
    at_places,
    divisors,
    explain_kept_keys,
    explain_kept_means,
    kept_numbers,
    with_facts,
)
from align.forward.thresholds import (
    CLOSER_TO_FUNCTION,
    LARGEST_ATTENTION_IN_CODE,
    LARGEST_ATTENTION_SAMPLE,
    LEAST_RELATION_GAIN,
    MOST_ATTENTION_HEADS,
    MOST_ATTENTION_TENSORS,
    MOST_TERMS,
    SCALE_DIGITS,
    TRIED_POSITIONS,
)
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.core.parameters import Array
    from align.forward.relations.relation import Fact, Question

    Function = Callable[[Array], Array]
    Places = Callable[[Array, int, int], Array]


# Code that cuts an axis into two: a gate (GLU, SwiGLU), and the turn of rotary embeddings, by halves or neighbours.
#
# The reference's value must be made so of a tensor before; then what the candidate makes of the same is asked.

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
        facts: dict[str, Fact] = {"axis": axis, "function": first}
        if name == "gate-differs":
            facts = {"axis": axis, "reference": _name_of_gates(ours), "candidate": _name_of_gates(theirs)}
        yield Relation(name, min(theirs.values()), facts=facts)


def _is_halved(whole: tuple[int, ...], half: tuple[int, ...], axis: int) -> bool:
    others = whole[:axis] + whole[axis + 1 :] == half[:axis] + half[axis + 1 :]
    return len(whole) == len(half) and others and whole[axis] == 2 * half[axis]


def _gates(output: Array, value: Array, axis: int, question: Question) -> dict[tuple[str, bool], float]:
    """The functions, and whether the first half goes through it, that make this output."""
    first, second = np.split(value.astype(np.float64), 2, axis)
    samples = [at_places(one, question.places) for one in (first, second)]
    some = at_places(output, question.places)
    gates: dict[tuple[str, bool], float] = {}
    for name in GATES:
        for is_first, (gated, other) in ((False, samples), (True, samples[::-1])):
            if np.any(np.abs(gated * FUNCTIONS[name](other) - some) > question.limit.max_abs):
                continue
            whole = first * FUNCTIONS[name](second) if not is_first else second * FUNCTIONS[name](first)
            left = agreement(output, whole, question.limit)
            gates |= {} if left is None else {(name, is_first): left}
    return gates


def _name_of_gates(ways: dict[tuple[str, bool], float]) -> str:
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
    ours, theirs = (_ways_to(side, made, question) for side in (question.reference, question.candidate))
    if ours and theirs and ours.keys() != theirs.keys():
        facts: dict[str, Fact] = {"reference": sentence(next(iter(ours))), "candidate": sentence(next(iter(theirs)))}
        yield Relation("turn-differs", min(theirs.values()), facts=facts)


def _ways_to(output: Array, ways: Mapping[str, Array], question: Question) -> dict[str, float]:
    """The ways that make this output, each with the multiple of the limit that is left."""
    left = {name: agreement(output, made, question.limit) for name, made in ways.items()}
    return {name: one for name, one in left.items() if one is not None}


def _other_way(
    name: str, ours: dict[str, float], theirs: dict[str, float], words: Callable[[Iterable[str]], str]
) -> Iterator[Relation]:
    """The relation of this name where the ways of both sides are known, and none of them is the same."""
    if ours and theirs and not ours.keys() & theirs.keys():
        facts: dict[str, Fact] = {"reference": words(ours), "candidate": words(theirs)}
        yield Relation(name, min(theirs.values()), facts=facts)


# Relations of a layer's output to what the layer was given: its inputs, resized or not, its bias, its weight.

SHIFTS = (1, -1, 2, -2, 3, -3)  # no limit: what is tried, nearest first
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


def explain_inputs(question: Question, inputs: Mapping[str, Array]) -> Iterator[Relation]:
    """An input that was to be added and was not (`residual-missing`), one added on top, or given back as it is."""
    for name, value in inputs.items():
        if value.shape == question.reference.shape and value.dtype.kind == "f":
            relations = (
                _sum(question, "residual-missing", value),
                _sum(question, "residual-extra", value, -1.0),
                _is(question, "input-returned", value),
            )
            yield from (one for each in relations if (one := with_facts(each, {"input": name})))


def explain_parameters(question: Question, values: Mapping[str, Array]) -> Iterator[Relation]:
    """A bias that is missing or added twice, a scale that is missing, along the axis of their length."""
    for axis in range(question.reference.ndim):
        bias, weight = (_along(values.get(role), axis, question.reference.shape) for role in ("bias", "weight"))
        relations = []
        if bias is not None:
            relations += [_sum(question, "bias-missing", bias), _sum(question, "bias-twice", bias, -1.0)]
        if weight is not None:
            shift = 0.0 if bias is None else bias
            relations.append(_sum(question, "weight-missing", shift - shift * weight, scale=weight))
        if bias is not None and weight is not None:
            relations.append(_sum(question, "weight-and-bias-missing", bias, scale=weight))
        yield from (one for each in relations if (one := with_facts(each, {"axis": axis})))


def _sum(question: Question, name: str, term: Array, sign: float = 1.0, scale: Array | None = None) -> Relation | None:
    """Confirm that the candidate (times a scale) plus or minus a term is the reference, some elements first."""
    sample = question.candidate_sample * (1.0 if scale is None else at_places(scale, question.places))
    if not question.fits(sample + sign * at_places(term, question.places)):
        return None
    return question.confirm(
        name, question.candidate.astype(np.float64) * (1.0 if scale is None else scale) + sign * term
    )


def _is(question: Question, name: str, value: Array) -> Relation | None:
    """Confirm that the candidate is something else."""
    other = swap_sides(question)
    return other.confirm(name, value) if other.fits(at_places(value, question.places)) else None


def _along(values: Array | None, axis: int, shape: tuple[int, ...]) -> Array | None:
    """Numbers of the length of an axis, one for each of its slices."""
    if values is None or values.shape != shape[axis : axis + 1]:
        return None
    numbers = values.astype(np.float64).reshape([-1 if one == axis else 1 for one in range(len(shape))])
    return np.broadcast_to(numbers, shape)


def explain_function(question: Question, value: Array) -> Iterator[Relation]:
    """The function of the input that each side is, where both are known and unlike (`activation-differs`).

    A framework's own tanh is coarser than NumPy's: the candidate counts as a function that it is much closer to.
    """
    if value.shape != question.reference.shape or value.dtype.kind != "f":
        return
    ours = _functions(question.reference, value, question)
    theirs = _functions(question.candidate, value, question) if ours else {}
    if ours and not theirs and (wider := question.factor / CLOSER_TO_FUNCTION) > 1.0:
        limit = replace(question.limit, max_abs=question.limit.max_abs * wider, rmse=question.limit.rmse * wider)
        near = _functions(question.candidate, value, replace(question, limit=limit))
        theirs = {name: left for name, left in near.items() if left <= LEAST_RELATION_GAIN * min(near.values())}
    yield from _other_way("activation-differs", ours, theirs, name_functions)


def _functions(output: Array, value: Array, question: Question) -> dict[str, float]:
    """Names of the functions that make this output of the input, each with the multiple of the limit that is left."""
    sample, some = (at_places(one, question.places) for one in (value, output))
    usual: dict[str, Function] = {"function_form.nothing": np.positive, **FUNCTIONS}
    for functions in (usual, dict(_fitted(sample, some))):
        agreeing: dict[str, float] = {}
        for name, function in functions.items():
            if np.all(np.abs(function(sample) - some) <= question.limit.max_abs):
                left = agreement(output, function(value.astype(np.float64)), question.limit)
                agreeing |= {} if left is None else {name: left}
        if agreeing:
            return agreeing
    return _softmaxes(output, value, question)


def _fitted(value: Array, output: Array) -> Iterator[tuple[str, Function]]:
    """Functions with a slope that is read off the negative side."""
    low, seen = value[value < 0.0], output[value < 0.0]
    if low.size:
        slope, scale = (float(seen @ one / (one @ one)) for one in (low, np.expm1(low)))
        yield f"leaky-relu {slope:.4g}", leaky_relu(slope)
        yield f"elu {scale:.4g}", lambda x: np.where(x > 0.0, x, scale * np.expm1(np.minimum(x, 0.0)))


def _softmaxes(output: Array, value: Array, question: Question) -> dict[str, float]:
    if output.min() < 0.0 or output.max() > 1.0 + question.limit.max_abs:
        return {}
    ways: dict[str, Array] = {
        sentence("function_form.softmax", axis=axis): softmax(value.astype(np.float64), axis)
        for axis in range(value.ndim)
    }
    return _ways_to(output, ways, question)


def explain_rows(question: Question, numbers: Array, table: Array) -> Iterator[Relation]:
    """Rows of an embedding: those of the numbers next to the ones given, or zeros for one number."""
    rows = (*numbers.shape, *table.shape[1:])
    if numbers.dtype.kind not in "iu" or rows != question.reference.shape or not _within(numbers, table):
        return
    other = swap_sides(question)
    for by in SHIFTS:
        shifted = numbers + by
        if _within(shifted, table) and (relation := other.confirm("rows-shifted", table[shifted])):
            yield from filter(None, [with_facts(relation, {"by": by})])
    zero = ~question.candidate.reshape(numbers.size, -1).any(1)
    unlike = question.reference.reshape(numbers.size, -1).any(1) & zero
    empty = np.unique(numbers.reshape(-1)[unlike])
    if empty.size == 1 and (
        relation := other.confirm("zero-row", np.where(numbers[..., None] == empty[0], 0.0, table[numbers]))
    ):
        yield from filter(None, [with_facts(relation, {"number": int(empty[0])})])


def _within(numbers: Array, table: Array) -> bool:
    return bool(numbers.min() >= 0 and numbers.max() < len(table))


def explain_product(question: Question, value: Array, weight: Array, bias: Array | None) -> Iterator[Relation]:
    """A square weight that was used the other way round."""
    if weight.ndim == 2 and weight.shape[0] == weight.shape[1] == value.shape[-1] and value.dtype.kind == "f":
        product = value.astype(np.float64) @ weight.astype(np.float64) + (0.0 if bias is None else bias)
        if product.shape == question.reference.shape:
            yield from filter(None, [swap_sides(question).confirm("weight-transposed", product)])


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
    ours, theirs = (_ways_to(side, ways, question) for side in (output, question.candidate))
    yield from _other_way("interpolation", ours, theirs, lambda keys: joined(" or ", [*map(sentence, keys)]))


def resized(value: Array, lengths: tuple[int, ...], places: Places) -> Array:
    """Interpolate linearly between the elements at these places, axis by axis from the third on, in float64."""
    resampled = value.astype(np.float64)
    for axis, length in enumerate(lengths, start=2):
        size = value.shape[axis]
        at = np.clip(places(np.arange(length, dtype=np.float64), size, length), 0.0, size - 1.0)
        low = at.astype(int)
        share = (at - low).reshape([-1 if one == axis else 1 for one in range(value.ndim)])
        resampled = (
            resampled.take(low, axis) * (1.0 - share) + resampled.take(np.minimum(low + 1, size - 1), axis) * share
        )
    return resampled


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
    yielded: set[str] = set()
    functions: dict[str, Function] = {NOTHING: np.positive, **FUNCTIONS}
    for name, value in known.items():
        sample = at_places(value, question.places)
        for function, of in functions.items():
            if function in yielded or np.any(np.abs(of(sample) - some) > question.limit.max_abs):
                continue
            left = agreement(output, of(value.astype(np.float64)), question.limit)
            if left is not None:
                yielded.add(function)
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
    for (first_name, first), (second_name, second) in combinations(same, 2):
        if question.fits(samples[first_name] + samples[second_name]):
            for name, term, rest in ((first_name, first, second), (second_name, second, first)):
                relation = _cast(question, term, rest) or likeliest_relation(
                    term, question.candidate - rest, question.limit
                )
                if relation and relation.factor <= 1.0:
                    yield replace(relation, facts={**relation.facts, "term": name})


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
    yield from _other_way("reduction-differs", ours, theirs, lambda named: joined(" or ", [*named]))


def _reductions(output: Array, value: Array, lost: int, question: Question) -> dict[str, float]:
    reductions: dict[str, float] = {}
    for axes in combinations(range(value.ndim), lost):
        if tuple(length for axis, length in enumerate(value.shape) if axis not in axes) == output.shape:
            for name, reduce in REDUCTIONS.items():
                left = agreement(output, reduce(value.astype(np.float64), axes), question.limit)
                if left is not None:
                    reductions[sentence("reduction_form.over_axes", reduction=name, axes=axes)] = left
    return reductions


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


FAMILIES = (explain_function, explain_resizing, explain_reduction, explain_kept_means, explain_gates, explain_turns)
