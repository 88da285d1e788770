"""To which module of the exported model each node belongs, and of which class it was.

torch's exporter by TorchScript names nodes by their place (`/layer1/layer1.0/conv1/Conv`), the one by dynamo keeps the
places and classes as metadata. In the former a module that is called again stands there as `relu_1`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.checkpoints.onnx_graph import OnnxNode

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
    """The path of the module whose later call this is, "" if it is a module of its own."""
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
    found = []
    for number, (node, scope) in enumerate(zip(nodes, scopes, strict=True)):
        folding = node.operator in _CONVOLUTIONS or (node.operator == "Gemm" and _is_norm(scope))
        module = modules.get((number, node.inputs[1]), "") if folding else ""
        if scope and module and module != scope.module:
            around = sorted((path for path in known if module.startswith(f"{path}.")), key=len)
            scope = Scope((*around, module))  # noqa: PLW2901
        found.append(scope)
    return tuple(found)


def _is_norm(scope: Scope | None) -> bool:
    return bool(scope and scope.classes and scope.classes[-1].startswith("torch.nn.BatchNorm"))


def module_classes(
    nodes: Sequence[OnnxNode], scopes: Sequence[Scope | None], ranks: Mapping[str, int]
) -> dict[str, str]:
    """The class of each module by its path, "" if unknown; `ranks` count the axes of initializers."""
    classes: dict[str, str] = {}
    own: dict[str, list[OnnxNode]] = defaultdict(list)
    parents: set[str] = set()
    for node, scope in zip(nodes, scopes, strict=True):
        if scope is None:
            continue
        for place, path in enumerate(scope.paths):
            classes[path] = classes.get(path) or (scope.classes[place] if scope.classes else "")
        parents.update(scope.paths[:-1])
        own[scope.module].append(node)
    return {
        path: name or ("" if path in parents else _class_by_operators(own[path], ranks))
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
