"""One model under trial, and a sampler of its calls.

A run keeps samples of the inputs and outputs of every call, enough to tell equal from unlike. Full outputs are kept
only where another run is to return them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cached_property
from math import prod, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.dtypes import is_float, numpy_dtype
from align.measure.tensor_statistics import relative_rms_distance, sample_values
from align.models.inputs import batches_of, run_fitted
from align.names.read_layers import read_layers
from align.names.thresholds import (
    AGREEING_DISTANCE,
    LEAST_RANGE,
    LEAST_VARIANCE_SHARE,
    MOST_SORTED_ELEMENTS,
    SEEN_ENDS,
    TRIAL_GAIN,
    TRIAL_SPREAD,
)
from align.rules.layer_rules import STATISTICS, rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.parameters import Parameter
    from align.core.traces import Capture, CaptureSink
    from align.models.open_side import Side
    from align.names.read_layers import Layer


CallKey = tuple[str, int]  # module path, number of the call


class TrialSide:
    """One side under trial: its layers, and its values by the names that it had at first: a run may rename some."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.parameters = side.reader.read_parameters(side.model, side.label)
        self.own = side.reader.read_values(side.model)
        self.inputs: Mapping[str, Array] = {}
        self._tied = {p.name: p.tied_to for p in self.parameters.parameters if p.tied_to}

    @cached_property
    def layers(self) -> list[Layer]:
        """The layers of the side."""
        return read_layers(self.parameters)

    @cached_property
    def layer_of(self) -> dict[str, Layer]:
        """The layer of each parameter."""
        return {parameter.name: layer for layer in self.layers for parameter in layer.roles.values()}

    @cached_property
    def modules(self) -> set[str]:
        """The paths of the modules of all layers."""
        return {module_of(layer) for layer in self.layers}

    @cached_property
    def free(self) -> dict[str, str]:
        """The kind of each module without parameters whose class a rule knows."""
        free = ((module.path, rule_for(module.classes)) for module in self.parameters.modules if not module.parameters)
        return {path: rule[0].kind for path, rule in free if rule}

    def seconds(self, inputs: Mapping[str, Array]) -> float:
        """How long a run takes; the inputs are kept in the dtypes that the side takes."""
        start = time.perf_counter()
        taken = run_fitted(self.side, inputs, lambda given: self.side.runner.run(self.side.model, given, CallSampler()))
        self.inputs = dict(batches_of(taken)[0])
        return time.perf_counter() - start

    def run(self, sink: CaptureSink) -> None:
        """Run the model."""
        self.side.runner.run(self.side.model, self.inputs, sink)

    def tensor(self, name: str) -> str:
        """The first name of the tensor that bears this one."""
        return self._tied.get(name, name)

    def load(self, values: Mapping[str, Array]) -> None:
        """Fill the model, with its own values where none are given."""
        names = self.side.reader.read_values(self.side.model)
        new = (values.get(self.tensor(name), own) for name, own in self.own.items())
        self.side.reader.load_values(self.side.model, dict(zip(names, new, strict=True)))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Give the model its own values back at the end."""
        try:
            yield
        finally:
            self.load({})

    def drawn(self, used: Set[str], generator: np.random.Generator) -> dict[str, Array]:
        """Random values for parameters that may have a counterpart, values without effect for the others."""
        apart = neutral_values(self.layers, self.layer_of.keys() - used)
        return apart | distinct_values(self.layers, used, generator)

    def is_leaf(self, path: str) -> bool:
        """Tell whether no module with parameters lies inside."""
        return not any(module.startswith(f"{path}.") for module in self.modules)


class CallSampler:
    """An Intervention that samples every call, and lets those modules return what they are `answers`."""

    def __init__(self, answers: Mapping[CallKey, Array] | None = None, *, keep: bool = False) -> None:
        self._answers = answers or {}
        self._keep = keep
        self.inputs: dict[CallKey, tuple[SeenTensor, ...]] = {}
        self.outputs: dict[CallKey, tuple[SeenTensor, ...]] = {}
        self.kept: dict[CallKey, Array] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Sample what a call is given."""
        self.inputs[module, call] = tuple(map(see_tensor, inputs.values()))

    def add(self, capture: Capture, value: Array) -> None:
        """Sample what a call returns."""
        key = capture.module, capture.call
        self.outputs[key] = (*self.outputs.get(key, ()), see_tensor(value))

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what the source's counterpart returned, of modules that return a lone tensor."""
        if capture.output:
            return None
        key = capture.module, capture.call
        if self._keep:
            self.kept[key] = np.array(value)
        answers = self._answers.get(key)
        return None if answers is None else laid_as(answers, value.shape)

    def calls(self, module: str) -> int:
        """How often a module was called."""
        number = 0
        while (module, number) in self.outputs:
            number += 1
        return number


