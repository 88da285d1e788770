"""How the user's code calls a layer of a live model: at which line, and on what it has padded by a function.

A layer that is handed what was padded need not pad. Values are followed back from the call: through variables, methods
of the model's own, functions of the same file, and what works on single elements (an activation, a cast). A layer that
mixes elements ends the way: what was padded in front of another convolution is not padded for this one.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from align.core.protocols import ModelRunner
from align.models.function_source import called_name, function_source, is_own, methods_of, own_classes, shown
from align.models.source_lines import climb
from align.models.thresholds import DEEPEST_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.protocols import Model
    from align.models.function_source import FunctionSource


UNCALLED = ("ModuleList", "CellList", "ModuleDict", "CellDict")  # lists whose items the code calls one by one
ELEMENTWISE = {  # functions, methods and classes of single elements, in small letters and without underscores
    "abs", "astype", "celu", "clamp", "clip", "clipbyvalue", "contiguous", "dropout", "dropout2d", "elu", "exp",
    "float", "gelu", "half", "hardsigmoid", "hardswish", "hsigmoid", "hswish", "identity", "leakyrelu", "mish", "mul",
    "neg", "prelu", "quickgelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softplus", "square",
    "stopgradient", "swish", "tanh", "to", "type", "cast", "detach", "clone", "fastgelu",
}  # fmt: skip


def is_padded_by_code(owner: object, path: str) -> bool:
    """Tell whether the user's code pads by a function (`F.pad`, `ops.pad`) what it hands the layer at `path`.

    Of the code that calls the layer, or the list that it is the first of, the nearest around it counts, and that of a
    layer that users wrote.
    """
    for names, chain in climb(owner, path):
        own = [source for source in _methods(chain[-1]) if source.node.name in CALLED]
        if any(isinstance(node, ast.Call) and _is_padding(node) for source in own for node in ast.walk(source.node)):
            return True
        calls = [(source, call) for source in _methods(chain[0]) for call in _calls_of(source, names[0])]
        leads = all(map(_is_first, chain[1:-1], names[1:]))
        if leads and any(_Way(chain[0], source).is_padded(call) for source, call in calls):
            return True
        if calls and not all(_is_handed_on(source, call) for source, call in calls):
            return False
    return False


def drops_results(owner: object, path: str) -> bool:
    """Tell whether the code of a layer, or that around it, calls methods for their effect alone, as in `y.mul_(2)`."""
    chains = [chain for _, chain in climb(owner, path)]
    layers = [layer for chain in chains for layer in (chain[0], chain[-1])] or [owner]
    sources = {id(one.node): one for layer in layers for one in _methods(layer)}.values()
    return any(_is_dropped(node) for source in sources for node in ast.walk(source.node))


def _is_dropped(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    method = call.func if isinstance(call, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr.endswith("_") and not method.attr.endswith("__")


def probed_at(owner: object, name: str) -> str:
    """`file:line` of the first `align.probe(name, ...)` in the code of a live model; "" if none is found."""
    layers = [owner, *(layer for _, layer in _named_layers(owner))]
    for source in {id(one.node): one for layer in layers for one in _methods(layer)}.values():
        for node in ast.walk(source.node):
            if isinstance(node, ast.Call) and called_name(node) == "probe" and _first_text(node) == name:
                return shown(source, node.lineno)
    return ""


def _named_layers(owner: Any) -> Iterator[tuple[str, object]]:
    walk: Any = getattr(owner, "cells_and_names", None) or getattr(owner, "named_modules", tuple)
    yield from walk()


def _first_text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return str(first.value) if isinstance(first, ast.Constant) else ""


def _methods(layer: object) -> list[FunctionSource]:
    """The methods of a layer's own classes, without those that a class overrides and does not call."""
    found: dict[str, list[FunctionSource]] = {}
    for source in (source for cls in own_classes(layer) for source in methods_of(cls)):
        others = found.setdefault(source.node.name, [])
        if not others or _calls_super(others[-1]):
            others.append(source)
    return [source for own in found.values() for source in own]


def _calls_super(source: FunctionSource) -> bool:
    return any(called_name(node) == "super" for node in ast.walk(source.node))


def _is_padding(call: ast.Call) -> bool:
    name = called_name(call).lower()
    return "pad" in name and "unpad" not in name


