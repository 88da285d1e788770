"""Models of plain NumPy functions, so that every step of the flow can be tested and tried with no framework."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict, dtype_name
from align.core.protocols import LayerSettings
from align.models.record_calls import NumpyValues, bound_batches, noted_call, run_on_batches
from align.models.user_code import array_memory, fixed_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.parameters import Array, TensorMemory
    from align.core.protocols import Inputs, Model, Setting
    from align.core.traces import CaptureSink
    from align.models.record_calls import CallRecorder


@dataclass(frozen=True)
class ArrayLayer:
    """One layer: `function(x, **parameters)`, parameters by attribute name; `class_name` is a public layer class.

    `settings` are what a live layer of that class would keep as attributes.
    """

    path: str
    class_name: str
    function: Callable[..., Any]
    parameters: dict[str, Array]
    settings: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayModel:
    """A chain of layers, each fed the output of the one before."""

    layers: tuple[ArrayLayer, ...]

    def __call__(
        self, x: Array, recorder: CallRecorder | None = None, stand_ins: Mapping[str, ArrayLayer] | None = None
    ) -> Any:
        """Run all layers on `x`."""
        for layer in self.layers:
            kind = layer.class_name.rpartition(".")[2]
            if recorder and (changed := recorder.begin(layer.path, (x,), class_name=kind)):
                x = changed[0][0]
            acting = (stand_ins or {}).get(layer.path, layer)
            x = acting.function(x, **acting.parameters)
            if recorder:
                other = recorder.end(layer.path, kind, x)
                x = x if other is None else other
        return x

    def values(self) -> dict[str, Array]:
        """All parameters by name, not copied."""
        return {f"{layer.path}.{key}": value for layer in self.layers for key, value in layer.parameters.items()}


class ArraysFramework(NumpyValues):
    """Adapter of ArrayModel."""

    name = "arrays"
    summary = "Chains of NumPy functions (align.models.frameworks.arrays.ArrayModel)"
    requires: tuple[str, ...] = ()

    def owns(self, model: Model) -> bool:
        """Tell whether the model is an ArrayModel."""
        return isinstance(model, ArrayModel)

    def read_parameters(self, model: Model, label: str) -> ParameterSet:
        """Read names as `path.attribute`."""
        parameters: list[Parameter] = []
        modules = [Module("", (f"{__name__}.ArrayModel",))]
        for layer in model.layers:
            layer_parameters = [
                Parameter(f"{layer.path}.{key}", tuple(value.shape), dtype_name(value.dtype), layer.path, key, True)
                for key, value in layer.parameters.items()
            ]
            parameters += layer_parameters
            modules.append(Module(layer.path, (layer.class_name,), tuple(p.name for p in layer_parameters)))
        return ParameterSet(label, self.name, tuple(parameters), tuple(modules))

    def read_settings(self, model: Model) -> list[LayerSettings]:
        """Return the settings that each layer was given, those of the model first."""
        layers = [LayerSettings(layer.path, (layer.class_name,), layer.settings) for layer in model.layers]
        return [LayerSettings("", (f"{__name__}.ArrayModel",)), *layers]

    def read_values(self, model: Model) -> dict[str, Array]:
        """Copy out all parameters."""
        return {name: value.copy() for name, value in model.values().items()}

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill the arrays in place; raises InputsError listing names and shapes that differ."""
        own = model.values()
        check_state_dict({name: tuple(value.shape) for name, value in own.items()}, values, "array model")
        for name, value in own.items():
            value[...] = values[name]

    def tensor_memory(self, model: Model) -> dict[str, TensorMemory]:
        """Find the arrays in memory; slices of one array lie in one storage."""
        return {name: array_memory(value) for name, value in model.values().items()}

    def copied(self, model: Model) -> Model:
        """Copy all arrays, and not the functions; see ModelCopier."""
        return copy.deepcopy(model)

    def environment(self) -> dict[str, str]:
        """The version of NumPy."""
        return {"numpy": np.__version__}

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run the chain; see ModelRunner."""
        recorder = self.recorder(sink)
        call = partial(noted_call, "ArrayModel", recorder, partial(model, recorder=recorder, stand_ins=stand_ins))
        with fixed_seed():
            run_on_batches(call, bound_batches(lambda x: x, inputs, lambda value: value), recorder, self.name)

    def widened(self, model: Model) -> Model | None:
        """Return a copy with float64 parameters."""
        layers = [
            replace(layer, parameters={key: value.astype(np.float64) for key, value in layer.parameters.items()})
            for layer in model.layers
        ]
        return ArrayModel(tuple(layers))


PLUGIN = ArraysFramework()
