"""The line of the user's code that makes a layer of a live model, and the source of live functions as syntax trees.

A method makes a layer by a statement that keeps it under a name, or by an item of a list. The frameworks' own classes
are nobody's to change: what they make inside belongs to the line that makes them. Where several statements may have
made a layer, the one that calls its class with its sizes is taken, else the first. A function is found by its file and
first line, not by its name: so classes made in functions, defined twice or in a notebook are found too. What was built
in C or by `exec` has no source.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Sized
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FRAMEWORKS = ("torch", "mindspore")
NOT_OWN = (*FRAMEWORKS, "align", "builtins", "pybind11_builtins")  # a base of every cell of MindSpore is of the last
INSTALLED = ("site-packages", "dist-packages")
LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Dict)
BLOCKS = (ast.For, ast.While, ast.If)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ANY = "*"
CONSTRUCTOR = "__init__"
REGISTERING = ("add_module", "register_module", "insert_child_to_cell", "setattr")


def made_at(owner: object, path: str) -> str:
    """Return `file.py:12`, the line that makes the layer at `path` of a live model; "" where none can be found.

    The file is given from the current folder, or from the folder that its package lies in. For an item of a list it is
    the item's own line where that can be found, else that of the list.
    """
    found = construction_of(owner, path)
    return shown(found.source, found.node.lineno) if found else ""


@dataclass(frozen=True, slots=True)
class Construction:
    """The expression that makes a layer, the method that it stands in, and the path of the object that runs it."""

    source: FunctionSource
    node: ast.expr
    owner: str


def construction_of(owner: object, path: str) -> Construction | None:
    """Find the expression that makes the layer at `path` of a live model, or what holds it; None if there is none."""
    for names, chain in climb(owner, path):
        steps = zip(names, chain[:-1], chain[1:], strict=True)
        items = [_Item(name, type(one).__name__, type(holder).__name__, _length(holder)) for name, holder, one in steps]
        nodes = [
            (found.source, _innermost(found, items[0 if found.hands_on else 1 :]))
            for found in _fitting(chain[0], names[0], type(chain[1]).__name__)
        ]
        if nodes:
            source, node = next((one for one in nodes if agrees_with(one[1], chain[-1])), nodes[0])
            return Construction(source, node, ".".join(path.split(".")[: -len(names)]))
    return None


def agrees_with(node: ast.expr, layer: object) -> bool:
    """Tell whether the whole numbers that a call is given are those of a live layer; another branch has others."""
    if not isinstance(node, ast.Call):
        return True
    names = [] if node.args and isinstance(node.args[0], ast.Starred) else _parameter_names(type(layer))
    given = [*zip(names, node.args, strict=False), *((one.arg or "", one.value) for one in node.keywords)]
    return all(_is_size(value, getattr(layer, name, None)) for name, value in given)


def _is_size(node: ast.expr, value: object) -> bool:
    sizes = value if isinstance(value, (tuple, list)) else (value,)
    is_number = isinstance(node, ast.Constant) and type(node.value) is int
    return not is_number or any(type(size) is not int for size in sizes) or node.value in sizes  # type: ignore[attr-defined]


def _parameter_names(cls: type) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(cls).parameters)
    except ValueError:  # built in C
        return ()


def made_in(function: object, class_name: str) -> str:
    """Return `file.py:12`, the line of a function that calls a class; of its whole file where it does not itself.

    "" where nothing calls it, or several lines do.
    """
    source = function_source(function) if isinstance(function, FunctionType) else None
    if source is None:
        return ""
    for nodes in ([source.node], functions_of(source.file)):
        calls = (one for node in nodes for one in ast.walk(node) if called_name(one) == class_name)
        lines = {one.lineno for one in calls if isinstance(one, ast.Call)}
        if lines:
            return shown(source, lines.pop()) if len(lines) == 1 else ""
    return ""


def defined_at(function: object) -> str:
    """Return `file.py:12`, the line that begins a function; "" for what is none."""
    source = function_source(function) if isinstance(function, FunctionType) else None
    return shown(source, source.node.lineno) if source else ""


def climb(owner: object, path: str) -> Iterator[tuple[list[str], list[object]]]:
    """From the layer's parent up: the names that lead from each owner to the layer, and the owner and what is there."""
    names = path.split(".") if path else []
    chain: list[Any] = [owner]
    for name in names:
        if (child := getattr(chain[-1], name, None)) is None:
            return
        chain.append(child)
    for depth in range(len(names) - 1, -1, -1):
        yield names[depth:], chain[depth:]


def _length(layer: object) -> int:
    return len(layer) if isinstance(layer, Sized) else 0


