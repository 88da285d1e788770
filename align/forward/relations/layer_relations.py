"""Why a layer returns something else than the reference's, judged by all that it was given.

What its inputs and parameters show names a cause; only where that is nothing is the output asked alone. Attention is
made of what each side was given: with how many heads, which scale, and which axis the batch is. Nothing is said unless
the reference's own output is made so: a mask, or weights that are kept otherwise, ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import floor, inf, isfinite, log10, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import dtype_name
from align.forward.relations.code_between_layers import (
    explain_code,
    explain_function,
    explain_inputs,
    explain_parameters,
    explain_product,
    explain_resizing,
    explain_rows,
)
from align.forward.relations.moved_values import softmax, swap_sides
from align.forward.relations.output_relations import NARROW, explain_output, make_question, relation_sort_key
from align.forward.relations.relation import Question, agreement, divisors, with_facts
from align.forward.thresholds import LARGE_NORM_INPUT, LARGEST_EPSILON, LARGEST_TRIED_ATTENTION, MOST_NORM_GROUPS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.parameters import Array
    from align.core.traces import Limit
    from align.forward.relations.relation import Fact, Relation


NORMS = ("layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm")
# What layer rules and live layers call the parameters that are meant here.
ROLES = {
    "running_mean": "mean",
    "moving_mean": "mean",
    "running_var": "variance",
    "moving_variance": "variance",
    "gamma": "weight",
    "beta": "bias",
    "embedding_table": "weight",
}


def explain_layer(
    kind: str,
    inputs: Mapping[str, Array],
    values: Mapping[str, Array],
    reference: Array,
    candidate: Array,
    limit: Limit,
) -> tuple[Relation, ...]:
    """Return what makes the candidate's output differ though both got these inputs and values, the likeliest first.

    `kind` is that of the layer rules ("batch_norm"), `inputs` are by leaf name, `values` the parameters and buffers by
    role. Code is no layer: its kind is "", its inputs are the tensors before it, the latest first. `limit` is that of
    the layer or the code alone.

    >>> from align.core.traces import Limit
    >>> rng = np.random.default_rng(0)
    >>> x, bias = rng.standard_normal((8, 16)), rng.standard_normal(16)
    >>> found = explain_layer("linear", {}, {"bias": bias}, x + bias, x, Limit(1e-5, 1e-6, "user"))
    >>> found[0].id
    'bias-missing'
    """
    question = make_question(reference, candidate, limit)
    if question is None:
        return explain_output(reference, candidate, limit)
    parameters = {ROLES.get(role, role): _widened(value) for role, value in values.items()}
    given = {name: _widened(value) for name, value in inputs.items()}
    with np.errstate(over="ignore", invalid="ignore"):  # a wrong guess may leave the range of numbers
        found = [one for one in _given(question, kind, given, parameters) if one.factor <= 1.0]
    returned = [one for one in found if one.id == "input-returned"]
    # What is given back may also be the output without what is done to it: that says more.
    explained = sorted((one for one in found if one not in returned), key=relation_sort_key)
    return (*(explained or explain_output(reference, candidate, limit)), *returned)


def _widened(values: Array) -> Array:
    """Floats of fewer than 32 bits in float32; numbers of rows stay whole."""
    return values.astype(np.float32) if dtype_name(values.dtype) in NARROW else values


def _given(
    question: Question, kind: str, inputs: Mapping[str, Array], values: Mapping[str, Array]
) -> Iterator[Relation]:
    yield from explain_parameters(question, values)
    first, weight, bias = next(iter(inputs.values()), None), values.get("weight"), values.get("bias")
    if first is None:
        return
    if not kind:
        if weight is not None:  # a norm of a class of one's own; its ways hold those of an RMSNorm
            yield from explain_norm(question, "layer_norm", first, values)
        yield from explain_code(question, inputs)
        return
    yield from explain_inputs(question, inputs)
    if kind in NORMS:
        yield from explain_norm(question, kind, first, values)
    elif kind == "multi_head_attention":
        yield from explain_attention(question, inputs, values)
    elif kind == "embedding" and weight is not None:
        yield from explain_rows(question, first, weight)
    elif weight is not None:
        yield from explain_product(question, first, weight, bias)
    elif kind == "upsample":
        yield from explain_resizing(question, first)
    else:
        yield from explain_function(question, first)


PACKED = {"in_proj_weight", "out_proj.weight"}


@dataclass(frozen=True, slots=True)
class _Way:
    """How attention is computed; `batch_first` is of inputs (batch, position, feature)."""

    heads: int
    scaled: bool = True
    batch_first: bool = True

    def of(self, inputs: tuple[Array, Array, Array], values: Mapping[str, Array]) -> Array:
        """The output of a layer with packed projections, in float64."""
        bias = values.get("in_proj_bias", np.zeros(3 * inputs[0].shape[-1]))
        weights = zip(inputs, np.split(values["in_proj_weight"], 3), np.split(bias, 3), strict=True)
        query, key, value = (self._split(one @ weight.T + shift) for one, weight, shift in weights)
        mixed = dot_product_attention(query, key, value, scaled=self.scaled)
        joined = mixed.swapaxes(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1)
        output = joined @ values["out_proj.weight"].T + values.get("out_proj.bias", 0.0)
        return output if self.batch_first else output.swapaxes(0, 1)

    def _split(self, projected: Array) -> Array:
        batched = projected if self.batch_first else projected.swapaxes(0, 1)
        return batched.reshape(*batched.shape[:2], self.heads, -1).swapaxes(1, 2)


def dot_product_attention(query: Array, key: Array, value: Array, *, scaled: bool = True) -> Array:
    """Values mixed by the softmax of the products of queries and keys, over the last but one axis."""
    scores = query @ key.swapaxes(-1, -2) * (1.0 / sqrt(query.shape[-1]) if scaled else 1.0)
    mixed: Array = softmax(scores, -1) @ value
    return mixed


def explain_attention(
    question: Question, inputs: Mapping[str, Array], values: Mapping[str, Array]
) -> Iterator[Relation]:
    """Yield another number of heads, no scale, or the batch along another axis."""
    floats = [one.astype(np.float64) for one in inputs.values() if one.dtype.kind == "f"]
    if len(floats) != 3 or len(inputs) != 3 or any(one.ndim != 3 for one in floats):
        return
    query, key, value = floats
    features = query.shape[-1]
    if not values.keys() >= PACKED or values["in_proj_weight"].shape != (3 * features, features):
        return
    if query.shape != question.reference.shape or key.shape != value.shape or query.size > LARGEST_TRIED_ATTENTION:
        return

    def is_way(way: _Way) -> bool:
        return agreement(question.reference, way.of((query, key, value), values), question.limit) is not None

    heads = divisors(features)
    every = (_Way(count, batch_first=first) for count in heads for first in (True, False))
    if usual := next(filter(is_way, every), None):
        for name, way, facts in _others(usual, heads):
            found = swap_sides(question).confirm(name, way.of((query, key, value), values))
            yield from filter(None, [with_facts(found, facts)])


def _others(usual: _Way, heads: list[int]) -> Iterator[tuple[str, _Way, dict[str, Fact]]]:
    for count in heads:
        if count != usual.heads:
            yield "attention-heads", replace(usual, heads=count), {"reference": usual.heads, "candidate": count}
    yield "attention-scale", replace(usual, scaled=False), {"reference": "1/sqrt(features of a head)", "candidate": "1"}
    facts: dict[str, Fact] = {"reference": int(not usual.batch_first), "candidate": int(usual.batch_first)}
    yield "attention-batch-axis", replace(usual, batch_first=not usual.batch_first), facts


# How a normalising layer of each side computes what it returns: the epsilon, the elements, the statistics.
#
# Nothing is said unless the reference's own output is made by one of the known ways; the epsilon of either side is
# solved for, since each group of elements gives an estimate of it. Each way is what to subtract from the input and
# what to divide it by; the epsilon is added to the variance under the root, or to the root. Nothing is computed
# before it is asked for.

OPPOSITE = {"not-centred": "centred", "centred": "not-centred"}


@dataclass(frozen=True, slots=True)
class _Affine:
    """What a layer does after it has normalised: times a weight, plus a bias, shaped to meet the output."""

    weight: Array | float
    bias: Array | float

    def of(self, normalised: Array, like: Array) -> Array:
        made: Array = normalised.reshape(like.shape) * self.weight + self.bias
        return made


def explain_norm(question: Question, kind: str, value: Array, parameters: Mapping[str, Array]) -> Iterator[Relation]:
    """Yield the other epsilon, and each other way with the reference's epsilon, that makes the candidate's output.

    What is normalised apart from the rest stands for it first: a few samples, or channels of a batch norm.
    """
    if value.shape != question.reference.shape or value.ndim < 2 or not _fit(kind, value, parameters):
        return
    labels: set[str] | None = None
    if value.size > LARGE_NORM_INPUT:
        labels = {label for _, *both in _found(*_some(question, kind, value, parameters)) for label in both}
    if labels is None or labels:
        yield from (one for one, *_ in _found(question, kind, value, parameters, labels))


def _found(
    question: Question, kind: str, value: Array, parameters: Mapping[str, Array], labels: set[str] | None = None
) -> Iterator[tuple[Relation, str, str]]:
    """What explains, with the labels of the reference's way and the candidate's; of these ways only."""
    wide = {role: parameter.astype(np.float64) for role, parameter in parameters.items()}
    every = norm_forms(kind, value.astype(np.float64), wide)
    forms = [form for form in every if labels is None or form.label in labels]
    weight, bias = (_shaped(wide.get(role), kind, value.ndim) for role in ("weight", "bias"))
    affine = _Affine(1.0 if weight is None else weight, 0.0 if bias is None else bias)
    usual = next((made for form in forms if (made := _made_by(question, form, affine))), None)
    if usual is None:
        return
    form, epsilon, error = usual
    if relation := _other_epsilon(question, form, affine, (epsilon, error)):
        yield relation, form.label, form.label
    for other in forms:
        if other is not form and (relation := _other_way(question, other, form, epsilon, affine)):
            yield relation, form.label, other.label


def _some(
    question: Question, kind: str, value: Array, parameters: Mapping[str, Array]
) -> tuple[Question, str, Array, Mapping[str, Array]]:
    axis = 1 if kind == "batch_norm" else 0
    count = max(1, LARGE_NORM_INPUT * value.shape[axis] // value.size)
    window = (slice(None),) * axis + (slice(count),)
    part = Question(question.reference[window], question.candidate[window], question.limit)
    kept = {role: one[:count] for role, one in parameters.items()} if axis else parameters
    return part, kind, value[window], kept


def _made_by(question: Question, form: NormForm, affine: _Affine) -> tuple[NormForm, float, float] | None:
    epsilon, error = _epsilon(question.reference, form, affine, question.limit.rmse)
    if not 0.0 <= epsilon <= LARGEST_EPSILON:
        return None
    made = affine.of(form.normalised(epsilon), question.reference)
    return None if agreement(question.reference, made, question.limit) is None else (form, epsilon, error)


def _other_epsilon(
    question: Question, form: NormForm, affine: _Affine, reference: tuple[float, float]
) -> Relation | None:
    epsilon, error = _epsilon(question.candidate, form, affine, question.limit.rmse)
    if not 0.0 <= epsilon <= LARGEST_EPSILON:
        return None
    made = affine.of(form.normalised(epsilon), question.candidate)
    found = swap_sides(question).confirm("epsilon", made, fitted=1)
    facts: dict[str, Fact] = {"reference": likely_epsilon(*reference), "candidate": likely_epsilon(epsilon, error)}
    return with_facts(found, {**facts, "error": error})


def _other_way(question: Question, form: NormForm, usual: NormForm, epsilon: float, affine: _Affine) -> Relation | None:
    made = affine.of(form.normalised(epsilon), question.candidate)
    name = form.id or OPPOSITE.get(usual.id, usual.id)
    found = swap_sides(question).confirm(name, made)
    return with_facts(found, {"reference": usual.label, "candidate": form.label})


def _epsilon(output: Array, form: NormForm, affine: _Affine, noise: float) -> tuple[float, float]:
    """The epsilon that fits an output best, and what it may be off by if the output is off by `noise`.

    Each group of elements that are normalised together is scaled by k = 1 / sqrt(variance + epsilon); the groups'
    estimates are averaged, each by how well it is known. Not below 0.
    """
    deviations = form.values - form.middle
    base = deviations.reshape(output.shape) * affine.weight
    seen = output - affine.bias
    product, square = (
        np.sum((one * base).reshape(form.values.shape), axis=form.over, keepdims=True) for one in (seen, base)
    )
    usable = (square > 0.0) & (product > 0.0)
    if not usable.any():
        return inf, inf
    scale, square, variance = (
        product[usable] / square[usable],
        square[usable],
        np.broadcast_to(form.variance, usable.shape)[usable],
    )
    estimates = 1.0 / scale - np.sqrt(variance) if form.outside else scale**-2 - variance
    weights = square * (scale**4 if form.outside else scale**6 / 4.0)
    told_by, weighed = float(weights.sum()), float(weights @ estimates)
    if not 0.0 < told_by < inf or not isfinite(weighed):  # values near the ends of their range
        return inf, inf
    epsilon, error = weighed / told_by, noise / sqrt(told_by)
    return (max(epsilon, 0.0) if epsilon > -error else epsilon), error


def likely_epsilon(epsilon: float, error: float) -> float:
    """The power of ten that an epsilon is, if it is one to within its error; else the epsilon.

    >>> likely_epsilon(1.02e-5, 3e-7), likely_epsilon(1.3e-5, 3e-7)
    (1e-05, 1.3e-05)
    """
    if not 0.0 < epsilon < inf:
        return epsilon
    power = float(f"1e{floor(log10(epsilon) + 0.5)}")
    return power if abs(power - epsilon) <= error else epsilon


def _fit(kind: str, value: Array, parameters: Mapping[str, Array]) -> bool:
    """Whether the parameters have the shape that such a layer's have."""
    if kind in ("layer_norm", "rms_norm"):
        return all(value.shape[-one.ndim :] == one.shape for one in _used(parameters) if one.ndim)
    return all(one.shape == value.shape[1:2] for one in _used(parameters))


