"""The line of the user's code that makes a layer of a live model.

A method makes a layer by a statement that keeps it under a name, or by an item of a list. Where it calls a function of
the user's own for it, what that returns is followed. The frameworks' own classes are nobody's to change: what they make
inside belongs to the line that makes them. Where several statements may have made a layer, the one that calls its class
with its sizes is taken, else the first.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial, reduce
from inspect import getattr_static
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.models.function_source import (
    CONSTRUCTOR,
    DEFINITIONS,
    LOOPS,
    FunctionSource,
    called_name,
    function_source,
    functions_of,
    is_own,
    meant,
    methods_of,
    nodes_of,
    own_classes,
    own_function,
    resolved,
    returned_values,
    shown,
    statements_before,
    storing_nodes,
    targets,
)
from align.models.thresholds import DEEPEST_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


Place = tuple[str, int, int]  # a file, a line and a column
CHILDREN = ("_modules", "_cells")  # where torch and MindSpore keep the layers of a list, by their names
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
    """The expression that makes a layer, the function that it stands in, and the path of the object that runs it.

    `caller` is the call of that function, where it is not the object's constructor; it is `bound` if its first
    argument is the object.
    """

    source: FunctionSource
    node: ast.expr
    owner: str
    caller: Construction | None = None
    bound: bool = True

    @property
    def place(self) -> Place:
        """File, line and column, which tell it from all others."""
        return self.source.file, self.node.lineno, self.node.col_offset


def construction_of(owner: object, path: str) -> Construction | None:
    """Find the expression that makes the layer at `path` of a live model, or what holds it; None if there is none."""
    for names, chain in climb(owner, path):
        maker = ".".join(path.split(".")[: -len(names)])
        constructions = [
            _followed(Construction(place.source, place.value, maker), names, chain)
            for place in _fitting(chain[0], names[0], type(chain[1]).__name__)
        ]
        if constructions:
            agreeing = (one for place in constructions for one in place if agrees_with(one.node, chain[-1]))
            return next(agreeing, constructions[0][-1])
    return None


def _followed(construction: Construction, names: Sequence[str], chain: Sequence[object]) -> list[Construction]:
    """What makes a layer, from inside the functions that are called for it, the innermost first."""
    constructions, owner = [], chain[0]
    hands_on = called_name(construction.node) == CONSTRUCTOR  # to the constructor of its base, which keeps them
    names, chain = (names, chain) if hands_on else (names[1:], chain[1:])
    for _ in range(DEEPEST_CALLS):
        steps = list(_steps(names, chain))
        node, count = innermost(Expression(construction.source, construction.node), steps)
        construction, names, chain = replace(construction, node=node), names[count:], chain[count:]
        constructions.append(construction)
        inner = _returned(construction, owner, type(chain[0]))
        if inner is None:
            break
        construction = inner
    return constructions[::-1]


def _steps(names: Sequence[str], chain: Sequence[object]) -> Iterator[ListStep]:
    for name, holder, one in zip(names, chain[:-1], chain[1:], strict=True):
        items = tuple(Item(key, type(layer)) for key, layer in children_of(holder).items())
        yield ListStep(Item(name, type(one)), type(holder).__name__, items)


def _returned(construction: Construction, owner: object, kind: type) -> Construction | None:
    """What a function of the user's own returns that is called: the only thing that may be of a class."""
    function = called_function(construction, owner)
    source = function_source(function) if function is not None else None
    if source is None:
        return None
    only = [one for one in returned_values(source.node) if may_make(source, one, kind)]
    bound = _is_method(construction) and not isinstance(
        getattr_static(type(owner), source.node.name, None), staticmethod
    )
    is_one = len(only) == 1 and not isinstance(only[0], ast.Tuple)  # which holds several layers
    return Construction(source, only[0], construction.owner, construction, bound) if is_one else None


def _is_method(made: Construction) -> bool:
    """Tell whether a method of the object that runs it is called."""
    call = made.node
    return isinstance(call, ast.Call) and made.bound and is_own(call.func, made.source.own, called_name(call))


def called_function(construction: Construction, owner: object) -> FunctionType | None:
    """The user's own function that an expression calls: of its module, of one that it imports, or the owner's.

    None for a decorated one: what it returns is the decorator's to say.
    """
    if not isinstance(construction.node, ast.Call):
        return None
    called = (
        getattr(type(owner), called_name(construction.node), None)
        if _is_method(construction)
        else meant(construction.source, construction.node.func)
    )
    return own_function(called) if not hasattr(called, "__wrapped__") else None


def may_call_class_of(construction: Construction, layer: object, owner: object) -> bool:
    """Tell whether a call is one of a layer's class: by its name, or by one that may stand for it.

    A function, a method and a list that holds the layer take other arguments than the class does.
    """
    if not isinstance(construction.node, ast.Call):
        return False
    function, kind = construction.node.func, type(layer)
    called = meant(construction.source, function)
    if called is not None:
        return (called.func if isinstance(called, partial) else called) is kind
    if called_name(construction.node) == kind.__name__:
        return True
    if isinstance(function, ast.Name):  # a class that is handed down
        nested = (one.name for one in nodes_of(construction.source.node) if isinstance(one, DEFINITIONS))
        return function.id not in nested and not isinstance(resolved(construction.source.node, function), ast.Lambda)
    # A class that the object keeps.
    return _is_method(construction) and not hasattr(type(owner), called_name(construction.node))


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


