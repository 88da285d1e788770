"""Relations of a layer's output to what the layer was given: its inputs, its bias, its weight."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from align.core.hypotheses import Hypothesis
from align.steps.activations import FUNCTIONS, leaky, softmax
from align.steps.hypotheses_evidence import agreement, with_facts
from align.steps.hypotheses_pointwise import turned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.steps.hypotheses_evidence import Question

    Function = Callable[[Array], Array]

SHIFTS = (1, -1, 2, -2, 3, -3)


def explain_inputs(question: Question, inputs: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """An input that was to be added and was not (`residual-missing`), one added on top, or given back as it is."""
    candidate = question.candidate.astype(np.float64)
    for name, value in inputs.items():
        if value.shape == candidate.shape and value.dtype.kind == "f":
            found = (
                question.confirm("residual-missing", candidate + value),
                question.confirm("residual-extra", candidate - value),
                turned(question).confirm("input-returned", value),
            )
            yield from (one for each in found if (one := with_facts(each, {"input": name})))


def explain_parameters(question: Question, values: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """A bias that is missing or added twice, a scale that is missing, along the axis of their length."""
    for axis, length in enumerate(question.reference.shape):
        bias, weight = (_along(values.get(role), axis, question.reference.ndim, length) for role in ("bias", "weight"))
        candidate = question.candidate.astype(np.float64)
        shift = 0.0 if bias is None else bias
        found = []
        if bias is not None:
            found += [
                question.confirm("bias-missing", candidate + bias),
                question.confirm("bias-twice", candidate - bias),
            ]
        if weight is not None:
            found.append(question.confirm("weight-missing", (candidate - shift) * weight + shift))
        if bias is not None and weight is not None:
            found.append(question.confirm("weight-and-bias-missing", candidate * weight + bias))
        yield from (one for each in found if (one := with_facts(each, {"axis": axis})))


def _along(values: Array | None, axis: int, ndim: int, length: int) -> Array | None:
    if values is None or values.shape != (length,):
        return None
    return values.astype(np.float64).reshape([-1 if one == axis else 1 for one in range(ndim)])


def explain_function(question: Question, value: Array) -> Iterator[Hypothesis]:
    """The function of the input that each side is, where both are known and unlike (`activation-differs`)."""
    if value.shape != question.reference.shape or value.dtype.kind != "f":
        return
    ours = _functions(question.reference, value, question)
    theirs = _functions(question.candidate, value, question) if ours else {}
    if theirs and not ours.keys() & theirs.keys():
        facts = {"reference": " or ".join(ours), "candidate": " or ".join(theirs)}
        yield Hypothesis("activation-differs", min(theirs.values()), facts={**facts})


def _functions(output: Array, value: Array, question: Question) -> dict[str, float]:
    """Names of the functions that make this output of the input, each with the multiple of the limit that is left."""
    found: dict[str, float] = {}
    with np.errstate(over="ignore"):
        sample, some = (one.reshape(-1)[question.places].astype(np.float64) for one in (value, output))
        for name, function in chain(FUNCTIONS.items(), _fitted(sample, some)):
            if np.all(np.abs(function(sample) - some) <= question.limit.max_abs):
                left = agreement(output, function(value.astype(np.float64)), question.limit)
                found |= {} if left is None else {name: left}
    return found or _softmaxes(output, value, question)


def _fitted(value: Array, output: Array) -> Iterator[tuple[str, Function]]:
    """Functions with a slope that is read off the negative side."""
    low, seen = value[value < 0.0], output[value < 0.0]
    if low.size:
        slope, scale = (float(seen @ one / (one @ one)) for one in (low, np.expm1(low)))
        yield f"leaky-relu {slope:.4g}", leaky(slope)
        yield f"elu {scale:.4g}", lambda x: np.where(x > 0.0, x, scale * np.expm1(np.minimum(x, 0.0)))
    yield "nothing", lambda x: x


def _softmaxes(output: Array, value: Array, question: Question) -> dict[str, float]:
    if output.min() < 0.0 or output.max() > 1.0 + question.limit.max_abs:
        return {}
    ways = {f"softmax over axis {axis}": softmax(value.astype(np.float64), axis) for axis in range(value.ndim)}
    left = {name: agreement(output, predicted, question.limit) for name, predicted in ways.items()}
    return {name: one for name, one in left.items() if one is not None}


def explain_rows(question: Question, numbers: Array, table: Array) -> Iterator[Hypothesis]:
    """Rows of an embedding: those of the numbers next to the ones given, or zeros for one number."""
    if numbers.dtype.kind not in "iu" or (*numbers.shape, *table.shape[1:]) != question.reference.shape:
        return
    other = turned(question)
    for by in SHIFTS:
        shifted = numbers + by
        if shifted.min() >= 0 and shifted.max() < len(table) and (one := other.confirm("rows-shifted", table[shifted])):
            yield from filter(None, [with_facts(one, {"by": by})])
    zero = ~question.candidate.reshape(numbers.size, -1).any(1)
    unlike = question.reference.reshape(numbers.size, -1).any(1) & zero
    empty = np.unique(numbers.reshape(-1)[unlike])
    if empty.size == 1 and (
        one := other.confirm("zero-row", np.where(numbers[..., None] == empty[0], 0.0, table[numbers]))
    ):
        yield from filter(None, [with_facts(one, {"number": int(empty[0])})])


def explain_product(question: Question, value: Array, weight: Array, bias: Array | None) -> Iterator[Hypothesis]:
    """A square weight that was used the other way round."""
    if weight.ndim == 2 and weight.shape[0] == weight.shape[1] == value.shape[-1] and value.dtype.kind == "f":
        product = value.astype(np.float64) @ weight.astype(np.float64) + (0.0 if bias is None else bias)
        if product.shape == question.reference.shape:
            yield from filter(None, [turned(question).confirm("weight-transposed", product)])