def _used(parameters: Mapping[str, Array]) -> list[Array]:
    return [value for role, value in parameters.items() if role in ("weight", "bias", "mean", "variance")]


def _shaped(values: Array | None, kind: str, ndim: int) -> Array | None:
    """Along the last axes for norms of the features, along axis 1 for norms of channels."""
    if values is None or kind in ("layer_norm", "rms_norm"):
        return values
    return values.reshape([-1 if axis == 1 else 1 for axis in range(ndim)])


@dataclass(frozen=True)
class NormForm:
    """One way. `id` names the mistake that it is where the other side has the usual one, `label` says what it does.

    `values` is the input in the shape in which it is normalised `over` some axes; `mean` and `square` stand in the
    place of its own mean and variance.
    """

    id: str
    label: str
    values: Array
    over: tuple[int, ...]
    mean: Array | float | None = None
    square: Array | None = None
    unbiased: bool = False
    outside: bool = False

    @cached_property
    def middle(self) -> Array | float:
        """What is subtracted."""
        return self.values.mean(axis=self.over, keepdims=True) if self.mean is None else self.mean

    @cached_property
    def variance(self) -> Array:
        """What is divided by, before the root."""
        if self.square is not None:
            return self.square
        count = prod(self.values.shape[axis] for axis in self.over)
        mean: Array = np.mean((self.values - self.middle) ** 2, axis=self.over, keepdims=True)
        return mean * (count / (count - 1.0)) if self.unbiased else mean

    def normalised(self, epsilon: float) -> Array:
        """The input with mean 0 and variance 1."""
        root = np.sqrt(self.variance) + epsilon if self.outside else np.sqrt(self.variance + epsilon)
        result: Array = (self.values - self.middle) / root
        return result


