"""An ONNX model as a side: its graph, the modules that it was exported from, and its parameters in torch's layout."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.open_checkpoint import open_checkpoint
from align.checkpoints.protobuf import read_onnx_graph
from align.core.align_sequences import grouped
from align.core.parameters import Array, is_float, numpy_dtype
from align.core.transforms import IDENTITY, OneStep
from align.errors import InputsError
from align.models.adapter_parts.onnx.name_parameters import (
    TURNED,
    FoldedNorm,
    OnnxParameter,
    aliases,
    at_their_weights,
    module_classes,
    name_parameters,
    owned_initializers,
    raw_modules,
    read_scopes,
)
from align.models.adapter_parts.onnx.run_graph import Plan, plan_calls, run_node
from align.models.live_calls import leaves
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from align.checkpoints.protobuf import OnnxGraph, OnnxValue
    from align.core.parameters import Origin, OriginNorm, Shape, StoredTensor
    from align.core.transforms import Transform
    from align.models.adapter_parts.onnx.name_parameters import Scope
    from align.models.adapter_parts.onnx.run_graph import PlannedCall
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
        return _run_graph(self, given, recorder, stand_ins)

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
        values = {one.name: self.values_of(one) for one in self.parameters}
        for norm in self.folded:
            values |= norm.unfolded(values)
            values = {name: value for name, value in values.items() if name != norm.bias_name or norm.bias is not None}
        return values | {name: np.zeros(shape, np.float32) for name, shape in self.zeros.items()}

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
        """Initializers with several floating values, not all equal, that are of no parameter."""
        known = {one.initializer for one in self.parameters}
        return [
            name
            for name, tensor in self.tensors.items()
            if name not in known and is_float(tensor.dtype) and tensor.shape and not self._is_uniform(name)
        ]

    def constant_uses(self) -> Mapping[str, list[str]]:
        """The nodes, by initializer, that may use it as a constant though it is a parameter.

        Exporters keep equal tensors once. It may be so where no parameter is known, and where a module uses the ones or
        zeros of another.
        """
        places = {place: parameter for parameter in self.parameters for place in parameter.places}
        uniform = {name: self._is_uniform(name) for name in {parameter.initializer for parameter in self.parameters}}
        uses: dict[str, list[str]] = defaultdict(list)
        for number, alias, initializer in self._uses_of_constants():
            parameter, scope = places.get((number, alias)), self.scopes[number]
            inside = parameter is not None and scope is not None and scope.module == parameter.module
            if initializer in uniform and (parameter is None or (uniform[initializer] and not inside)):
                uses[initializer].append(str(self.graph.nodes[number]))
        return uses

    def _uses_of_constants(self) -> Iterator[tuple[int, str, str]]:
        known = aliases(self.graph.nodes, self.tensors)
        for number, node in enumerate(self.graph.nodes):
            for name in node.needs:
                if name in known and node.outputs[0] not in known:
                    yield number, name, known[name][0]

    def _is_uniform(self, name: str) -> bool:
        value = self.constant(name)
        return value.size < 2 or bool(np.all(value == value.flat[0]))

    def fitted(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs in the dtypes that the graph takes, where no value changes by more than rounding.

        Raises InputsError with all inputs that do not fit, or are not there.
        """
        faults = [
            fault for name, value in inputs.items() if (fault := _input_fault(name, value, self.inputs.get(name)))
        ]
        if faults:
            raise InputsError(*texts("onnx_model.inputs", path=self.path), faults=faults)
        return {name: _cast(value, self.inputs.get(name)) for name, value in inputs.items()}

    def copied(self) -> OnnxModel:
        """A model of its own over the same file."""
        return replace(self, changed={place: value.copy() for place, value in self.changed.items()})

    def _as_kept(self, parameter: OnnxParameter, value: Array) -> Array:
        stored = self.tensors[parameter.initializer]
        if parameter.transform is IDENTITY:
            return np.array(value, numpy_dtype(stored.dtype))
        return np.array(parameter.transform.inverse(stored.shape, stored.dtype).apply(value), numpy_dtype(stored.dtype))

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


# A run of the whole graph, node by node, with every module's call noted; no value lives longer than it is needed.
#
# A sink that gives a call other inputs sees to it that the nodes of that call have them, and no other node.


