"""The expression that makes an item of a list of layers, followed through local variables.

A list is what a list-like layer is given, as one or as arguments, with all that is added to it before.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from align.models.function_source import FunctionSource, called_name

if TYPE_CHECKING:
    from collections.abc import Sequence

LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Dict)
BLOCKS = (ast.For, ast.While, ast.If)
ANY = "*"
CONSTRUCTOR = "__init__"


@dataclass(frozen=True, slots=True)
class Expression:
    """What makes a layer, or what holds it, and the function that it stands in."""

    source: FunctionSource
    value: ast.expr

    @property
    def hands_on(self) -> bool:
        """True where the expression hands the layers to the constructor of the base of the class that holds them."""
        return called_name(self.value) == CONSTRUCTOR


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a list: its name ("" for its number, ANY for every one), and whether it is there always."""

    name: str
    value: ast.expr
    always: bool = True


@dataclass(frozen=True, slots=True)
class ListStep:
    """A step down from a list-like layer: the item's name there and its class, the class of the list and its length."""

    name: str
    class_name: str
    holder: str
    length: int


def innermost(expression: Expression, steps: Sequence[ListStep]) -> tuple[ast.expr, int]:
    """What makes the item that the steps lead to, as near to it as can be found, and how many of the steps it took."""
    value, count = expression.value, 0
    for step in steps:
        inner = _inside(Expression(expression.source, value), step)
        if inner is None:
            break
        value, count = inner, count + 1
    return resolved(Expression(expression.source, value)), count


def resolved(expression: Expression) -> ast.expr:
    """Follow a local variable to what was assigned to it last before."""
    value = expression.value
    if not isinstance(value, ast.Name):
        return value
    found = [
        node.value
        for node in ast.walk(expression.source.node)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and node.lineno < value.lineno
        if any(isinstance(target, ast.Name) and target.id == value.id for target in targets(node))
    ]
    return max(found, key=lambda one: one.lineno, default=value)


def _inside(expression: Expression, step: ListStep) -> ast.expr | None:
    """The expression of an item: the one of its name or number, else the only one that calls its class."""
    call = resolved(expression)
    if called_name(call) not in (step.holder, CONSTRUCTOR):
        return None
    elements = _elements(expression.source, _contents(expression.source, call))
    named = [one.value for one in _present(elements, step.length) if one.name in (step.name, ANY)]
    if named:
        return named[0]
    alike = [one.value for one in elements if called_name(one.value) == step.class_name]
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
        if isinstance(resolved(Expression(source, only)), LISTS) or called_name(only) == "OrderedDict":
            return only
    return ast.List(arguments)


def _elements(source: FunctionSource, value: ast.expr) -> list[_Element]:
    """The elements of a list or mapping, each with its name if it has one."""
    base = resolved(Expression(source, value))
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
    start = resolved(Expression(source, variable)).lineno
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


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """What a statement assigns to."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]
