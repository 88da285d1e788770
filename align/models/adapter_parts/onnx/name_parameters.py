"""Which parameter of which module each initializer is, whatever the exporter made of its name and layout.

Exporters transpose matrices, fold constants, and keep equal tensors once: one initializer may then stand for many
parameters. What a parameter is follows from the node that uses it: its module, and the role that the operator gives
to that input.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.parameters import EPSILON, is_float, paths_around
from align.core.transforms import IDENTITY, Permute, Transform
from align.models.thresholds import FOLDED_ROUNDING_UNITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.checkpoints.protobuf import OnnxNode
    from align.core.parameters import Array, Shape, StoredTensor


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
    uses = [*_uses_of_parameters(nodes, scopes, tensors)]
    counts = Counter((use.alias, use.module) for use in uses)
    shared = Counter(alias for alias, _ in counts)
    parameters: dict[str, OnnxParameter] = {}
    for use in uses:
        name, module = _name(use, shared[use.alias] > 1)
        if not name:
            continue
        made = OnnxParameter(name, module, use.initializer, use.transform, (use.place,), bool(_own_name(use.alias)))
        known = parameters.setdefault(name, made)
        if known is not made and (known.initializer, known.transform) == (made.initializer, made.transform):
            parameters[name] = replace(known, places=(*known.places, use.place))
    return tuple(parameters.values())


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
    initializers: dict[str, set[str]] = defaultdict(set)
    for node, module in zip(nodes, modules, strict=True):
        initializers[module] |= {
            known[name][0] for name in node.inputs if name in known and _is_value(tensors[known[name][0]])
        }
    return {module: frozenset(names) for module, names in initializers.items()}


def _is_value(tensor: StoredTensor) -> bool:
    return is_float(tensor.dtype) and bool(tensor.shape)


def _uses_of_parameters(
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
    name = _own_name(use.alias)
    if name.endswith(_BIAS_OF_FOLDED):
        name = f"{name.removesuffix(_BIAS_OF_FOLDED)}.bias"
    module = name.rpartition(".")[0]
    if name and (not shared or not use.role or (module == use.module and name.endswith(f".{use.role}"))):
        return name, module
    return (f"{use.module}.{use.role}".lstrip("."), use.module) if use.role else ("", "")


def _own_name(alias: str) -> str:
    """The name as the exported model had it, "" for one that an exporter made up."""
    return "" if _NO_NAME.fullmatch(alias) or "." not in alias else alias


# To which module of the exported model each node belongs, and of which class it was.
#
# torch's exporter by TorchScript names nodes by their place (`/layer1/layer1.0/conv1/Conv`), the one by dynamo keeps
# the places and classes as metadata. In the former a module that is called again stands there as `relu_1`.

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_AGAIN = re.compile(r"(?P<path>.*[^_.])_[0-9]+")
_TORCH_MODULES = "torch.nn.modules."
# What a module without inner ones is that consists of such an operator, where no class is kept.
_CLASS_OF_OPERATOR = {
    "BatchNormalization": "BatchNorm2d", "LayerNormalization": "LayerNorm", "Gemm": "Linear", "MatMul": "Linear",
    "Gather": "Embedding", "Relu": "ReLU", "MaxPool": "MaxPool2d", "AveragePool": "AvgPool2d", "Sigmoid": "Sigmoid",
    "GlobalAveragePool": "AdaptiveAvgPool2d", "Softmax": "Softmax", "Tanh": "Tanh", "Erf": "GELU", "Gelu": "GELU",
    "PRelu": "PReLU", "LeakyRelu": "LeakyReLU", "Elu": "ELU", "HardSwish": "Hardswish", "HardSigmoid": "Hardsigmoid",
    "Flatten": "Flatten", "InstanceNormalization": "InstanceNorm2d", "Clip": "ReLU6",
}  # fmt: skip
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_WITH_WEIGHTS = frozenset({"Gemm", "MatMul", "Gather", "Conv", "ConvTranspose", "LayerNormalization"})


@dataclass(frozen=True, slots=True)
class Scope:
    """The modules around a node, outermost first, without the model itself; classes where the file keeps them."""

    paths: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The innermost module, "" for the model itself."""
        return self.paths[-1] if self.paths else ""


def read_scopes(nodes: Sequence[OnnxNode], owned: Mapping[str, frozenset[str]]) -> list[Scope | None]:
    """The scope of each node, None where nothing tells it; `owned` are the initializers by the path of a scope."""
    found = [_by_metadata(node) or _by_name(node) for node in nodes]
    paths = {path for scope in found if scope is not None for path in scope.paths}
    again = {path: first for path in paths if (first := _called_before(path, paths, owned))}
    return [scope and Scope(tuple(_renamed(path, again) for path in scope.paths), scope.classes) for scope in found]


