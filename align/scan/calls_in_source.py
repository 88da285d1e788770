"""What the source of a torch model calls, without a run: its layers, and the names that its code uses.

The code is that of the model's own classes, and of the functions that they call. A name is looked up where the code
stands. Of a value whose kind is not known, the method's name alone tells: `x.view(...)` is taken for a tensor's. What
operators (`a + b`) work on cannot be told; only `@` counts.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.errors import CannotRunError
from align.models.api_calls import ApiCall
from align.models.function_source import function_source, methods_of, own_classes, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.protocols import Model
    from align.models.api_calls import CallKind, CallWatcher
    from align.models.function_source import FunctionSource

METHOD = "torch.Tensor"
MATRIX_PRODUCT = f"{METHOD}.matmul"
NOT_RUN = ("__init__", "extra_repr", "reset_parameters", "init_weights", "_init_weights")  # no part of a forward
Key = tuple[str, "CallKind", str, str]


def calls_in_source(model: Model, watcher: CallWatcher, label: str) -> tuple[ApiCall, ...]:
    """Layers, then other calls; raises CannotRunError where the code of a class cannot be read."""
    found = _Found(watcher)
    unread: dict[str, None] = {}
    layers = watcher.called_layers(model)
    opaque = tuple(f"{one.module}." for one in layers if one.module and not one.api.endswith(".Sequential"))
    for path, module in model.named_modules():
        if path.startswith(opaque):
            continue
        for cls in own_classes(module):
            sources = [one for one in methods_of(cls) if one.node.name not in NOT_RUN]
            if not sources and "forward" in vars(cls):
                unread[f"{cls.__module__}.{cls.__qualname__}"] = None
            for source in sources:
                found.read(source, path)
    if unread:
        raise CannotRunError.of("scan_error.unread", side=label, classes=[*unread])
    return (*layers, *(ApiCall(*key, calls) for key, calls in found.counts.items()))


class _Found:
    """Counts by name and place; each function is read once."""

    def __init__(self, watcher: CallWatcher) -> None:
        self._watcher = watcher
        self._methods = watcher.tensor_methods()
        self._read: set[tuple[str, int]] = set()
        self.counts: Counter[Key] = Counter()

    def read(self, source: FunctionSource, module: str) -> None:
        """Note what a function calls, and what the functions do that it calls."""
        if (key := (source.file, source.node.lineno)) in self._read:
            return
        self._read.add(key)
        names = vars(sys.modules.get(source.module, sys))
        for node in ast.walk(source.node):
            for api, kind in self._named(node, source, names, module):
                self.counts[api, kind, module, shown(source, node.lineno)] += 1  # type: ignore[attr-defined]

    def _named(
        self, node: ast.AST, source: FunctionSource, names: dict[str, Any], module: str
    ) -> Iterator[tuple[str, CallKind]]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield MATRIX_PRODUCT, "method"
        if not isinstance(node, ast.Call):
            return
        value = _resolved(node.func, names)
        if value is not None:
            yield from self._of_value(value, module)
        elif isinstance(node.func, ast.Attribute):
            yield from self._of_method(node.func, source)

    def _of_method(self, node: ast.Attribute, source: FunctionSource) -> Iterator[tuple[str, CallKind]]:
        """A method of a value that is not known; what the model itself has is no tensor's."""
        if node.attr in self._methods and not _is_name(node.value, source.own):
            yield f"{METHOD}.{node.attr}", "method"

    def _of_value(self, value: object, module: str) -> Iterator[tuple[str, CallKind]]:
        """What torch calls a value that is called; a function of the user's is read."""
        if api := self._watcher.public_name(value):
            yield api, _kind(api, value)
        elif isinstance(value, FunctionType) and (inner := function_source(value)) is not None:
            self.read(inner, module)


def _kind(api: str, value: object) -> CallKind:
    if isinstance(value, type):
        return "layer"
    return "method" if api.startswith(f"{METHOD}.") else "function"


def _resolved(node: ast.expr, names: dict[str, Any]) -> Any:
    """What a name, or a chain of names as `torch.nn.functional.gelu`, stands for in a module; None if it is local."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolved(node.value, names)
        return None if owner is None else getattr(owner, node.attr, None)
    return None


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