def own_classes(layer: object) -> list[type]:
    """The layer's classes that are no framework's, most derived first."""
    return [cls for cls in type(layer).__mro__ if cls.__module__.partition(".")[0] not in NOT_OWN]


def _fitting(parent: object, name: str, class_name: str) -> list[_LayerConstruction]:
    """The places where an object's own classes make what it keeps under a name, those that call its class first."""
    classes = own_classes(parent)
    for cls in classes:
        found = [construction for source in methods_of(cls) for construction in _layer_constructions(source, name)]
        fitting = [construction for construction in found if not construction.hands_on or cls is classes[-1]]
        if fitting:
            return sorted(fitting, key=lambda one: called_name(one.value) != class_name)
    return []


def shown(source: FunctionSource, line: int) -> str:
    """A line of a function's file as messages name it."""
    return shown_line(source.file, source.module, line)


def shown_line(file: str, module: str, line: int) -> str:
    """A line of a file of a module as messages name it."""
    return f"{_file(Path(file), module)}:{line}"


def _file(path: Path, module: str) -> str:
    """The path from the folder of installed packages, from the current folder, or from that of its top package."""
    installed = [number for number, part in enumerate(path.parts) if part in INSTALLED]
    if installed:
        return Path(*path.parts[installed[-1] + 1 :]).as_posix()
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd()).as_posix()
    return Path(*path.parts[-1 - module.count(".") :]).as_posix()


@dataclass(frozen=True, slots=True)
class _LayerConstruction:
    """A place that makes a layer, or what holds it: the expression, and the function that it stands in."""

    source: FunctionSource
    value: ast.expr

    @property
    def hands_on(self) -> bool:
        """True where the expression hands the layers to the constructor of the base of the class that holds them."""
        return called_name(self.value) == CONSTRUCTOR


def _layer_constructions(source: FunctionSource, name: str) -> Iterator[_LayerConstruction]:
    """What a method keeps as `self.name`; for a number also what it hands to the constructor of the class's base."""
    for node in ast.walk(source.node):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            if any(is_own(one, source.own, name) for target in _targets(node) for one in ast.walk(target)):
                yield _LayerConstruction(source, node.value)
        elif isinstance(node, ast.Call) and called_name(node) in REGISTERING and _registers(node, name):
            yield _LayerConstruction(source, node.args[-1])
        elif name.isdigit() and _is_base_constructor(node):
            yield _LayerConstruction(source, node)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a list: its name ("" for its number, ANY for every one), and whether it is there always."""

    name: str
    value: ast.expr
    always: bool = True


@dataclass(frozen=True, slots=True)
class _Item:
    """A step down from a list-like layer: the item's name there and its class, the class of the list and its length."""

    name: str
    class_name: str
    holder: str
    length: int


def _innermost(construction: _LayerConstruction, items: Sequence[_Item]) -> ast.expr:
    """The expression that makes what the items lead to, as near to it as can be found."""
    value = construction.value
    for item in items:
        inner = _inside(_LayerConstruction(construction.source, value), item)
        if inner is None:
            break
        value = inner
    return _resolved(_LayerConstruction(construction.source, value))


def _registers(call: ast.Call, name: str) -> bool:
    return any(_is_text(argument, name) for argument in call.args[:-1])


def _is_text(node: ast.expr, name: str) -> bool:
    """Tell whether an expression is this text, or a format or a sum that may give it."""
    if isinstance(node, ast.Constant):
        return node.value == name
    if isinstance(node, ast.JoinedStr):
        parts = (re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".+" for one in node.values)
        return re.fullmatch("".join(parts), name) is not None
    return False