def norm_forms(kind: str, values: Array, parameters: Mapping[str, Array]) -> Iterator[NormForm]:
    """All ways known for a kind of layer, the usual first; `parameters` by role, values in float64."""
    if kind == "batch_norm":
        yield from _batch(values, parameters)
    elif kind in ("group_norm", "instance_norm"):
        yield from _groups(values)
    elif kind in ("layer_norm", "rms_norm"):
        yield from _layer(values, parameters.get("weight"), centred=kind == "layer_norm")


def _layer(values: Array, weight: Array | None, *, centred: bool) -> Iterator[NormForm]:
    trailing = 1 if weight is None else max(weight.ndim, 1)
    last_axes = tuple(range(values.ndim - trailing, values.ndim))
    usual = NormForm(
        "", sentence("norm_form.over_axes", axes=last_axes), values, last_axes, mean=None if centred else 0.0
    )
    yield usual
    if centred:
        yield replace(usual, id="not-centred", label=sentence("norm_form.not_centred"), mean=0.0)
    else:
        yield replace(usual, id="centred", label=sentence("norm_form.centred"), mean=None)
    yield replace(usual, id="variance-unbiased", label=sentence("norm_form.unbiased_variance"), unbiased=True)
    yield replace(usual, id="epsilon-outside", label=sentence("norm_form.epsilon_outside"), outside=True)
    inner = range(1, values.ndim)
    for axes in (chosen for size in inner for chosen in combinations(inner, size)):
        if axes != last_axes:
            yield replace(usual, id="norm-axes", label=sentence("norm_form.over_axes", axes=axes), over=axes)