def _is_first(holder: Any, name: str) -> bool:
    """Tell whether a list runs this item first, or runs nothing by itself."""
    children = vars(holder).get("_modules") or vars(holder).get("_cells") or {}
    return type(holder).__name__ in UNCALLED or next(iter(children), None) == name


def _calls_of(source: FunctionSource, name: str) -> list[ast.Call]:
    """The calls of `self.name`, or of an item of it in a loop."""
    nodes = list(ast.walk(source.node))
    called = [node for node in nodes if isinstance(node, ast.Call) and calls_own(node, source, name)]
    looped = [node for node in nodes if isinstance(node, ast.For) and loop_lines(node, source, name)]
    lines = {line for node in looped for line in loop_lines(node, source, name)}
    return called or [node for node in nodes if isinstance(node, ast.Call) and node.lineno in lines]


def _is_handed_on(source: FunctionSource, call: ast.Call) -> bool:
    """Tell whether the first argument is one that the method itself was given, as it is."""
    value = call.args[0] if call.args else call
    while isinstance(value, ast.Name) and (assigned := _last_assigned(source, value)) is not None:
        value = assigned
    return isinstance(value, ast.Name) and value.id in _parameters(source)


def _parameters(source: FunctionSource) -> list[str]:
    return [one.arg for one in (*source.node.args.posonlyargs, *source.node.args.args)]


@dataclass(frozen=True, slots=True)
class _Way:
    """The way back from a value of one method of a live layer; `depth` counts the methods on it."""

    owner: object
    source: FunctionSource
    depth: int = 0

    def is_padded(self, call: ast.Call) -> bool:
        return any(map(self._gives, _arguments(call)))

    def _gives(self, value: ast.expr) -> bool:
        """Tell whether an expression is padded: what pads, or what works on the elements of that."""
        if isinstance(value, ast.Name):
            assigned = _last_assigned(self.source, value)
            return self._is_given(value.id) if assigned is None else self._gives(assigned)
        if isinstance(value, ast.Call):
            return self._call_gives(value)
        return any(map(self._gives, _elements_of(value)))

    def _call_gives(self, call: ast.Call) -> bool:
        if _is_padding(call) or "Pad" in self._class_of(call):
            return True
        if isinstance(call.func, ast.Attribute) and not self._is_own(call) and self._gives(call.func.value):
            return True  # a method of what was padded
        if any(way.returns_padded() for way in self._called(call)):
            return True
        names = called_name(call), self._class_of(call)
        follows = any(name.lower().replace("_", "") in ELEMENTWISE for name in names)
        return follows and any(map(self._gives, _arguments(call)))

    def returns_padded(self) -> bool:
        """Tell whether the function gives back what it padded."""
        nodes = ast.walk(self.source.node)
        returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value is not None]
        return self.depth <= DEEPEST_CALLS and any(map(self._gives, returned))

    def _is_given(self, name: str) -> bool:
        """Tell whether another method of the layer hands this one what it padded."""
        method = self.source.node.name
        if name not in _parameters(self.source) or method in CALLED or self.depth > DEEPEST_CALLS:
            return False
        calls = [(source, call) for source in _methods(self.owner) for call in _calls_of(source, method)]
        return any(self._within(source).is_padded(call) for source, call in calls)

    def _within(self, source: FunctionSource) -> _Way:
        return replace(self, source=source, depth=self.depth + 1)

    def _is_own(self, call: ast.Call) -> bool:
        return is_own(call.func, self.source.own, called_name(call))

    def _class_of(self, call: ast.Call) -> str:
        """The class of a layer of a framework's that the owner has and the call calls, "" for anything else."""
        layer = getattr(self.owner, called_name(call), None) if self._is_own(call) else None
        return "" if layer is None or own_classes(layer) else type(layer).__name__

    def _called(self, call: ast.Call) -> Iterator[_Way]:
        """The user's code that a call runs: a method of the owner, a layer of its, or a function of the same file."""
        name = called_name(call)
        if self._is_own(call):
            yield from (self._within(source) for source in _methods(self.owner) if source.node.name == name)
            inner = getattr(self.owner, name, None)
            ways = (replace(self._within(source), owner=inner) for source in _methods(inner))
            yield from (way for way in ways if way.source.node.name in CALLED)
        elif isinstance(call.func, ast.Name):
            found = getattr(sys.modules.get(self.source.module), name, None)
            source = function_source(found) if isinstance(found, FunctionType) else None
            yield from () if source is None else (self._within(source),)


