"""One model under trial, and a sampler of its calls.

A run keeps samples of the inputs and outputs of every call, enough to tell equal from unlike. Full outputs are kept
only where another run is to return them.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from align.models.fit_inputs import run_fitted
from align.models.inputs import batches_of
from align.names.layers.read_layers import read_layers
from align.names.trial_parts.distinct_values import distinct_values, neutral_values
from align.names.trial_parts.seen_tensors import laid_as, see_tensor
from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set

    from align.core.dtypes import Array
    from align.core.traces import Capture, CaptureSink
    from align.models.open_side import Side
    from align.names.layers.read_layers import Layer
    from align.names.trial_parts.seen_tensors import SeenTensor

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