def climb(owner: object, path: str) -> Iterator[tuple[list[str], list[object]]]:
    """Yield from the layer's parent up the names that lead from each owner to the layer, the owner and what follows."""
    names = path.split(".") if path else []
    chain: list[Any] = [owner]
    for name in names:
        if (child := getattr(chain[-1], name, None)) is None:
            return
        chain.append(child)
    for depth in range(len(names) - 1, -1, -1):
        yield names[depth:], chain[depth:]


def _fitting(parent: object, name: str, class_name: str) -> list[Expression]:
    """The places where an object's own classes make what it keeps under a name, those that call its class first."""
    classes = own_classes(parent)
    for cls in classes:
        found = [construction for source in methods_of(cls) for construction in _layer_constructions(source, name)]
        fitting = [construction for construction in found if not construction.hands_on or cls is classes[-1]]
        if fitting:
            return sorted(fitting, key=lambda one: called_name(one.value) != class_name)
    return []


def _layer_constructions(source: FunctionSource, name: str) -> Iterator[Expression]:
    """What a method keeps as `self.name`; for a number also what it hands to the constructor of the class's base."""
    for node in storing_nodes(source.node):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            if any(is_own(one, source.own, name) for target in targets(node) for one in ast.walk(target)):
                yield Expression(source, node.value)
        elif isinstance(node, ast.Call) and called_name(node) in REGISTERING and _registers(node, name):
            yield Expression(source, node.args[-1])
        elif name.isdigit() and _is_base_constructor(node):
            yield Expression(source, node)  # type: ignore[arg-type]


def _registers(call: ast.Call, name: str) -> bool:
    return any(_is_text(argument, name) for argument in call.args[:-1])


def _is_text(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == name
    if isinstance(node, ast.JoinedStr):
        parts = (re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".+" for one in node.values)
        return re.fullmatch("".join(parts), name) is not None
    return False


def _is_base_constructor(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr == CONSTRUCTOR


def layer_at(model: object, path: str) -> Any:
    """The live layer at a path."""
    return reduce(getattr, path.split(".") if path else [], model)


def children_of(holder: object) -> dict[str, Any]:
    """The layers that one holds, by name, in their order; this is what the framework itself keeps."""
    found: dict[str, Any] = next((vars(holder)[one] for one in CHILDREN if one in vars(holder)), {})
    return found


# The expression that makes an item of a list of layers, followed through local variables.
#
# A list is what a list-like layer is given, as one or as arguments, with all that is added to it before. Branches and
# loops are read with it. An item is found if only one expression can have made it: all items have to be of the
# classes that are called for them.

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


# Which expression of a list's source makes which of its items.
#
# Source says which expressions may follow each other: one behind the other, either of two, any number of times. So it
# is an expression as regular ones are, and the items are its text. The states are its leaves (Glushkov, The abstract
# theory of automata, 1961): a leaf makes an item if a way leads to it over the items before, and on over those
# behind.


@dataclass(frozen=True, slots=True)
class Leaf:
    """An expression that makes items: their name there, "" where it gives none; `value` None for what nobody knows."""

    name: str
    value: ast.expr | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a list's source by the numbers of leaves that may make its first and its last item."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    may_be_empty: bool = True


class ListPattern:
    """The leaves of a list's source, and which may follow which."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self._follow: defaultdict[int, set[int]] = defaultdict(set)

    def leaf(self, value: ast.expr | None, name: str = "") -> Part:
        """One item."""
        number = frozenset({len(self.leaves)})
        self.leaves.append(Leaf(name, value))
        return Part(number, number, may_be_empty=False)

    def joined(self, parts: Iterable[Part]) -> Part:
        """One part behind the other."""
        return reduce(self._behind, parts, Part())

    def _behind(self, part: Part, other: Part) -> Part:
        for number in part.last:
            self._follow[number] |= other.first
        first = part.first | other.first if part.may_be_empty else part.first
        last = part.last | other.last if other.may_be_empty else other.last
        return Part(first, last, part.may_be_empty and other.may_be_empty)

    def repeated(self, part: Part) -> Part:
        """A part any number of times."""
        for number in part.last:
            self._follow[number] |= part.first
        return Part(part.first, part.last)

    @staticmethod
    def either(one: Part, other: Part = Part()) -> Part:
        """One of two parts, or one or none."""
        return Part(one.first | other.first, one.last | other.last, one.may_be_empty or other.may_be_empty)

    def leaves_of(self, whole: Part, fitting: Sequence[frozenset[int]]) -> list[frozenset[int]]:
        """The leaves that may make each item, of those that fit it; none for all where no way leads over all."""
        ways = [fitting[0] & whole.first] if fitting else []
        for own in fitting[1:]:
            ways.append(own.intersection(*[set[int]().union(*(self._follow[leaf] for leaf in ways[-1]))]))
        reached = whole.last
        for number in range(len(ways) - 1, -1, -1):
            ways[number] &= reached
            before = ways[number]
            reached = frozenset(leaf for leaf in range(len(self.leaves)) if self._follow[leaf] & before)
        return ways
