"""Why a layer returns something else than the reference's, judged by all that it was given.

What its inputs and parameters show names a cause; only where that is nothing is the output asked alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import dtype_name
from align.forward.relations.attention import explain_attention
from align.forward.relations.code_between_layers import explain_code
from align.forward.relations.input_relations import (
    explain_function,
    explain_inputs,
    explain_parameters,
    explain_product,
    explain_rows,
)
from align.forward.relations.norm_layers import explain_norm
from align.forward.relations.output_relations import explain_output, make_question, relation_sort_key
from align.forward.relations.resizing import explain_resizing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.forward.relations.relation import Question, Relation

NARROW = ("float16", "bfloat16")
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
