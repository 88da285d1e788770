"""Relations of a layer's output to what the layer was given: its inputs, resized or not, its bias, its weight."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relation_thresholds import CLOSER_TO_FUNCTION, LEAST_RELATION_GAIN
from align.forward.relations.pointwise import FUNCTIONS, leaky_relu, name_functions, softmax, swap_sides
from align.forward.relations.relation import Relation, agreement, at_places, with_facts
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question

    Function = Callable[[Array], Array]
    # From the places of the output, the lengths of the input and of the output to places of the input.
    Places = Callable[[Array, int, int], Array]

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
            found = (
                _sum(question, "residual-missing", value),
                _sum(question, "residual-extra", value, -1.0),
                _is(question, "input-returned", value),
            )
            yield from (one for each in found if (one := with_facts(each, {"input": name})))


def explain_parameters(question: Question, values: Mapping[str, Array]) -> Iterator[Relation]:
    """A bias that is missing or added twice, a scale that is missing, along the axis of their length."""
    for axis in range(question.reference.ndim):
        bias, weight = (_along(values.get(role), axis, question.reference.shape) for role in ("bias", "weight"))
        found = []
        if bias is not None:
            found += [_sum(question, "bias-missing", bias), _sum(question, "bias-twice", bias, -1.0)]
        if weight is not None:
            shift = 0.0 if bias is None else bias
            found.append(_sum(question, "weight-missing", shift - shift * weight, scale=weight))
        if bias is not None and weight is not None:
            found.append(_sum(question, "weight-and-bias-missing", bias, scale=weight))
        yield from (one for each in found if (one := with_facts(each, {"axis": axis})))


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
    if theirs and not ours.keys() & theirs.keys():
        facts: dict[str, Fact] = {"reference": name_functions(ours), "candidate": name_functions(theirs)}
        yield Relation("activation-differs", min(theirs.values()), facts=facts)


def _functions(output: Array, value: Array, question: Question) -> dict[str, float]:
    """Names of the functions that make this output of the input, each with the multiple of the limit that is left."""
    sample, some = (at_places(one, question.places) for one in (value, output))
    usual: dict[str, Function] = {"function_form.nothing": np.positive, **FUNCTIONS}
    for functions in (usual, dict(_fitted(sample, some))):
        found: dict[str, float] = {}
        for name, function in functions.items():
            if np.all(np.abs(function(sample) - some) <= question.limit.max_abs):
                left = agreement(output, function(value.astype(np.float64)), question.limit)
                found |= {} if left is None else {name: left}
        if found:
            return found
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
    left = {name: agreement(output, predicted, question.limit) for name, predicted in ways.items()}
    return {name: one for name, one in left.items() if one is not None}


def explain_rows(question: Question, numbers: Array, table: Array) -> Iterator[Relation]:
    """Rows of an embedding: those of the numbers next to the ones given, or zeros for one number."""
    rows = (*numbers.shape, *table.shape[1:])
    if numbers.dtype.kind not in "iu" or rows != question.reference.shape or not _within(numbers, table):
        return
    other = swap_sides(question)
    for by in SHIFTS:
        shifted = numbers + by
        if _within(shifted, table) and (one := other.confirm("rows-shifted", table[shifted])):
            yield from filter(None, [with_facts(one, {"by": by})])
    zero = ~question.candidate.reshape(numbers.size, -1).any(1)
    unlike = question.reference.reshape(numbers.size, -1).any(1) & zero
    empty = np.unique(numbers.reshape(-1)[unlike])
    if empty.size == 1 and (
        one := other.confirm("zero-row", np.where(numbers[..., None] == empty[0], 0.0, table[numbers]))
    ):
        yield from filter(None, [with_facts(one, {"number": int(empty[0])})])


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