def raw_modules(nodes: Sequence[OnnxNode]) -> list[str]:
    """The innermost path of each node as the file has it."""
    return [scope.module if (scope := _by_metadata(node) or _by_name(node)) else "" for node in nodes]


def _by_metadata(node: OnnxNode) -> Scope | None:
    paths, classes = (_listed(node.metadata.get(key, "")) for key in (SCOPES, CLASSES))
    if not paths:
        return None
    inside = [(path, cls) for path, cls in zip(paths[:-1], classes or paths, strict=False) if path]
    return Scope(tuple(path for path, _ in inside), tuple(public_class(cls) for _, cls in inside) if classes else ())


def _listed(text: str) -> list[str]:
    try:
        found = ast.literal_eval(text) if text.startswith("[") else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return found if all(isinstance(one, str) for one in found) else []


def public_class(name: str) -> str:
    """The name that users write: `torch.nn.Linear` for `torch.nn.modules.linear.Linear`."""
    return f"torch.nn.{name.rpartition('.')[2]}" if name.startswith(_TORCH_MODULES) else name


def _by_name(node: OnnxNode) -> Scope | None:
    if not node.name.startswith("/"):
        return None
    paths: list[str] = []
    before = ""
    for part in node.name.split("/")[1:-1]:
        around = paths[-1] if paths else ""
        if before and part.startswith(f"{before}."):  # a Sequential names its layers with its own name in front
            around = around.removesuffix(before).rstrip(".")
        paths.append(f"{around}.{part}".lstrip("."))
        before = part
    return Scope(tuple(paths))


def _called_before(path: str, paths: Iterable[str], owned: Mapping[str, frozenset[str]]) -> str:
    found = _AGAIN.fullmatch(path)
    first = found["path"] if found else ""
    return first if first in paths and owned.get(path, frozenset()) <= owned.get(first, frozenset()) else ""


def _renamed(path: str, again: Mapping[str, str]) -> str:
    for later, first in again.items():
        if path == later or path.startswith(f"{later}."):
            return first + path[len(later) :]
    return path


def at_their_weights(
    nodes: Sequence[OnnxNode], scopes: Sequence[Scope | None], modules: Mapping[tuple[int, str], str]
) -> tuple[Scope | None, ...]:
    """The scopes with each convolution or linear layer in the module that owns its weight.

    The dynamo exporter says that one into which a BatchNorm was multiplied is the BatchNorm.
    """
    known = {path for scope in scopes if scope for path in scope.paths}
    moved = []
    for number, (node, scope) in enumerate(zip(nodes, scopes, strict=True)):
        folding = node.operator in _CONVOLUTIONS or (node.operator == "Gemm" and _is_norm(scope))
        module = modules.get((number, node.inputs[1]), "") if folding else ""
        if scope and module and module != scope.module:
            around = [path for path in paths_around(module) if path in known]
            scope = Scope((*reversed(around), module))  # noqa: PLW2901
        moved.append(scope)
    return tuple(moved)


def _is_norm(scope: Scope | None) -> bool:
    return bool(scope and scope.classes and scope.classes[-1].startswith("torch.nn.BatchNorm"))


def module_classes(
    nodes: Sequence[OnnxNode], scopes: Sequence[Scope | None], ranks: Mapping[str, int]
) -> dict[str, str]:
    """The class of each module by its path, "" if unknown; `ranks` count the axes of initializers."""
    classes: dict[str, str] = {}
    nodes_by_module: dict[str, list[OnnxNode]] = defaultdict(list)
    parents: set[str] = set()
    for node, scope in zip(nodes, scopes, strict=True):
        if scope is None:
            continue
        for place, path in enumerate(scope.paths):
            classes[path] = classes.get(path) or (scope.classes[place] if scope.classes else "")
        parents.update(scope.paths[:-1])
        nodes_by_module[scope.module].append(node)
    return {
        path: name or ("" if path in parents else _class_by_operators(nodes_by_module[path], ranks))
        for path, name in classes.items()
    }


def _class_by_operators(nodes: Sequence[OnnxNode], ranks: Mapping[str, int]) -> str:
    for node in nodes:
        axes = next((ranks[name] for name in node.inputs if name in ranks), 0)
        if node.operator in _CONVOLUTIONS and axes > 2:
            return f"torch.nn.{node.operator}{axes - 2}d"
        known = _CLASS_OF_OPERATOR.get(node.operator)
        if known and (axes or node.operator not in _WITH_WEIGHTS):
            return f"torch.nn.{known}"
    return ""


