"""The ways in which normalising layers are computed: over which elements, about which middle, with which variance.

Each is what to subtract from the input and what to divide it by; the epsilon is added to the variance under the root,
or to the root.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.dtypes import Array

MOST_GROUPS = 64


@dataclass(frozen=True, slots=True)
class NormForm:
    """One way. `id` names the mistake that it is where the other side has the usual one, `label` says what it does.

    `values` is the input, in the shape in which it is normalised; `middle` and `variance` meet it.
    """

    id: str
    label: str
    values: Array
    middle: Array | float
    variance: Array
    outside: bool = False

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


def _over(id_: str, label: str, values: Array, axes: tuple[int, ...], *, centred: bool = True) -> NormForm:
    middle = values.mean(axis=axes, keepdims=True) if centred else 0.0
    return NormForm(id_, label, values, middle, np.mean((values - middle) ** 2, axis=axes, keepdims=True))


def _layer(values: Array, weight: Array | None, *, centred: bool) -> Iterator[NormForm]:
    trailing = 1 if weight is None else max(weight.ndim, 1)
    own = tuple(range(values.ndim - trailing, values.ndim))
    usual = _over("", f"over axes {_list(own)}", values, own, centred=centred)
    yield usual
    name = "without the mean subtracted" if centred else "with the mean subtracted"
    yield _over("not-centred" if centred else "centred", name, values, own, centred=not centred)
    count = values.size / usual.variance.size
    if count > 1:
        more = usual.variance * (count / (count - 1.0))
        yield NormForm("variance-unbiased", "with the unbiased variance", values, usual.middle, more)
    yield NormForm(
        "epsilon-outside", "with epsilon added to the root", values, usual.middle, usual.variance, outside=True
    )
    inner = range(1, values.ndim)
    for axes in (chosen for size in inner for chosen in combinations(inner, size)):
        if axes != own:
            yield _over("norm-axes", f"over axes {_list(axes)}", values, axes, centred=centred)


def _groups(values: Array) -> Iterator[NormForm]:
    channels = values.shape[1]
    for groups in (
        one for one in range(1, channels + 1) if channels % one == 0 and (one <= MOST_GROUPS or one == channels)
    ):
        cut = values.reshape(len(values), groups, -1)
        yield _over("norm-groups", f"in {groups} groups", cut, (2,))


def _batch(values: Array, parameters: Mapping[str, Array]) -> Iterator[NormForm]:
    over = tuple(axis for axis in range(values.ndim) if axis != 1)
    own = _over("batch-statistics", "of the batch", values, over)
    known = [parameters.get(role) for role in ("mean", "variance")]
    mean, variance = (None if one is None else _channels(one, values.ndim) for one in known)
    if mean is not None and variance is not None:
        yield NormForm("", "kept in the layer", values, mean, variance)
        yield NormForm("mean-of-batch", "the mean of the batch, the variance kept", values, own.middle, variance)
        yield NormForm("variance-of-batch", "the variance of the batch, the mean kept", values, mean, own.variance)
    yield own
    yield NormForm("fresh-statistics", "0 and 1, as in a fresh layer", values, 0.0, np.ones_like(own.variance))


def _channels(values: Array, ndim: int) -> Array:
    return values.reshape([-1 if axis == 1 else 1 for axis in range(ndim)])


def _list(axes: tuple[int, ...]) -> str:
    return ",".join(map(str, axes))
