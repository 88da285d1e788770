"""Why a layer returns something else than the reference's, judged by all that it was given.

What its inputs and parameters show names a cause; only where that is nothing is the output asked alone. Attention is
made of what each side was given: with how many heads, which scale, and which axis the batch is. Nothing is said unless
the reference's own output is made so: a mask, or weights that are kept otherwise, ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name
from align.forward.relation_thresholds import LARGEST_TRIED_ATTENTION
from align.forward.relations.code_between_layers import explain_code
from align.forward.relations.input_relations import (
    explain_function,
    explain_inputs,
    explain_parameters,
    explain_product,
    explain_resizing,
    explain_rows,
)
from align.forward.relations.norm_layers import explain_norm
from align.forward.relations.output_relations import NARROW, explain_output, make_question, relation_sort_key
from align.forward.relations.pointwise import softmax, swap_sides
from align.forward.relations.relation import agreement, with_facts
from align.forward.relations.slices import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.forward.relations.relation import Fact, Question, Relation

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

    >>> from align.core.measurements import Limit
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
