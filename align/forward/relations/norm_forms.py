"""The ways in which normalising layers are computed: over which elements, about which middle, with which variance.

Each is what to subtract from the input and what to divide it by; the epsilon is added to the variance under the root,
or to the root. Nothing is computed before it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from align.forward.relations.describe_slice_order import divisors
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array

MOST_GROUPS = 64


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
    own = tuple(range(values.ndim - trailing, values.ndim))
    usual = NormForm("", sentence("norm_form.over_axes", axes=own), values, own, mean=None if centred else 0.0)
    yield usual
    if centred:
        yield replace(usual, id="not-centred", label=sentence("norm_form.not_centred"), mean=0.0)
    else:
        yield replace(usual, id="centred", label=sentence("norm_form.centred"), mean=None)
    yield replace(usual, id="variance-unbiased", label=sentence("norm_form.unbiased_variance"), unbiased=True)
    yield replace(usual, id="epsilon-outside", label=sentence("norm_form.epsilon_outside"), outside=True)
    inner = range(1, values.ndim)
    for axes in (chosen for size in inner for chosen in combinations(inner, size)):
        if axes != own:
            yield replace(usual, id="norm-axes", label=sentence("norm_form.over_axes", axes=axes), over=axes)


def _groups(values: Array) -> Iterator[NormForm]:
    channels = values.shape[1]
    for groups in divisors(channels):
        if groups <= MOST_GROUPS or groups == channels:
            label = sentence("norm_form.in_groups", groups=groups)
            yield NormForm("norm-groups", label, values.reshape(len(values), groups, -1), (2,))


def _batch(values: Array, parameters: Mapping[str, Array]) -> Iterator[NormForm]:
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    own = NormForm("batch-statistics", sentence("norm_form.of_batch"), values, axes)
    if {"mean", "variance"} <= parameters.keys():
        mean, variance = (_channels(parameters[role], values.ndim) for role in ("mean", "variance"))
        yield replace(own, id="", label=sentence("norm_form.kept"), mean=mean, square=variance)
        yield replace(own, id="mean-of-batch", label=sentence("norm_form.mean_of_batch"), square=variance)
        yield replace(own, id="variance-of-batch", label=sentence("norm_form.variance_of_batch"), mean=mean)
    yield own
    ones = _channels(np.ones(values.shape[1]), values.ndim)
    yield replace(own, id="fresh-statistics", label=sentence("norm_form.fresh"), mean=0.0, square=ones)


def _channels(values: Array, ndim: int) -> Array:
    return values.reshape([-1 if axis == 1 else 1 for axis in range(ndim)])