def _run_graph(
    model: OnnxModel,
    inputs: Mapping[str, Any],
    recorder: CallRecorder | None = None,
    stand_ins: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    """Return what the graph does: an array, or a tuple of several; raises OnnxNodeError for a node that fails."""
    run = _Run(model, dict(inputs), recorder, stand_ins or {})
    for number in range(len(model.graph.nodes)):
        run.enter(number)
        if not run.skips(number):
            run.node(number)
        run.leave(number)
    outputs = tuple(run.value(name) for name in model.graph.outputs)
    return outputs[0] if len(outputs) == 1 else outputs


class _Run:
    """The values of one run, and the calls that it is in; `_other` are inputs that a sink gave, innermost last."""

    def __init__(
        self,
        model: OnnxModel,
        values: dict[str, Any],
        recorder: CallRecorder | None,
        stand_ins: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._model, self._values, self._recorder, self._stand_ins = model, values, recorder, stand_ins
        self._calls: list[PlannedCall] = []
        self._other: list[dict[str, Any]] = []
        self._answered: PlannedCall | None = None

    def value(self, name: str) -> Any:
        for other in reversed(self._other):
            if name in other:
                return other[name]
        return self._values[name] if name in self._values else self._model.constant(name)

    def enter(self, number: int) -> None:
        """Begin the calls whose first node this is."""
        for call in self._model.plan.begins.get(number, ()) if self._recorder and not self._answered else ():
            self._begin(call)

    def skips(self, number: int) -> bool:
        """Tell whether a stand-in has answered for this node."""
        return self._answered is not None and self._answered.first <= number <= self._answered.last

    def node(self, number: int) -> None:
        node = self._model.graph.nodes[number]
        given = {name: self._given(number, name) for name in node.needs}
        made = run_node(self._model.graph, node, given)
        self._values |= zip(filter(None, node.outputs), made, strict=True)

    def leave(self, number: int) -> None:
        """End the calls whose last node this was, and let go of what nothing needs any more."""
        while self._calls and self._calls[-1].last == number:
            self._end(self._calls.pop())
        for name in self._model.plan.done_after.get(number, ()):
            self._values.pop(name, None)

    def _given(self, number: int, name: str) -> Any:
        changed = self._model.changed_at(number, name)
        return self.value(name) if changed is None else changed

    def _begin(self, call: PlannedCall) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        args = tuple(self.value(name) for name in call.inputs)
        other = recorder.begin(call.path, args, {}, self._model.class_name(call.path))
        args = other[0] if other else args
        self._calls.append(call)
        self._other.append(dict(zip(call.inputs, args, strict=True)) if other else {})
        if call.path in self._stand_ins:
            returned = [value for _, value in leaves(self._stand_ins[call.path](*args))]
            self._values |= zip(call.outputs, returned, strict=False)
            self._answered = call

    def _end(self, call: PlannedCall) -> None:
        self._other.pop()
        if self._answered is call:
            self._answered = None
        names = [name for name in call.outputs if name in self._values]
        floating = [name for name in names if is_float(np.asarray(self._values[name]).dtype.name)] or names
        returned = tuple(self._values[name] for name in floating)
        if self._recorder is None or not returned:
            return
        other = self._recorder.end(
            call.path, self._model.class_name(call.path), returned if returned[1:] else returned[0]
        )
        if other is not None:
            self._values |= zip(floating, other if returned[1:] else (other,), strict=True)


# What an ONNX model does not say of its parameters, as the model says that it was exported from.

_FOLDING = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0}  # the axis of torch's weight along which its outputs lie


def followed(model: OnnxModel, origin: Origin) -> OnnxModel:
    """The model with its folded norms, its constants that are parameters, ties and zeros that the export left out."""
    model = replace(model, folded=tuple(_folded(model, origin)))
    model = replace(
        model, parameters=tuple(parameter for parameter in model.parameters if _is_held(model, origin, parameter))
    )
    known = {parameter.initializer for parameter in model.parameters}
    left = {parameter.name for parameter in origin.parameters.parameters if parameter.tied_to is None} - set(
        origin.paired.values()
    )
    left -= {name for norm in model.folded for name in _names_of(origin, norm.path)}
    found = [*_constants(model, origin, known, left)]
    left -= {origin_name for origin_name, _ in found}
    parameters = (*model.parameters, *(parameter for _, parameter in found))
    zeros = {name: origin.values[theirs].shape for name, theirs in _zeros(origin, left)}
    return replace(model, parameters=parameters, zeros=zeros, ties=_ties(parameters, origin))


def _is_held(model: OnnxModel, origin: Origin, parameter: OnnxParameter) -> bool:
    """Tell whether the file holds the parameter itself, and nothing that an exporter computed from it.

    What has no name of its own there and another value is the parameter only where that was turned for a usual layer,
    or a norm was multiplied into it.
    """
    theirs = origin.paired.get(parameter.name)
    if (
        parameter.named
        or theirs is None
        or not origin.same_values
        or any(parameter.name in norm.names for norm in model.folded)
    ):
        return True
    if parameter.transform is TURNED and theirs in origin.usual:
        return True
    return np.array_equal(model.values_of(parameter).ravel(), origin.values[theirs].ravel())


def _names_of(origin: Origin, path: str) -> Iterator[str]:
    return (name for norm in origin.norms if norm.path == path for name in norm.parameters.values())


def _folded(model: OnnxModel, origin: Origin) -> Iterator[FoldedNorm]:
    """Each convolution with a norm in it: one that its values confirm, else the one that comes next in the origin."""
    paired = set(origin.paired.values())
    free = [norm for norm in origin.norms if not paired & set(norm.parameters.values())]
    owners = [module.path for module in origin.parameters.modules if module.parameters]
    order = {path: place for place, path in enumerate(owners)}
    by_place = {place: parameter for parameter in model.parameters for place in parameter.places}
    unsure: list[list[FoldedNorm]] = []
    for number, node in enumerate(model.graph.nodes):
        if node.operator not in _FOLDING or len(node.inputs) < 3:
            continue
        weight, bias = (by_place.get((number, name)) for name in node.inputs[1:])
        theirs = origin.paired.get(weight.name) if weight else None
        if weight is None or bias is None or theirs is None:
            continue
        place = order.get(origin.parameters.by_name[theirs].module, 0)
        near = sorted(free, key=lambda norm: (order[norm.path] < place, abs(order[norm.path] - place)))
        made = [_made(model, origin, norm, (weight, bias), theirs, _FOLDING[node.operator]) for norm in near]
        fits = [folded for folded in made if folded is not None]
        held = model.values_of(weight), model.values_of(bias)
        sure = next((folded for folded in fits if folded.confirmed(*held)), None)
        if sure is not None:
            free = [norm for norm in free if norm.path != sure.path]
            yield sure
        elif fits and (origin.biases.get(theirs) is None or order[fits[0].path] == place + 1):
            unsure.append(fits)  # a bias that the origin lacks is that of a norm, and so may the layer's be before one
    for fits in unsure:
        left = [folded for folded in fits if any(norm.path == folded.path for norm in free)]
        if left:
            free = [norm for norm in free if norm.path != left[0].path]
            yield left[0]


def _made(
    model: OnnxModel, origin: Origin, norm: OriginNorm, own: tuple[OnnxParameter, OnnxParameter], theirs: str, axis: int
) -> FoldedNorm | None:
    weight, bias = own
    values = {name: origin.values[key] for name, key in norm.parameters.items()}
    file_shape = weight.transform.output_shape(model.tensors[weight.initializer].shape)
    shape = origin.values[theirs].shape
    if values["weight"].shape != model.tensors[bias.initializer].shape or np.prod(file_shape) != np.prod(shape):
        return None
    beside = origin.biases.get(theirs)
    return FoldedNorm(
        norm.path,
        weight.name,
        bias.name,
        norm.epsilon,
        values,
        origin.values[theirs].reshape(file_shape),
        origin.values[beside] if beside else None,
        axis,
    )


def _zeros(origin: Origin, left: set[str]) -> Iterator[tuple[str, str]]:
    """Biases that are zero throughout, which exporters leave out, by the name that they would have."""
    for own, theirs in origin.paired.items():
        bias = origin.biases.get(theirs)
        if bias in left and own.rpartition(".")[2] == "weight" and not np.any(origin.values[bias]):
            yield f"{own.removesuffix('weight')}bias", bias


def _ties(parameters: tuple[OnnxParameter, ...], origin: Origin) -> dict[str, str]:
    names = {one.name for one in parameters}
    tied = ((one.name, one.tied_to) for one in origin.parameters.parameters)
    return {name: first for name, first in tied if first in names and name in names}


def _constants(
    model: OnnxModel, origin: Origin, known: set[str], left: set[str]
) -> Iterator[tuple[str, OnnxParameter]]:
    """The origin's parameters, by name, that constants of the graph hold, in whole or in part."""
    uses = grouped((name, (number, name)) for number, node in enumerate(model.graph.nodes) for name in node.inputs)
    free = sorted(left)
    for name, tensor in model.tensors.items():
        if name in known or not is_float(tensor.dtype) or not tensor.shape or name not in uses:
            continue
        value = tensor.load()
        found = [(theirs, how) for theirs in free if (how := _relation(value, origin.values[theirs], name == theirs))]
        if len(found) == 1 or (found and found[0][0] == name):
            theirs, how = found[0]
            free.remove(theirs)
            module = origin.parameters.by_name[theirs].module
            yield theirs, OnnxParameter(theirs, module, name, how, tuple(uses[name]))


def _relation(value: Array, meant: Array, namesakes: bool) -> Transform | None:
    """How a parameter is made of a constant; None if their values say nothing of it."""
    if value.shape == meant.shape and (namesakes or _equal(value, meant)):
        return IDENTITY
    if meant.ndim == 2 and value.shape == meant.shape[::-1] and _equal(value.T, meant):
        return TURNED
    repeats = value.ndim == meant.ndim and all(n == 1 or n == m for n, m in zip(meant.shape, value.shape, strict=True))
    if repeats and _equal(value, np.broadcast_to(meant, value.shape)):
        return Repeated(meant.shape, value.shape)
    if meant.ndim == 2 and value.shape[-1:] == meant.shape[1:]:
        rows = value.reshape(-1, meant.shape[1])
        if len(rows) < len(meant) and _equal(rows, meant[: len(rows)]):
            return FirstRows(meant, value.shape)
    return None


def _equal(one: Array, other: Array) -> bool:
    """Tell whether values are equal and no constant, which says nothing."""
    return bool(np.array_equal(one, other) and np.ptp(one.astype(np.float64)))


@dataclass(frozen=True, eq=False, slots=True)
class Repeated(OneStep):
    """A parameter that the graph holds several times along axes where it has one element."""

    shape: Shape
    repeated: Shape
    op = "repeated"

    def apply(self, value: Array) -> Array:
        """The first of them."""
        return value[tuple(slice(0, length) for length in self.shape)]

    def output_shape(self, shape: Shape) -> Shape:  # noqa: ARG002
        """The parameter's shape."""
        return self.shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Back to all of them."""
        return _Kept(self.repeated, None)


@dataclass(frozen=True, eq=False, slots=True)
class FirstRows(OneStep):
    """A table of which the graph holds the first rows only, in the shape in which it uses them."""

    table: Array
    kept: Shape
    op = "first_rows"

    def apply(self, value: Array) -> Array:
        """The whole table, with the other side's rows where the graph has none."""
        rows = value.reshape(-1, self.table.shape[1])
        return np.concatenate([rows, self.table[len(rows) :].astype(rows.dtype)])

    def output_shape(self, shape: Shape) -> Shape:  # noqa: ARG002
        """The shape of the whole table."""
        return self.table.shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:  # noqa: ARG002
        """Back to the rows."""
        return _Kept(self.kept, self.table.shape[1])


@dataclass(frozen=True, slots=True)
class _Kept(OneStep):
    """What the graph keeps of a parameter: repeated, or the first rows of so many columns."""

    shape: Shape
    columns: int | None
    op = "kept"

    def apply(self, value: Array) -> Array:
        if self.columns is None:
            return np.broadcast_to(value, self.shape)
        return value[: int(np.prod(self.shape)) // self.columns].reshape(self.shape)

    def output_shape(self, shape: Shape) -> Shape:  # noqa: ARG002
        return self.shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:
        raise NotImplementedError
