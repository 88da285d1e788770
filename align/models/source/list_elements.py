"""The expression that makes an item of a list of layers, followed through local variables.

A list is what a list-like layer is given, as one or as arguments, with all that is added to it before. Branches and
loops are read with it. An item is found if only one expression can have made it: all items have to be of the classes
that are called for them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.models.function_source import CONSTRUCTOR, FunctionSource, called_name, is_own, meant, own_function
from align.models.source.list_patterns import ListPattern, Part
from align.models.source.local_values import LOOPS, nodes_of, resolved, statements_before

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.models.source.list_patterns import Leaf

ADDING = ("append", "extend")
COPYING = ("OrderedDict", "list", "tuple")
LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Dict, ast.BinOp)
JUMPS = (ast.Continue, ast.Break, ast.Return, ast.Raise)
READING = frozenset({"copy", "count", "index"})  # methods that leave what was there


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
class Item:
    """A layer in a list: its name there and its class."""

    name: str
    kind: type


@dataclass(frozen=True, slots=True)
class ListStep:
    """A step down from a list-like layer: the item, the class of the list and all items that it has."""

    item: Item
    holder: str
    items: tuple[Item, ...]


def innermost(expression: Expression, steps: Sequence[ListStep]) -> tuple[ast.expr, int]:
    """What makes the item that the steps lead to, as near to it as can be found, and how many of the steps it took."""
    source, value, count = expression.source, expression.value, 0
    for step in steps:
        inner = _inside(source, value, step)
        if inner is None:
            break
        value, count = inner, count + 1
    return resolved(source.node, value), count


def _inside(source: FunctionSource, value: ast.expr, step: ListStep) -> ast.expr | None:
    """The expression of an item: the only one that can have made it."""
    call = resolved(source.node, value)
    if called_name(call) not in (step.holder, CONSTRUCTOR) or step.item not in step.items:
        return None
    listed = _Listed(source)
    whole = listed.contents(call)
    if listed.is_unknown:
        return None
    items = [one for one in step.items if one.name.isdigit() == step.item.name.isdigit()]
    fitting = [listed.fitting(one) for one in items]
    ways = listed.pattern.leaves_of(whole, fitting)[items.index(step.item)]
    return listed.pattern.leaves[next(iter(ways))].value if len(ways) == 1 else None


def may_make(source: FunctionSource, value: ast.expr, kind: type) -> bool:
    """Tell whether an expression may give an object of a class: not a constant, nor a call of another class."""
    call = resolved(source.node, value)
    if not isinstance(call, ast.Call):
        return not isinstance(call, ast.Constant)
    called = meant(source, call.func)
    return called is kind if isinstance(called, type) else True


class _Listed:
    """What a function puts into a list; `is_unknown` where that cannot be read."""

    def __init__(self, source: FunctionSource) -> None:
        self.source, self.pattern, self.is_unknown = source, ListPattern(), False

    def contents(self, call: ast.expr) -> Part:
        """What a list-like layer is given: a list, or all its arguments as one."""
        arguments = call.args if isinstance(call, ast.Call) else []
        if len(arguments) == 1:
            only = arguments[0].value if isinstance(arguments[0], ast.Starred) else arguments[0]
            if isinstance(resolved(self.source.node, only), LISTS) or called_name(only) == "OrderedDict":
                return self._list(only)
        return self._list(ast.List(arguments))

    def fitting(self, item: Item) -> frozenset[int]:
        """The leaves that may make an item, by its name and its class."""
        return frozenset(number for number, one in enumerate(self.pattern.leaves) if self._fits(one, item))

    def _fits(self, leaf: Leaf, item: Item) -> bool:
        fits = leaf.value is None or may_make(self.source, leaf.value, item.kind)
        return fits and leaf.name in ("", item.name)

    def _list(self, value: ast.expr) -> Part:
        """The items of an expression that gives a list or a mapping."""
        if isinstance(value, ast.Name):
            return self._variable(value)
        if isinstance(value, (ast.List, ast.Tuple)):
            return self.pattern.joined(map(self._item, value.elts))
        if isinstance(value, ast.Dict):
            return self.pattern.joined(map(self._named, value.keys, value.values))
        if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            return self.pattern.repeated(self._item(value.elt))
        return self._computed(value)

    def _computed(self, value: ast.expr) -> Part:
        if isinstance(value, ast.Call) and called_name(value) in COPYING and value.args:
            return self._list(value.args[0])
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            return self.pattern.joined([self._list(value.left), self._list(value.right)])
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            return self.pattern.repeated(self._list(value.left))
        return self._anything()

    def _anything(self) -> Part:
        return self.pattern.repeated(self.pattern.leaf(None))

    def _item(self, value: ast.expr) -> Part:
        """An element: an item, a pair of its name and it, or all of another list."""
        if isinstance(value, ast.Starred):
            return self._list(value.value)
        if isinstance(value, ast.Tuple) and len(value.elts) == 2:
            return self._named(*value.elts)
        return self.pattern.leaf(value)

    def _named(self, key: ast.expr | None, value: ast.expr) -> Part:
        if key is None:  # {**others}
            return self._list(value)
        is_text = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return self.pattern.leaf(value, key.value if is_text else "")  # type: ignore[attr-defined]

    def _variable(self, variable: ast.Name) -> Part:
        """What a local list is made as, with all that is added to it up to its use."""
        found = statements_before(self.source.node, variable)
        if found is None:
            return self._anything()
        made, *added = found
        only = isinstance(made, ast.AnnAssign) or (isinstance(made, ast.Assign) and len(made.targets) == 1)
        start = self._list(made.value) if only and made.value is not None else self._anything()  # type: ignore[attr-defined]
        return self.pattern.joined([start, self._block(added, variable.id)])

    def _block(self, statements: Sequence[ast.stmt], name: str) -> Part:
        """What statements add to a list; behind one that may leave the block, perhaps nothing."""
        whole = Part()
        for statement in reversed(statements):
            leaves = any(isinstance(one, JUMPS) for one in nodes_of(statement))
            whole = self.pattern.joined(
                [self._statement(statement, name), self.pattern.either(whole) if leaves else whole]
            )
        return whole

    def _statement(self, statement: ast.stmt, name: str) -> Part:
        if isinstance(statement, ast.If):
            return self.pattern.either(self._block(statement.body, name), self._block(statement.orelse, name))
        if isinstance(statement, LOOPS):
            return self.pattern.repeated(self._block(statement.body, name))
        if isinstance(statement, ast.With):
            return self._block(statement.body, name)
        if isinstance(statement, ast.AugAssign) and _is_variable(statement.target, name):
            return self._list(statement.value)
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and _adds(call, name):
            return self._item(call.args[0]) if called_name(call) == "append" else self._list(call.args[0])
        self.is_unknown |= any(self._changes(one, name) for one in nodes_of(statement))
        return Part()

    def _changes(self, node: ast.AST, name: str) -> bool:
        """Tell whether a node may change a list in another way."""
        if isinstance(node, ast.Name):
            return node.id == name and not isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Subscript):
            return _is_variable(node.value, name) and not isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Attribute):
            return _is_variable(node.value, name) and node.attr not in READING
        if not isinstance(node, ast.Call) or not any(_is_variable(one, name) for one in node.args):
            return False
        return self._is_method(node) or own_function(meant(self.source, node.func)) is not None

    def _is_method(self, call: ast.Call) -> bool:
        return is_own(call.func, self.source.own, called_name(call))


def _adds(call: ast.Call, name: str) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ADDING or len(call.args) != 1:
        return False
    return _is_variable(function.value, name)


def _is_variable(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
