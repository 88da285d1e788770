"""An ONNX model as a side: its graph, the modules that it was exported from, and its parameters in torch's layout."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.onnx_graph import read_onnx_graph
from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.dtypes import Array, is_float, numpy_dtype
from align.core.transforms import IDENTITY
from align.errors import InputsError
from align.models.adapter_parts.onnx.constants_of_graph import constant_uses, constants_left
from align.models.adapter_parts.onnx.module_scopes import at_their_weights, module_classes, raw_modules, read_scopes
from align.models.adapter_parts.onnx.name_parameters import OnnxParameter, name_parameters, owned_initializers
from align.models.adapter_parts.onnx.plan_calls import Plan, plan_calls
from align.models.adapter_parts.onnx.run_graph import run_graph
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from align.checkpoints.onnx_graph import OnnxGraph, OnnxValue
    from align.core.checkpoints import StoredTensor
    from align.models.adapter_parts.onnx.folded_norms import FoldedNorm
    from align.models.adapter_parts.onnx.module_scopes import Scope
    from align.models.record_calls import CallRecorder

_NO_LETTER = re.compile(r"\W")


@dataclass(frozen=True)
class OnnxModel:
    """`folded` are the norms that were multiplied into a convolution, `zeros` shapes of biases that were left out.

    `ties` lead from a parameter to the one whose values it has; `changed` values win over the file's.
    """

    path: Path
    graph: OnnxGraph
    tensors: Mapping[str, StoredTensor]
    scopes: tuple[Scope | None, ...]
    classes: Mapping[str, str]
    parameters: tuple[OnnxParameter, ...]
    folded: tuple[FoldedNorm, ...] = ()
    zeros: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ties: Mapping[str, str] = field(default_factory=dict)
    changed: dict[tuple[int, str], Array] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The calls that a run is made of."""
        return plan_calls(self.graph, self.scopes, self.tensors)

    @cached_property
    def forward(self) -> Callable[..., Any]:
        """A function with the inputs of the graph as its parameters."""

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.run(*args, **kwargs)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in self.inputs]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    @cached_property
    def inputs(self) -> dict[str, OnnxValue]:
        """The inputs by names that Python allows."""
        return {self._parameter_name(one.name): one for one in self.graph.inputs}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        return self.run(*args, **kwargs)

    def run(
        self,
        *args: Any,
        recorder: CallRecorder | None = None,
        stand_ins: Mapping[str, Callable[..., Any]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the graph on arrays; raises InputsError for what its inputs do not take."""
        bound = inspect.signature(self.forward).bind(*args, **kwargs).arguments
        given = {self.inputs[name].name: value for name, value in bound.items()}
        return run_graph(self, given, recorder, stand_ins)

    def constant(self, name: str) -> Array:
        """The value of an initializer."""
        return self.tensors[name].load()

    def changed_at(self, node: int, name: str) -> Array | None:
        """The value that a node is to have in the place of the file's, None for no other."""
        return self.changed.get((node, name))

    def class_name(self, path: str) -> str:
        """The class of a module without its package, or `Module`."""
        return self.classes.get(path, "").rpartition(".")[2] or "Module"

    def values(self) -> dict[str, Array]:
        """All parameters in torch's layout."""
        own = {one.name: self.values_of(one) for one in self.parameters}
        for norm in self.folded:
            own |= norm.unfolded(own)
            own = {name: value for name, value in own.items() if name != norm.bias_name or norm.bias is not None}
        return own | {name: np.zeros(shape, np.float32) for name, shape in self.zeros.items()}

    def values_of(self, one: OnnxParameter) -> Array:
        """The value of one parameter in torch's layout."""
        changed = self.changed.get(one.places[0]) if one.places else None
        return one.transform.apply(self.constant(one.initializer) if changed is None else changed)

    def load(self, values: Mapping[str, Array]) -> None:
        """Let the parameters have these values from now on; what the file has so already stays as it is there."""
        self.changed.clear()
        own = self.values()
        new = {name: value for name, value in values.items() if not np.array_equal(value, own[name], equal_nan=True)}
        folded: dict[str, Array] = {}
        for norm in self.folded:
            if norm.names & new.keys():
                folded |= norm.folded(values)
        for one in self.parameters:
            value = folded.get(one.name, new.get(one.name))
            if value is not None:
                self.changed.update(dict.fromkeys(one.places, self._as_kept(one, value)))

    def constants_left(self) -> list[str]:
        """Tensors of no parameter; see constants_of_graph."""
        return constants_left(self)

    def constant_uses(self) -> Mapping[str, list[str]]:
        """Nodes that may use a parameter's tensor as a constant; see constants_of_graph."""
        return constant_uses(self)

    def fitted(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs in the dtypes that the graph takes, where no value changes by more than rounding.

        Raises InputsError with all inputs that do not fit, or are not there.
        """
        faults = [fault for name, value in inputs.items() if (fault := _input_fault(name, value, self._input_of(name)))]
        if faults:
            raise InputsError(*texts("onnx_model.inputs", path=self.path), faults=faults)
        return {name: _cast(value, self._input_of(name)) for name, value in inputs.items()}

    def copied(self) -> OnnxModel:
        """A model of its own over the same file."""
        return replace(self, changed={place: value.copy() for place, value in self.changed.items()})

    def _as_kept(self, one: OnnxParameter, value: Array) -> Array:
        stored = self.tensors[one.initializer]
        if one.transform is IDENTITY:
            return np.array(value, numpy_dtype(stored.dtype))
        return np.array(one.transform.inverse(stored.shape, stored.dtype).apply(value), numpy_dtype(stored.dtype))

    def _input_of(self, name: str) -> OnnxValue | None:
        return self.inputs.get(name)

    def _parameter_name(self, name: str) -> str:
        plain = _NO_LETTER.sub("_", name)
        return plain if plain.isidentifier() else f"input_{plain}"


def open_onnx(path: Path) -> OnnxModel:
    """Read a model but for its values; raises what opening a checkpoint raises, and UnsupportedCheckpointError."""
    tensors = open_checkpoint(path).tensors
    graph = read_onnx_graph(path)
    owned = owned_initializers(graph.nodes, raw_modules(graph.nodes), tensors)
    scopes = tuple(read_scopes(graph.nodes, owned))
    ranks = {name: len(tensor.shape) for name, tensor in tensors.items()}
    parameters = name_parameters(graph.nodes, scopes, tensors)
    scopes = at_their_weights(graph.nodes, scopes, {place: one.module for one in parameters for place in one.places})
    return OnnxModel(path, graph, tensors, scopes, module_classes(graph.nodes, scopes, ranks), parameters)


def _input_fault(name: str, value: Array, wanted: OnnxValue | None) -> str:
    if wanted is None:
        return ""
    shape = wanted.shape
    fits = shape is None or (
        len(shape) == value.ndim and all(isinstance(n, str) or n == m for n, m in zip(shape, value.shape, strict=True))
    )
    if not fits:
        return say("onnx_model.input_shape", name=name, given=list(value.shape), shape=str(list(shape or ())))
    return (
        ""
        if _castable(value, wanted.dtype)
        else say("onnx_model.input_dtype", name=name, given=value.dtype.name, dtype=wanted.dtype)
    )


def _castable(value: Array, dtype: str) -> bool:
    if not dtype or value.dtype.name == dtype or (is_float(dtype) and is_float(value.dtype.name)):
        return True
    whole = value.dtype.kind in "iub" and numpy_dtype(dtype).kind in "iub"
    return whole and np.array_equal(value.astype(numpy_dtype(dtype)), value)


def _cast(value: Array, wanted: OnnxValue | None) -> Array:
    return value if wanted is None or not wanted.dtype else value.astype(numpy_dtype(wanted.dtype), copy=False)