def module_of(layer: Layer) -> str:
    """Path of the module that owns a layer's parameters."""
    return next(iter(layer.roles.values())).module


# Distinct random values that keep a signal alive, and what they need of a run: the statistics of each normalization.
#
# A default initialization can be blind: constant norms and zero biases let any assignment agree.

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


# What a trial keeps of the tensors that it sees, and whether two are the same, also with axes in another order.


class SeenTensor(NamedTuple):
    """What is kept of a tensor: some values, its shape without axes of length 1, its least and largest elements."""

    values: NDArray[np.float64]
    shape: tuple[int, ...]
    ends: NDArray[np.float64]

    def distance(self, other: SeenTensor) -> float:
        """The relative RMS distance; of tensors whose axes stand in another order that of their ends."""
        distance = relative_rms_distance(self.values, other.values)
        if self.shape == other.shape or not self.ends.size or distance < AGREEING_DISTANCE:
            return distance
        return relative_rms_distance(self.ends, other.ends) if prod(self.shape) == prod(other.shape) else distance


def laid_as(tensor: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the tensor in this shape, its axes in that order; None if it does not fit, or lengths do not tell how."""
    own, wanted = ([length for length in one if length != 1] for one in (tensor.shape, shape))
    if tensor.size != prod(shape) or own == wanted or sorted(own) != sorted(wanted):
        return tensor.reshape(shape) if tensor.size == prod(shape) else None
    if len(set(own)) < len(own):
        return None
    return tensor.reshape(own).transpose([own.index(length) for length in wanted]).reshape(shape)


def agree(one: Sequence[SeenTensor], two: Sequence[SeenTensor]) -> bool:
    """Tell whether the same tensors were seen, up to rounding; tensors that vary nowhere tell nothing, and agree not.

    Where one side is given more tensors than the other (a mask, a cache), the common beginning counts.
    """
    return any(varies(a) or varies(b) for a, b in zip(one, two, strict=False)) and alike(one, two)


def alike(one: Sequence[SeenTensor], two: Sequence[SeenTensor]) -> bool:
    """Tell whether all tensors of the common beginning that vary are equal up to rounding."""
    both = [(a, b) for a, b in zip(one, two, strict=False) if varies(a) or varies(b)]
    return all(a.distance(b) < AGREEING_DISTANCE for a, b in both)


def varies(seen: SeenTensor) -> bool:
    """Tell whether a tensor has unlike elements."""
    sample = seen.values
    return bool(sample.size) and float(np.ptp(sample)) > LEAST_RANGE * float(np.max(np.abs(sample)))


def see_tensor(value: Array) -> SeenTensor:
    """Return what is kept of a tensor; no ends of a vector, a very large one or one of no numbers."""
    values, shape = sample_values(value), tuple(length for length in value.shape if length != 1)
    if len(shape) < 2 or not values.size or value.size > MOST_SORTED_ELEMENTS:
        return SeenTensor(values, shape, values[:0])
    flat = np.asarray(value).reshape(-1)
    most = min(SEEN_ENDS, flat.size // 2)
    parted = np.partition(flat, (most, flat.size - most - 1))
    ends = np.sort(np.concatenate([parted[:most], parted[flat.size - most :]]).astype(np.float64))
    return SeenTensor(values, shape, ends)