def _is_base_constructor(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr == CONSTRUCTOR


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _resolved(construction: _LayerConstruction) -> ast.expr:
    """Follow a local variable to what was assigned to it last before."""
    value = construction.value
    if not isinstance(value, ast.Name):
        return value
    found = [
        node.value
        for node in ast.walk(construction.source.node)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and node.lineno < value.lineno
        if any(isinstance(target, ast.Name) and target.id == value.id for target in _targets(node))
    ]
    return max(found, key=lambda one: one.lineno, default=value)


def _inside(construction: _LayerConstruction, item: _Item) -> ast.expr | None:
    """The expression of an item: the one of its name or number, else the only one that calls its class."""
    call = _resolved(construction)
    if called_name(call) not in (item.holder, CONSTRUCTOR):
        return None
    elements = _elements(construction.source, _contents(construction.source, call))
    named = [one.value for one in _present(elements, item.length) if one.name in (item.name, ANY)]
    if named:
        return named[0]
    alike = [one.value for one in elements if called_name(one.value) == item.class_name]
    return alike[0] if len(alike) == 1 else None


def _present(elements: Sequence[_Element], length: int) -> Sequence[_Element]:
    """The elements by the names that they have in a list so long: all, or those that no condition stands before."""
    for found in (elements, [one for one in elements if one.always]):
        if any(one.name == ANY for one in found) or len(found) == length:
            return [replace(one, name=one.name or str(number)) for number, one in enumerate(found)]
    return ()


def _contents(source: FunctionSource, call: ast.expr) -> ast.expr:
    """What a list-like layer is given: a list, or all its arguments as one."""
    arguments = call.args if isinstance(call, ast.Call) else []
    if len(arguments) == 1:
        only = arguments[0].value if isinstance(arguments[0], ast.Starred) else arguments[0]
        if isinstance(_resolved(_LayerConstruction(source, only)), LISTS) or called_name(only) == "OrderedDict":
            return only
    return ast.List(arguments)


def _elements(source: FunctionSource, value: ast.expr) -> list[_Element]:
    """The elements of a list or mapping, each with its name if it has one."""
    base = _resolved(_LayerConstruction(source, value))
    if called_name(base) == "OrderedDict" and isinstance(base, ast.Call) and base.args:
        return _elements(source, base.args[0])
    if isinstance(base, (ast.ListComp, ast.GeneratorExp)):
        return [_Element(ANY, base.elt)]
    if isinstance(base, ast.Dict):
        return [_Element(_name(key), one) for key, one in zip(base.keys, base.values, strict=True)]
    own = [_Element("", one) for one in base.elts] if isinstance(base, (ast.List, ast.Tuple)) else []
    listed = own + (_added(source, value) if isinstance(value, ast.Name) else [])
    return [_unpaired(one) for one in listed]


def _unpaired(element: _Element) -> _Element:
    """A pair of a name and a layer as the layer under its name."""
    pair = element.value.elts if isinstance(element.value, ast.Tuple) else []
    return replace(element, name=_name(pair[0]), value=pair[1]) if len(pair) == 2 and _name(pair[0]) else element


def _name(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _added(source: FunctionSource, variable: ast.Name) -> list[_Element]:
    """What is added to a local list before it is used, in the order of the lines."""
    start = _resolved(_LayerConstruction(source, variable)).lineno
    inner = {id(node) for block in ast.walk(source.node) if isinstance(block, BLOCKS) for node in ast.walk(block)}
    found = [
        _Element("", value, id(node) not in inner)
        for node in ast.walk(source.node)
        if start <= getattr(node, "lineno", 0) <= variable.lineno
        for value in _appended(node, variable.id)
    ]
    return sorted(found, key=lambda one: one.value.lineno)


def _appended(node: ast.AST, name: str) -> list[ast.expr]:
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
        return node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else []
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name) or function.value.id != name:
        return []
    arguments = node.args if isinstance(node, ast.Call) else []
    if function.attr == "extend" and arguments and isinstance(arguments[0], (ast.List, ast.Tuple)):
        return arguments[0].elts
    return arguments if function.attr == "append" else []


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function's tree; `own` is what it calls its first argument, `self` mostly."""

    file: str
    module: str
    node: FunctionNode

    @property
    def own(self) -> str:
        """The name of the first argument, "" if there is none."""
        first = (*self.node.args.posonlyargs, *self.node.args.args)
        return first[0].arg if first else ""


def methods_of(cls: type) -> Iterator[FunctionSource]:
    """The methods that a class defines itself and whose source can be read, in the order of the class."""
    for value in vars(cls).values():
        function = inspect.unwrap(value) if callable(value) else None
        source = function_source(function) if isinstance(function, FunctionType) else None
        if source is not None:
            yield source


def function_source(function: FunctionType) -> FunctionSource | None:
    """Return a function's tree, None where its source cannot be read."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    node = _functions(text).get((code.co_name, code.co_firstlineno))
    return None if node is None else FunctionSource(code.co_filename, function.__module__ or "", node)


def functions_of(file: str) -> tuple[FunctionNode, ...]:
    """All functions of a file; () where it cannot be read."""
    return tuple(_functions("".join(linecache.getlines(file))).values())


@lru_cache(maxsize=64)
def _functions(text: str) -> dict[tuple[str, int], FunctionNode]:
    """All functions of a file by name and first line, which is that of the first decorator."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {(node.name, min(one.lineno for one in (node, *node.decorator_list))): node for node in found}


def called_name(node: ast.AST | None) -> str:
    """The last part of the name that a call calls: `LayerNorm` of `nn.LayerNorm(8)`; "" for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def is_own(node: ast.AST, own: str, name: str) -> bool:
    """Tell whether a node is `self.name`."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return node.attr == name and node.value.id == own