def _groups(values: Array) -> Iterator[NormForm]:
    channels = values.shape[1]
    for groups in divisors(channels):
        if groups <= MOST_NORM_GROUPS or groups == channels:
            label = sentence("norm_form.in_groups", groups=groups)
            yield NormForm("norm-groups", label, values.reshape(len(values), groups, -1), (2,))


def _batch(values: Array, parameters: Mapping[str, Array]) -> Iterator[NormForm]:
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    of_batch = NormForm("batch-statistics", sentence("norm_form.of_batch"), values, axes)
    if {"mean", "variance"} <= parameters.keys():
        mean, variance = (_channels(parameters[role], values.ndim) for role in ("mean", "variance"))
        yield replace(of_batch, id="", label=sentence("norm_form.kept"), mean=mean, square=variance)
        yield replace(of_batch, id="mean-of-batch", label=sentence("norm_form.mean_of_batch"), square=variance)
        yield replace(of_batch, id="variance-of-batch", label=sentence("norm_form.variance_of_batch"), mean=mean)
    yield of_batch
    ones = _channels(np.ones(values.shape[1]), values.ndim)
    yield replace(of_batch, id="fresh-statistics", label=sentence("norm_form.fresh"), mean=0.0, square=ones)


def _channels(values: Array, ndim: int) -> Array:
    return values.reshape([-1 if axis == 1 else 1 for axis in range(ndim)])