def _arguments(call: ast.Call) -> Sequence[ast.expr]:
    return [*call.args, *(one.value for one in call.keywords)]


def _elements_of(value: ast.expr) -> list[ast.expr]:
    """The expressions whose elements another has, one by one."""
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.BinOp) and not isinstance(value.op, ast.MatMult):
        return [value.left, value.right]
    if isinstance(value, (ast.NamedExpr, ast.Starred)):
        return [value.value]
    return [value.operand] if isinstance(value, ast.UnaryOp) else []


def _last_assigned(source: FunctionSource, name: ast.Name) -> ast.expr | None:
    """What was assigned to a variable last before it is read; None for an argument of the function."""
    before = [
        (place, value)
        for node in ast.walk(source.node)
        for target, value, place in _assigned(node)
        if isinstance(target, ast.Name) and target.id == name.id and place <= (name.lineno, name.col_offset)
    ]
    return max(before, key=lambda one: one[0])[1] if before else None


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, tuple[int, int]]]:
    """The targets of a statement or a walrus, what they are given, and where that ends."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) or node.value is None:
        return
    place = node.end_lineno or node.lineno, node.end_col_offset or 0
    value = ast.BinOp(node.target, node.op, node.value) if isinstance(node, ast.AugAssign) else node.value
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield target, value, place


CALLED = ("forward", "construct")


def called_at(owner: object, path: str) -> str:
    """Return `file.py:12`, the line that calls the layer at `path`, or the list that it stands in; "" if none is."""
    for names, chain in climb(owner, path):
        methods = [source for cls in own_classes(chain[0]) for source in methods_of(cls)]
        forward = [source for source in methods if source.node.name in CALLED]
        others = [source for source in methods if source.node.name not in (*CALLED, "__init__")]
        for source in [*forward, *others]:
            if line := _calling_line(source, names[0]):
                return shown(source, line)
    return ""


def _calling_line(source: FunctionSource, name: str) -> int:
    """The line of a method that calls `self.name`, or an item of it in a loop; the first that names it, 0 if none."""
    nodes = list(ast.walk(source.node))
    called = [node.lineno for node in nodes if isinstance(node, ast.Call) and calls_own(node, source, name)]
    looped = [line for node in nodes if isinstance(node, ast.For) for line in loop_lines(node, source, name)]
    named = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and is_own(node, source.own, name)
    ]
    return min(called or looped or named, default=0)


def calls_own(call: ast.Call, source: FunctionSource, name: str) -> bool:
    """Tell whether a call calls `self.name`, or an item of it."""
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return is_own(function, source.own, name)


def loop_lines(loop: ast.For, source: FunctionSource, name: str) -> list[int]:
    """The lines of a loop over `self.name` that call what it loops over."""
    if not any(is_own(node, source.own, name) for node in ast.walk(loop.iter)):
        return []
    targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    calls = (node for node in ast.walk(loop) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id in targets]


# Calls of a framework's public names, as a run or the source of a model shows them, and the adapter that sees them.

CallKind = Literal["layer", "function", "method"]


@dataclass(frozen=True, slots=True)
class ApiCall:
    """Calls of one name from one place: so many `calls`, from `line` (`file.py:12`, "" if not known), in a module.

    Of a layer `module` is its own path, and `line` is "": what calls a layer may stand far from what makes it.
    """

    api: str
    kind: CallKind
    module: str
    line: str
    calls: int


@runtime_checkable
class CallWatcher(ModelRunner, Protocol):
    """Makes copies of a model whose calls of the framework's public names are seen."""

    def watched(self, model: Model) -> Model:
        """A copy that is watched; as `PrecisionRunner.cast_copy`."""

    def watched_calls(self, model: Model) -> tuple[ApiCall, ...]:
        """What a `watched` model called in its runs so far, in the order of the first calls."""

    def called_layers(self, model: Model) -> tuple[ApiCall, ...]:
        """The framework's layers that a model has, each as one call, without what these work with inside."""

    def public_name(self, value: object) -> str:
        """The name that users call a class or function by, "" for what is not the framework's."""

    def tensor_methods(self) -> frozenset[str]:
        """Names of the methods and attributes of a tensor."""
