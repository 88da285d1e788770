"""Whether one side is a well-known function of the other: an activation missing, or one too many, or clipped values.

The functions are those that layers apply element by element, and softmax, as NumPy computes them in float64. Functions
that these values do not distinguish (ReLU and ReLU6 below 6) are all named.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erf, expit

from align.forward.relation_thresholds import BISECTIONS, DIGITS_OF_CAP, MOST_SOFT_CAP
from align.forward.relations.relation import Question, with_facts
from align.words.catalogue import joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from align.core.dtypes import Array
    from align.forward.relations.relation import Relation

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # no limit: the constants of SELU


def softmax(values: Array, axis: int) -> Array:
    """Shares along an axis."""
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    shares: Array = powers / powers.sum(axis=axis, keepdims=True)
    return shares


def leaky_relu(slope: float) -> Callable[[Array], Array]:
    """Return a rectifier whose negative side has a slope."""
    return lambda x: np.where(x >= 0.0, x, slope * x)


def _softplus(x: Array) -> Array:
    positive: Array = np.logaddexp(0.0, x)
    return positive


def _gelu_tanh(x: Array) -> Array:
    gelu: Array = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return gelu


def _elu(x: Array) -> Array:
    return np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0)))


_WORDED = "function_form."
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky-relu 0.01": leaky_relu(0.01),
    "leaky-relu 0.1": leaky_relu(0.1),
    "leaky-relu 0.2": leaky_relu(0.2),
    "gelu": lambda x: 0.5 * x * (1.0 + erf(x / np.sqrt(2.0))),
    "gelu-tanh": _gelu_tanh,
    "gelu-sigmoid": lambda x: x * expit(1.702 * x),
    "silu": lambda x: x * expit(x),
    "sigmoid": expit,
    "tanh": np.tanh,
    "hard-sigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hard-sigmoid 0.2": lambda x: np.clip(0.2 * x + 0.5, 0.0, 1.0),
    "hard-swish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "hard-tanh": lambda x: np.clip(x, -1.0, 1.0),
    "elu": _elu,
    "selu": lambda x: SELU_SCALE * np.where(x > 0.0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0.0))),
    "softplus": _softplus,
    "log-sigmoid": lambda x: -_softplus(-x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "exp": lambda x: np.exp(np.minimum(x, 700.0)),
    "log": lambda x: np.log(np.maximum(x, np.finfo(float).tiny)),
    "square": np.square,
    "sqrt": lambda x: np.sqrt(np.maximum(x, 0.0)),
    "abs": np.abs,
    "function_form.round": np.rint,
    "function_form.floor": np.floor,
}


ROUNDING = ("function_form.round", "function_form.floor")


def name_functions(names: Iterable[str]) -> str:
    """Say that it is one of these functions; names of `FUNCTIONS` with a text have the key of it.

    >>> name_functions(["relu", "function_form.floor"])
    'relu or rounding down'
    """
    return joined(" or ", [sentence(name) if name.startswith(_WORDED) else name for name in names])


def explain_pointwise(question: Question) -> Iterator[Relation]:
    """Yield the function of the candidate that the reference is (`activation-missing`), and the reverse (`-extra`)."""
    other = swap_sides(question)
    found = chain(
        _function(question, "activation-missing"),
        _function(other, "activation-extra"),
        _clipped(other, "clipped"),
        _clipped(question, "clipping-missing"),
        _soft_capped(question, "soft-cap-missing"),
        _soft_capped(other, "soft-cap-extra"),
    )
    yield from islice(found, 1)


def swap_sides(question: Question) -> Question:
    """The same question of the candidate, whose values may be larger than those that the limit was made for."""
    ours, theirs = np.abs(question.sample).max(initial=0.0), np.abs(question.candidate_sample).max(initial=0.0)
    larger = max(1.0, float(theirs / ours)) if ours > 0.0 else 1.0
    limit = question.limit
    limit = replace(limit, max_abs=limit.max_abs * larger, rmse=limit.rmse * larger)
    return Question(question.candidate, question.reference, limit)


def _function(question: Question, name: str) -> Iterator[Relation]:
    likely = [key for key, function in FUNCTIONS.items() if question.fits(function(question.candidate_sample))]
    if np.unique(question.candidate_sample).size <= np.unique(question.sample).size:
        likely = [key for key in likely if key not in ROUNDING]  # what joins no two values is not seen to round
    if not likely:
        return
    values = question.candidate.astype(np.float64)
    found = {key: question.confirm(name, FUNCTIONS[key](values)) for key in likely}
    named = {key: one for key, one in found.items() if one}
    if named:
        best = min(named.values(), key=lambda one: one.factor)
        yield replace(best, facts={"function": name_functions(named)})


def _clipped(question: Question, name: str) -> Iterator[Relation]:
    """The bounds are the largest and the smallest value; one that nothing reaches beyond is none.

    Something has to lie between them and stay: two values become any two others.
    """
    low, high = float(question.reference.min()), float(question.reference.max())
    between = (question.candidate_sample > low) & (question.candidate_sample < high)
    if not between.any() or not question.fits(np.clip(question.candidate_sample, low, high)):
        return
    beyond = question.limit.max_abs
    reached = {"low": low - question.candidate.min() > beyond, "high": question.candidate.max() - high > beyond}
    found = question.confirm(name, np.clip(question.candidate, low, high), fitted=sum(reached.values()))
    if found := with_facts(found, {key: bound for key, bound in (("low", low), ("high", high)) if reached[key]}):
        yield found


def _soft_capped(question: Question, name: str) -> Iterator[Relation]:
    """`cap * tanh(x / cap)`: the cap that the largest value shows, a plain number, which must fit all others.

    Between two soft caps there is nearly a third one: a number that nobody would write.
    """
    given, capped = question.candidate_sample, question.sample
    place = int(np.abs(given).argmax())
    largest, reached = abs(float(given[place])), abs(float(capped[place]))
    if not 0.0 < reached < largest or not np.isfinite(largest):
        return
    low, high = reached, largest * MOST_SOFT_CAP
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if middle * np.tanh(largest / middle) < reached else (low, middle)
    for cap in dict.fromkeys((float(f"{high:.{DIGITS_OF_CAP}g}"), float(round(high)) or high)):
        if question.fits(cap * np.tanh(given / cap)):
            values = question.candidate.astype(np.float64)
            found = with_facts(question.confirm(name, cap * np.tanh(values / cap), fitted=1), {"cap": cap})
            if found:
                yield found
                return
