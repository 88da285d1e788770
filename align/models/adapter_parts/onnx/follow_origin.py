"""What an ONNX model does not say of its parameters, as the model says that it was exported from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.core.transforms import IDENTITY, OneStep
from align.models.adapter_parts.onnx.folded_norms import FoldedNorm
from align.models.adapter_parts.onnx.name_parameters import TURNED, OnnxParameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.core.parameters import Origin, OriginNorm, Shape
    from align.core.transforms import Transform
    from align.models.adapter_parts.onnx.onnx_model import OnnxModel

_FOLDING = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0}  # the axis of torch's weight along which its outputs lie


def followed(model: OnnxModel, origin: Origin) -> OnnxModel:
    """The model with its folded norms, its constants that are parameters, ties and zeros that the export left out."""
    model = replace(model, folded=tuple(_folded(model, origin)))
    model = replace(model, parameters=tuple(one for one in model.parameters if _is_held(model, origin, one)))
    known = {one.initializer for one in model.parameters}
    left = {one.name for one in origin.parameters.parameters if one.tied_to is None} - set(origin.paired.values())
    left -= {name for norm in model.folded for name in _names_of(origin, norm.path)}
    found = [*_constants(model, origin, known, left)]
    left -= {origin_name for origin_name, _ in found}
    parameters = (*model.parameters, *(one for _, one in found))
    zeros = {name: origin.values[theirs].shape for name, theirs in _zeros(origin, left)}
    return replace(model, parameters=parameters, zeros=zeros, ties=_ties(parameters, origin))


def _is_held(model: OnnxModel, origin: Origin, one: OnnxParameter) -> bool:
    """Tell whether the file holds the parameter itself, and nothing that an exporter computed from it.

    What has no name of its own there and another value is the parameter only where that was turned for a usual layer,
    or a norm was multiplied into it.
    """
    theirs = origin.paired.get(one.name)
    if one.named or theirs is None or not origin.same_values or any(one.name in norm.names for norm in model.folded):
        return True
    if one.transform is TURNED and theirs in origin.usual:
        return True
    return np.array_equal(model.values_of(one).ravel(), origin.values[theirs].ravel())


def _names_of(origin: Origin, path: str) -> Iterator[str]:
    return (name for norm in origin.norms if norm.path == path for name in norm.parameters.values())


def _folded(model: OnnxModel, origin: Origin) -> Iterator[FoldedNorm]:
    """Each convolution with a norm in it: one that its values confirm, else the one that comes next in the origin."""
    paired = set(origin.paired.values())
    free = [norm for norm in origin.norms if not paired & set(norm.parameters.values())]
    owners = [module.path for module in origin.parameters.modules if module.parameters]
    order = {path: place for place, path in enumerate(owners)}
    by_place = {place: one for one in model.parameters for place in one.places}
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
        fits = [one for one in made if one is not None]
        held = model.values_of(weight), model.values_of(bias)
        sure = next((one for one in fits if one.confirmed(*held)), None)
        if sure is not None:
            free = [norm for norm in free if norm.path != sure.path]
            yield sure
        elif fits and (origin.biases.get(theirs) is None or order[fits[0].path] == place + 1):
            unsure.append(fits)  # a bias that the origin lacks is that of a norm, and so may the layer's be before one
    for fits in unsure:
        left = [one for one in fits if any(norm.path == one.path for norm in free)]
        if left:
            free = [norm for norm in free if norm.path != left[0].path]
            yield left[0]


def _made(
    model: OnnxModel, origin: Origin, norm: OriginNorm, own: tuple[OnnxParameter, OnnxParameter], theirs: str, axis: int
) -> FoldedNorm | None:
    """A norm in a convolution, if it has as many channels."""
    weight, bias = own
    values = {name: origin.values[key] for name, key in norm.parameters.items()}
    held = weight.transform.output_shape(model.tensors[weight.initializer].shape)
    shape = origin.values[theirs].shape
    if values["weight"].shape != model.tensors[bias.initializer].shape or np.prod(held) != np.prod(shape):
        return None
    beside = origin.biases.get(theirs)
    return FoldedNorm(
        norm.path,
        weight.name,
        bias.name,
        norm.epsilon,
        values,
        origin.values[theirs].reshape(held),
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
    uses: dict[str, list[tuple[int, str]]] = {}
    for number, node in enumerate(model.graph.nodes):
        for name in node.inputs:
            uses.setdefault(name, []).append((number, name))
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


def _relation(held: Array, meant: Array, namesakes: bool) -> Transform | None:
    """How a parameter is made of a constant; None if their values say nothing of it."""
    if held.shape == meant.shape and (namesakes or _equal(held, meant)):
        return IDENTITY
    if meant.ndim == 2 and held.shape == meant.shape[::-1] and _equal(held.T, meant):
        return TURNED
    repeats = held.ndim == meant.ndim and all(n == 1 or n == m for n, m in zip(meant.shape, held.shape, strict=True))
    if repeats and _equal(held, np.broadcast_to(meant, held.shape)):
        return Repeated(meant.shape, held.shape)
    if meant.ndim == 2 and held.shape[-1:] == meant.shape[1:]:
        rows = held.reshape(-1, meant.shape[1])
        if len(rows) < len(meant) and _equal(rows, meant[: len(rows)]):
            return FirstRows(meant, held.shape)
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

    def as_table(self) -> dict[str, object]:
        """No map file holds it."""
        return {"op": self.op}


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

    def as_table(self) -> dict[str, object]:
        """No map file holds it."""
        return {"op": self.op}


@dataclass(frozen=True, slots=True)
class _Kept(OneStep):
    """What the graph keeps of a parameter: repeated, or the first rows of so many columns."""

    shape: Shape
    columns: int | None
    op = "kept"

    def apply(self, value: Array) -> Array:
        """The constant."""
        if self.columns is None:
            return np.broadcast_to(value, self.shape)
        return value[: int(np.prod(self.shape)) // self.columns].reshape(self.shape)

    def output_shape(self, shape: Shape) -> Shape:  # noqa: ARG002
        """The constant's shape."""
        return self.shape

    def inverse(self, shape: Shape | None, dtype: str | None) -> Transform:
        """Not asked for."""
        raise NotImplementedError

    def as_table(self) -> dict[str, object]:
        """No map file holds it."""
        return {"op": self.op}
