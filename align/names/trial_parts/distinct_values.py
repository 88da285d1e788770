"""Distinct random values that keep a signal alive, and what they need of a run: the statistics of each normalization.

A default initialization can be blind: constant norms and zero biases let any assignment agree.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float, numpy_dtype
from align.names.thresholds import LEAST_VARIANCE_SHARE, TRIAL_GAIN, TRIAL_SPREAD
from align.rules.layer_rules import STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from align.core.dtypes import Array
    from align.core.parameters import Parameter
    from align.core.traces import Capture
    from align.names.layers.read_layers import Layer

NEUTRAL = {"bias": 0.0, "mean": 0.0, "variance": 1.0}


def distinct_values(layers: Iterable[Layer], names: Set[str], generator: np.random.Generator) -> dict[str, Array]:
    """Random values by name for those floating parameters and statistics that are named; other buffers have none.

    A tensor of several names has its first one, whichever is named.
    """
    layers = list(layers)
    tensors = {p.tied_to or p.name for layer in layers for p in layer.roles.values() if p.name in names}
    return {
        parameter.name: _draw(role, parameter, generator).astype(numpy_dtype(parameter.dtype))
        for layer in layers
        for role, parameter in layer.roles.items()
        if parameter.name in tensors and is_float(parameter.dtype) and (not parameter.buffer or role in STATISTICS)
    }


def neutral_values(layers: Iterable[Layer], names: Set[str]) -> dict[str, Array]:
    """Values without effect for those named parameters that have such: what one side lacks must not speak."""
    return {
        parameter.name: np.full(parameter.shape, NEUTRAL[role], numpy_dtype(parameter.dtype))
        for layer in layers
        for role, parameter in layer.roles.items()
        if parameter.name in names and role in NEUTRAL
    }


def _draw(role: str, parameter: Parameter, generator: np.random.Generator) -> Array:
    shape = parameter.shape
    if role == "variance":
        return 1.0 + TRIAL_SPREAD * generator.random(shape)
    normal = generator.standard_normal(shape)
    scales = len(shape) < 2 or prod(shape) == max(shape)  # one value a channel
    if scales:
        return TRIAL_SPREAD * normal + (1.0 if "weight" in role else 0.0)
    return TRIAL_GAIN / sqrt(prod(shape[1:])) * normal


class Calibration:
    """An Intervention that gives each layer with running statistics those of its own first input.

    The layer returns what it will return with them, so that one run calibrates all layers; `statistics` holds the new
    values by name. They are moved a little from the batch's own, which would make the next bias blind.
    """

    def __init__(self, layers: Sequence[Layer], values: Mapping[str, Array], generator: np.random.Generator) -> None:
        self._layers = {layer.path: layer for layer in layers if {"mean", "variance"} <= layer.roles.keys()}
        self._values = values
        self._generator = generator
        self._input: dict[str, Array] = {}
        self.statistics: dict[str, Array] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Keep the input of a normalization."""
        first = next(iter(inputs.values()), None)
        if module in self._layers and not call and first is not None and first.ndim > 1:
            self._input[module] = first.astype(np.float64)

    def add(self, capture: Capture, value: Array) -> None:
        """Outputs are not needed."""

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what the normalization gives with the new statistics."""
        taken = None if capture.output else self._input.pop(capture.module, None)
        if taken is None or taken.shape != value.shape:
            return None
        layer = self._layers[capture.module]
        axes = tuple(axis for axis in range(taken.ndim) if axis != 1)
        mean, variance = taken.mean(axes), taken.var(axes)
        if not np.isfinite(variance).all() or mean.shape != layer.roles["mean"].shape:
            return None
        variance = np.maximum(variance, LEAST_VARIANCE_SHARE * variance.mean() + np.finfo(np.float32).eps)
        mean = mean + TRIAL_SPREAD * np.sqrt(variance) * self._generator.standard_normal(mean.shape)
        variance = variance * (1.0 + TRIAL_SPREAD * self._generator.random(variance.shape))
        made = {"mean": mean, "variance": variance}
        self.statistics |= {
            layer.roles[role].name: value.astype(numpy_dtype(layer.roles[role].dtype)) for role, value in made.items()
        }
        column = (-1,) + (1,) * (taken.ndim - 2)
        normal = (taken - mean.reshape(column)) / np.sqrt(variance.reshape(column))
        for role, change in (("weight", np.multiply), ("bias", np.add)):
            if role in layer.roles:
                own = self._values.get(layer.roles[role].name)  # that of a layer that nothing corresponds to stays
                normal = normal if own is None else change(normal, own.astype(np.float64).reshape(column))
        made_output: Array = normal.astype(value.dtype)
        return made_output
