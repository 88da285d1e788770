"""Attention of each side made from what it was given: with how many heads, which scale, and which axis the batch is.

Nothing is said unless the reference's own output is made so: a mask, or weights that are kept otherwise, ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.activations import softmax
from align.forward.relations.describe_slice_order import divisors
from align.forward.relations.pointwise import swap_sides
from align.forward.relations.relation import agreement, with_facts
from align.forward.thresholds import LARGEST_TRIED_ATTENTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array
    from align.forward.relations.relation import Fact, Question, Relation

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
