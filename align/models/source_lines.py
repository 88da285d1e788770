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
from dataclasses import dataclass, replace
from functools import partial, reduce
from inspect import getattr_static
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.models.function_source import (
    CONSTRUCTOR,
    DEFINITIONS,
    FunctionSource,
    called_name,
    function_source,
    functions_of,
    is_own,
    meant,
    methods_of,
    own_classes,
    own_function,
    shown,
)
from align.models.source.list_elements import Expression, Item, ListStep, innermost, may_make
from align.models.source.local_values import nodes_of, resolved, returned_values, storing_nodes, targets
from align.models.thresholds import DEEPEST_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
        found = [
            _followed(Construction(place.source, place.value, maker), names, chain)
            for place in _fitting(chain[0], names[0], type(chain[1]).__name__)
        ]
        if found:
            agreeing = (one for place in found for one in place if agrees_with(one.node, chain[-1]))
            return next(agreeing, found[0][-1])
    return None


def _followed(made: Construction, names: Sequence[str], chain: Sequence[object]) -> list[Construction]:
    """What makes a layer, from inside the functions that are called for it, the innermost first."""
    found, owner = [], chain[0]
    hands_on = called_name(made.node) == CONSTRUCTOR  # to the constructor of its base, which keeps them
    names, chain = (names, chain) if hands_on else (names[1:], chain[1:])
    for _ in range(DEEPEST_CALLS):
        steps = list(_steps(names, chain))
        node, count = innermost(Expression(made.source, made.node), steps)
        made, names, chain = replace(made, node=node), names[count:], chain[count:]
        found.append(made)
        inner = _returned(made, owner, type(chain[0]))
        if inner is None:
            break
        made = inner
    return found[::-1]


def _steps(names: Sequence[str], chain: Sequence[object]) -> Iterator[ListStep]:
    for name, holder, one in zip(names, chain[:-1], chain[1:], strict=True):
        items = tuple(Item(key, type(layer)) for key, layer in children_of(holder).items())
        yield ListStep(Item(name, type(one)), type(holder).__name__, items)


def _returned(made: Construction, owner: object, kind: type) -> Construction | None:
    """What a function of the user's own returns that is called: the only thing that may be of a class."""
    function = called_function(made, owner)
    source = function_source(function) if function is not None else None
    if source is None:
        return None
    only = [one for one in returned_values(source.node) if may_make(source, one, kind)]
    bound = _is_method(made) and not isinstance(getattr_static(type(owner), source.node.name, None), staticmethod)
    is_one = len(only) == 1 and not isinstance(only[0], ast.Tuple)  # which holds several layers
    return Construction(source, only[0], made.owner, made, bound) if is_one else None


def _is_method(made: Construction) -> bool:
    """Tell whether a method of the object that runs it is called."""
    call = made.node
    return isinstance(call, ast.Call) and made.bound and is_own(call.func, made.source.own, called_name(call))


def called_function(made: Construction, owner: object) -> FunctionType | None:
    """The user's own function that an expression calls: of its module, of one that it imports, or the owner's.

    None for a decorated one: what it returns is the decorator's to say.
    """
    if not isinstance(made.node, ast.Call):
        return None
    called = (
        getattr(type(owner), called_name(made.node), None) if _is_method(made) else meant(made.source, made.node.func)
    )
    return own_function(called) if not hasattr(called, "__wrapped__") else None


def may_call_class_of(made: Construction, layer: object, owner: object) -> bool:
    """Tell whether a call is one of a layer's class: by its name, or by one that may stand for it.

    A function, a method and a list that holds the layer take other arguments than the class does.
    """
    if not isinstance(made.node, ast.Call):
        return False
    function, kind = made.node.func, type(layer)
    called = meant(made.source, function)
    if called is not None:
        return (called.func if isinstance(called, partial) else called) is kind
    if called_name(made.node) == kind.__name__:
        return True
    if isinstance(function, ast.Name):  # a class that is handed down
        nested = (one.name for one in nodes_of(made.source.node) if isinstance(one, DEFINITIONS))
        return function.id not in nested and not isinstance(resolved(made.source.node, function), ast.Lambda)
    return _is_method(made) and not hasattr(type(owner), called_name(made.node))  # a class that the object keeps


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
    """From the layer's parent up: the names that lead from each owner to the layer, and the owner and what is there."""
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


def layer_at(model: object, path: str) -> Any:
    """The live layer at a path."""
    return reduce(getattr, path.split(".") if path else [], model)


def children_of(holder: object) -> dict[str, Any]:
    """The layers that one holds, by name, in their order; this is what the framework itself keeps."""
    found: dict[str, Any] = next((vars(holder)[one] for one in CHILDREN if one in vars(holder)), {})
    return found
