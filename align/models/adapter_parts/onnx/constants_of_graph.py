"""What a graph uses as a constant: tensors of no parameter, and tensors of one that may be a constant elsewhere."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

import numpy as np

from align.core.dtypes import is_float
from align.models.adapter_parts.onnx.name_parameters import aliases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.checkpoints.onnx_graph import OnnxGraph
    from align.core.checkpoints import StoredTensor
    from align.core.dtypes import Array
    from align.models.adapter_parts.onnx.module_scopes import Scope
    from align.models.adapter_parts.onnx.name_parameters import OnnxParameter


class GraphModel(Protocol):
    """What is asked of an OnnxModel."""

    @property
    def graph(self) -> OnnxGraph:
        """The nodes."""

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """All initializers."""

    @property
    def scopes(self) -> Sequence[Scope | None]:
        """The modules of the nodes."""

    @property
    def parameters(self) -> Sequence[OnnxParameter]:
        """What has a name."""

    def constant(self, name: str) -> Array:
        """The value of an initializer."""


def constants_left(model: GraphModel) -> list[str]:
    """Initializers with several floating values, not all equal, that are of no parameter."""
    known = {one.initializer for one in model.parameters}
    return [
        name
        for name, tensor in model.tensors.items()
        if name not in known and is_float(tensor.dtype) and tensor.shape and not _is_uniform(model, name)
    ]


def constant_uses(model: GraphModel) -> Mapping[str, list[str]]:
    """The nodes, by initializer, that may use it as a constant though it is a parameter.

    Exporters keep equal tensors once. It may be so where no parameter is known, and where a module uses the ones or
    zeros of another.
    """
    places = {place: one for one in model.parameters for place in one.places}
    uniform = {name: _is_uniform(model, name) for name in {one.initializer for one in model.parameters}}
    found: dict[str, list[str]] = defaultdict(list)
    for number, alias, initializer in _uses(model):
        one, scope = places.get((number, alias)), model.scopes[number]
        inside = one is not None and scope is not None and scope.module == one.module
        if initializer in uniform and (one is None or (uniform[initializer] and not inside)):
            found[initializer].append(str(model.graph.nodes[number]))
    return found


def _uses(model: GraphModel) -> Iterator[tuple[int, str, str]]:
    known = aliases(model.graph.nodes, model.tensors)
    for number, node in enumerate(model.graph.nodes):
        for name in node.needs:
            if name in known and node.outputs[0] not in known:
                yield number, name, known[name][0]


def _is_uniform(model: GraphModel, name: str) -> bool:
    value = model.constant(name)
    return value.size < 2 or bool(np.all(value == value.flat[0]))
