"""Where a method makes a layer: the statement that keeps it under a name, and inside a list the item that it is."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.models.live.source_code import called_name, is_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.models.live.source_code import FunctionSource

LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Dict)
BLOCKS = (ast.For, ast.While, ast.If)
ANY = "*"
CONSTRUCTOR = "__init__"
REGISTERING = ("add_module", "register_module", "insert_child_to_cell", "setattr")


@dataclass(frozen=True, slots=True)
class LayerConstruction:
    """A place that makes a layer, or what holds it: the expression, and the function that it stands in."""

    source: FunctionSource
    value: ast.expr

    @property
    def hands_on(self) -> bool:
        """True where the expression hands the layers to the constructor of the base of the class that holds them."""
        return called_name(self.value) == CONSTRUCTOR


def layer_constructions(source: FunctionSource, name: str) -> Iterator[LayerConstruction]:
    """What a method keeps as `self.name`; for a number also what it hands to the constructor of the class's base."""
    for node in ast.walk(source.node):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            if any(is_own(one, source.own, name) for target in _targets(node) for one in ast.walk(target)):
                yield LayerConstruction(source, node.value)
        elif isinstance(node, ast.Call) and called_name(node) in REGISTERING and _registers(node, name):
            yield LayerConstruction(source, node.args[-1])
        elif name.isdigit() and _is_base_constructor(node):
            yield LayerConstruction(source, node)  # type: ignore[arg-type]


def returned(source: FunctionSource) -> Iterator[LayerConstruction]:
    """What a function returns."""
    for node in ast.walk(source.node):
        if isinstance(node, ast.Return) and node.value is not None:
            yield LayerConstruction(source, node.value)


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a list: its name ("" for its number, ANY for every one), and whether it is there always."""

    name: str
    value: ast.expr
    always: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """A step down from a list-like layer: the item's name there and its class, the class of the list and its length."""

    name: str
    class_name: str
    holder: str
    length: int


def construction_line(construction: LayerConstruction, items: Sequence[Item]) -> int:
    """The line that makes what the items lead to, as near to it as can be told."""
    value = construction.value
    for item in items:
        inner = _inside(LayerConstruction(construction.source, value), item)
        if inner is None:
            break
        value = inner
    return _resolved(LayerConstruction(construction.source, value)).lineno


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


def _resolved(construction: LayerConstruction) -> ast.expr:
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


def _inside(construction: LayerConstruction, item: Item) -> ast.expr | None:
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


def _present(elements: Sequence[Element], length: int) -> Sequence[Element]:
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
        if isinstance(_resolved(LayerConstruction(source, only)), LISTS) or called_name(only) == "OrderedDict":
            return only
    return ast.List(arguments)


def _elements(source: FunctionSource, value: ast.expr) -> list[Element]:
    """The elements of a list or mapping, each with its name if it has one."""
    base = _resolved(LayerConstruction(source, value))
    if called_name(base) == "OrderedDict" and isinstance(base, ast.Call) and base.args:
        return _elements(source, base.args[0])
    if isinstance(base, (ast.ListComp, ast.GeneratorExp)):
        return [Element(ANY, base.elt)]
    if isinstance(base, ast.Dict):
        return [Element(_name(key), one) for key, one in zip(base.keys, base.values, strict=True)]
    own = [Element("", one) for one in base.elts] if isinstance(base, (ast.List, ast.Tuple)) else []
    listed = own + (_added(source, value) if isinstance(value, ast.Name) else [])
    return [_unpaired(one) for one in listed]


def _unpaired(element: Element) -> Element:
    """A pair of a name and a layer as the layer under its name."""
    pair = element.value.elts if isinstance(element.value, ast.Tuple) else []
    return replace(element, name=_name(pair[0]), value=pair[1]) if len(pair) == 2 and _name(pair[0]) else element


def _name(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _added(source: FunctionSource, variable: ast.Name) -> list[Element]:
    """What is added to a local list before it is used, in the order of the lines."""
    start = _resolved(LayerConstruction(source, variable)).lineno
    inner = {id(node) for block in ast.walk(source.node) if isinstance(block, BLOCKS) for node in ast.walk(block)}
    found = [
        Element("", value, id(node) not in inner)
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