# BatchNorm that an exporter multiplied into the convolution before it, taken apart again.
#
# One product has many factors: the norm's own values are taken from the other side, and what then differs is said of
# the convolution's weight and of the norm's bias. Values that agree within rounding of the product count as equal,
# since the exporter computed it in the model's own precision.

ATTRIBUTES = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True, slots=True)
class FoldedNorm:
    """A norm at `path` in a convolution whose weight and bias are called so.

    `channels` is the weight's axis of outputs. `norm` holds the other side's values by torch's attributes, `weight`
    and `bias` those of its convolution.
    """

    path: str
    weight_name: str
    bias_name: str
    epsilon: float
    norm: Mapping[str, Array] = field(repr=False)
    weight: Array = field(repr=False)
    bias: Array | None = field(repr=False, default=None)
    channels: int = 0

    @property
    def names(self) -> set[str]:
        """The names of all that goes into the product."""
        return {self.weight_name, self.bias_name, *(f"{self.path}.{name}" for name in self.norm)}

    def unfolded(self, own: Mapping[str, Array]) -> dict[str, Array]:
        """The values of the convolution and the norm whose product is the `own` weight and bias of the file."""
        scale = self._scale(self.norm)
        weight, bias = own[self.weight_name], own[self.bias_name]
        meant = self.product(self.norm, self.weight, self.bias)
        values = {f"{self.path}.{name}": value for name, value in self.norm.items()}
        with np.errstate(all="ignore"):
            apart = (weight.astype(np.float64) / self._along(scale, weight.ndim)).astype(weight.dtype)
        values[self.weight_name] = self.weight if agrees(weight, meant[0]) else apart
        if not agrees(bias, meant[1], self._size_of_bias()):
            off = bias.astype(np.float64) - meant[1]
            values[f"{self.path}.bias"] = (self.norm["bias"].astype(np.float64) + off).astype(bias.dtype)
        if self.bias is not None:
            values[self.bias_name] = self.bias
        return values

    def folded(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The weight and bias of the file that these values make; {} where they are not all there."""
        norm = {name: values[key] for name in ATTRIBUTES if (key := f"{self.path}.{name}") in values}
        if self.weight_name not in values or len(norm) < len(ATTRIBUTES):
            return {}
        bias = values.get(self.bias_name) if self.bias is not None else None
        made = self.product(norm, values[self.weight_name], bias)
        return dict(zip((self.weight_name, self.bias_name), made, strict=True))

    def product(self, norm: Mapping[str, Array], weight: Array, bias: Array | None) -> tuple[Array, Array]:
        """The weight and bias of the convolution and the norm as one, in float64."""
        scale = self._scale(norm)
        moved = (0.0 if bias is None else bias.astype(np.float64)) - norm["running_mean"].astype(np.float64)
        return (
            weight.astype(np.float64) * self._along(scale, weight.ndim),
            norm["bias"].astype(np.float64) + moved * scale,
        )

    def confirmed(self, weight: Array, bias: Array) -> bool:
        """Tell whether the file's weight and bias are this product, within rounding."""
        meant = self.product(self.norm, self.weight, self.bias)
        return agrees(weight, meant[0]) and agrees(bias, meant[1], self._size_of_bias())

    def _scale(self, norm: Mapping[str, Array]) -> Array:
        with np.errstate(all="ignore"):  # a variance below 0 is somebody's fault, and shows
            deviation = np.sqrt(norm["running_var"].astype(np.float64) + self.epsilon)
            found: Array = norm["weight"].astype(np.float64) / deviation
        return found

    def _along(self, scale: Array, axes: int) -> Array:
        return scale.reshape([-1 if axis == self.channels else 1 for axis in range(axes)])

    def _size_of_bias(self) -> Array:
        """How large what is added up in the bias is: its rounding goes by the largest of it."""
        moved = (
            self.norm["running_mean"] if self.bias is None else np.abs(self.norm["running_mean"]) + np.abs(self.bias)
        )
        size: Array = np.abs(self.norm["bias"]) + np.abs(moved * self._scale(self.norm))
        return size


def agrees(values: Array, meant: Array, size: Array | None = None) -> bool:
    """Tell whether values are those that are meant, within rounding of what they were made of."""
    unit = EPSILON.get(values.dtype.name, EPSILON["float32"])
    bound = FOLDED_ROUNDING_UNITS * unit * (np.abs(meant) if size is None else size)
    return values.shape == meant.shape and bool(np.all(np.abs(values.astype(np.float64) - meant) <= bound))
