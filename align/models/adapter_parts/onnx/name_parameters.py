"""Which parameter of which module each initializer is, whatever the exporter made of its name and layout.

Exporters transpose matrices, fold constants, and keep equal tensors once: one initializer may then stand for many
parameters. What a parameter is follows from the node that uses it: its module, and the role that the operator gives
to that input.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.core.dtypes import is_float
from align.core.transforms import IDENTITY, Permute, Transform

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.checkpoints.onnx_graph import OnnxNode
    from align.core.checkpoints import StoredTensor
    from align.core.parameters import Shape
    from align.models.adapter_parts.onnx.module_scopes import Scope

Place = tuple[int, str]  # number of the node, and the name of its input
TURNED = Permute((1, 0))
# Roles of the inputs of an operator, from the first on; "" for what is no parameter.
_ROLES = {
    "Conv": ("", "weight", "bias"), "ConvTranspose": ("", "weight", "bias"), "Gemm": ("", "weight", "bias"),
    "BatchNormalization": ("", "weight", "bias", "running_mean", "running_var"),
    "LayerNormalization": ("", "weight", "bias"), "InstanceNormalization": ("", "weight", "bias"),
    "RMSNormalization": ("", "weight"), "GroupNormalization": ("", "weight", "bias"),
    "Gather": ("weight",), "PRelu": ("", "weight"),
}  # fmt: skip
_BUFFERS = frozenset({"running_mean", "running_var"})
_NO_NAME = re.compile(r"onnx::\w+|val_[0-9]+|[0-9]+|.*/.*|_.*")
_BIAS_OF_FOLDED = ".weight_bias"  # what the dynamo exporter calls the bias that a folded BatchNorm leaves


@dataclass(frozen=True, slots=True)
class OnnxParameter:
    """A parameter as torch would have it: `transform` makes it of the initializer; `places` are what uses it.

    One that is not `named` so in the file has its name from the node that uses it: the exporter made the initializer,
    by turning the parameter or by computing something else from it.
    """

    name: str
    module: str
    initializer: str
    transform: Transform = IDENTITY
    places: tuple[Place, ...] = ()
    named: bool = True

    @property
    def attribute(self) -> str:
        """Its name in its module."""
        return self.name[len(self.module) :].lstrip(".")

    @property
    def buffer(self) -> bool:
        """Tell whether no optimizer trains it."""
        return self.attribute in _BUFFERS


@dataclass(frozen=True, slots=True)
class _Use:
    """An initializer as one node takes it: `alias` is the name that it has there."""

    place: Place
    initializer: str
    alias: str
    module: str
    role: str
    transform: Transform


def name_parameters(
    nodes: Sequence[OnnxNode], scopes: Sequence[Scope | None], tensors: Mapping[str, StoredTensor]
) -> tuple[OnnxParameter, ...]:
    """All parameters in the order in which nodes use them; what nothing names stays a constant of the graph."""
    uses = [*_uses(nodes, scopes, tensors)]
    counts = Counter((use.alias, use.module) for use in uses)
    shared = Counter(alias for alias, _ in counts)
    found: dict[str, OnnxParameter] = {}
    for use in uses:
        name, module = _name(use, shared[use.alias] > 1)
        if not name:
            continue
        made = OnnxParameter(name, module, use.initializer, use.transform, (use.place,), bool(_own_name(use.alias)))
        known = found.setdefault(name, made)
        if known is not made and (known.initializer, known.transform) == (made.initializer, made.transform):
            found[name] = replace(known, places=(*known.places, use.place))
    return tuple(found.values())


def aliases(nodes: Sequence[OnnxNode], tensors: Mapping[str, StoredTensor]) -> dict[str, tuple[str, Transform]]:
    """The initializer that each name stands for: its own, and those of nodes that only pass it on or turn it."""
    known: dict[str, tuple[str, Transform]] = {name: (name, IDENTITY) for name in tensors}
    for node in nodes:
        source = known.get(node.inputs[0]) if len(node.inputs) == 1 else None
        if source and node.operator == "Identity":
            known[node.outputs[0]] = source
        elif source and node.operator == "Transpose" and len(tensors[source[0]].shape) == 2 and source[1] is IDENTITY:
            known[node.outputs[0]] = source[0], TURNED
    return known


def owned_initializers(
    nodes: Sequence[OnnxNode], modules: Sequence[str], tensors: Mapping[str, StoredTensor]
) -> dict[str, frozenset[str]]:
    """The floating initializers that the nodes of each module use, by its path."""
    known = aliases(nodes, tensors)
    found: dict[str, set[str]] = defaultdict(set)
    for node, module in zip(nodes, modules, strict=True):
        found[module] |= {
            known[name][0] for name in node.inputs if name in known and _is_value(tensors[known[name][0]])
        }
    return {module: frozenset(names) for module, names in found.items()}


def _is_value(tensor: StoredTensor) -> bool:
    return is_float(tensor.dtype) and bool(tensor.shape)


def _uses(
    nodes: Sequence[OnnxNode], scopes: Sequence[Scope | None], tensors: Mapping[str, StoredTensor]
) -> Iterator[_Use]:
    known = aliases(nodes, tensors)
    multiplied = {
        scope.module
        for node, scope in zip(nodes, scopes, strict=True)
        if scope and node.operator == "MatMul" and known.keys() & set(node.inputs)
    }
    normed = {
        scope.module
        for node, scope in zip(nodes, scopes, strict=True)
        if scope and node.operator in ("ReduceMean", "InstanceNormalization")
    }
    for number, (node, scope) in enumerate(zip(nodes, scopes, strict=True)):
        if node.operator == "Identity" or (node.operator == "Transpose" and node.outputs[0] in known):
            continue
        module = scope.module if scope else ""
        for slot, alias in enumerate(node.inputs):
            if alias in known and _is_value(tensors[known[alias][0]]):
                initializer, turned = known[alias]
                one_axis = len(tensors[initializer].shape) == 1 and bool(_own_name(alias))  # else it was computed
                role = (
                    _role(node, slot, one_axis and module in multiplied, one_axis and module in normed) if scope else ""
                )
                kept = scope and _own_name(alias)  # exporters give another name to what they turn
                change = turned if kept else _layout(node, slot, turned, tensors[initializer].shape)
                yield _Use((number, alias), initializer, alias, module, role, change)


def _role(node: OnnxNode, slot: int, multiplied: bool, normed: bool) -> str:
    roles = _ROLES.get(node.operator, ())
    if slot < len(roles):
        return roles[slot]
    if node.operator == "MatMul":
        return "weight"
    if node.operator == "Add" and (multiplied or normed):
        return "bias"
    return "weight" if node.operator == "Mul" and normed else ""


def _layout(node: OnnxNode, slot: int, turned: Transform, shape: Shape) -> Transform:
    """What makes torch's layout of an initializer: a linear layer's weight is (out, in) there."""
    inputs_first = (
        len(shape) == 2
        and slot == 1
        and (node.operator == "MatMul" or (node.operator == "Gemm" and not node.integers.get("transB")))
    )
    if not inputs_first:
        return turned
    return IDENTITY if turned is TURNED else TURNED


def _name(use: _Use, shared: bool) -> tuple[str, str]:
    """The name of a parameter and its module; "" for a constant."""
    own = _own_name(use.alias)
    if own.endswith(_BIAS_OF_FOLDED):
        own = f"{own.removesuffix(_BIAS_OF_FOLDED)}.bias"
    module = own.rpartition(".")[0]
    if own and (not shared or not use.role or (module == use.module and own.endswith(f".{use.role}"))):
        return own, module
    return (f"{use.module}.{use.role}".lstrip("."), use.module) if use.role else ("", "")


def _own_name(alias: str) -> str:
    """The name as the exported model had it, "" for one that an exporter made up."""
    return "" if _NO_NAME.fullmatch(alias) or "." not in alias else alias
