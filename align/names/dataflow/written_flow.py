"""Which layers and lone parameters of a model feed which, read from the code of its classes: nothing is run.

The code of a user's `forward` or `construct` is followed with the live model at hand: modules, lists, numbers and
settings are what they are, tensors are known by the layers that they come from. A branch that a tensor decides is
followed both ways. What is not understood passes on what goes into it. A function of a framework is never called.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from align.names.dataflow.seen_rows import (
    FRAMEWORKS,
    NOTHING,
    NUMBERS,
    Tensor,
    is_axis,
    merged,
    moved,
    plain_attribute,
    reshaped,
    tensor,
    tensors,
)
from align.names.thresholds import DEEPEST_WRITTEN_CALLS, MOST_WRITTEN_CALLS, MOST_WRITTEN_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.protocols import Model

_CHAINS = ("Sequential", "SequentialCell")
_LISTS = ("ModuleList", "CellList", "ParameterList", "ModuleDict", "CellDict", "ParameterDict")
# What joins tensors and multiplies none: a parameter in it is beside the others.
_JOINING = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "where", "select", "add", "sub", "masked_fill"}
# What carries no features on: sizes, comparisons, and what is made like another tensor.
_BARE = {
    "shape", "dtype", "device", "ndim", "size", "dim", "numel", "new_zeros", "new_ones", "zeros_like", "ones_like",
    "arange", "eq", "ne", "ge", "gt", "le", "lt", "equal", "not_equal", "greater", "less", "argmax", "argmin", "item",
    "greater_equal", "less_equal", "logical_not", "logical_and", "logical_or", "one_hot",
}  # fmt: skip
_SPLITTING = {"split", "chunk", "unbind", "tensor_split"}
_SAFE = (
    len,
    range,
    enumerate,
    zip,
    reversed,
    list,
    tuple,
    dict,
    int,
    float,
    min,
    max,
    isinstance,
    abs,
    round,
    bool,
    sum,
)
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_OF_LISTS = {"append", "insert", "extend", "pop", "reverse", "copy"}


@dataclass(slots=True)
class WrittenFlow:
    """Nodes (paths of layers, and of parameters that a user's class keeps) with those that their outputs go into.

    Inputs are `in 0` and so on, outputs `out 0`. `cuts` holds the names of the variables that the whole features of a
    node are divided among, in order; a node whose output is divided in two ways has none.
    """

    feeds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    cuts: dict[str, tuple[str, ...]] = field(default_factory=dict)


def read_written_flow(model: Model) -> WrittenFlow | None:
    """Follow the code of a model of torch or MindSpore; None for one whose code cannot be read or is too long."""
    if not _is_module(model):
        return None
    reading = _Reading(model)
    forward = _forward(model)
    if forward is None or not _is_own(type(model)):
        return None
    try:
        given = [Tensor(frozenset({f"in {place}"})) for place, _ in enumerate(_inputs(forward))]
        returned = reading.call(forward, [model, *given], {})
    except (_TooMuchError, RecursionError):
        return None
    outputs = returned if isinstance(returned, (list, tuple)) else [returned]
    for place, one in enumerate(outputs):
        for node in tensor(one).nodes:
            reading.flow.feeds[node].add(f"out {place}")
    return reading.flow


class _TooMuchError(Exception):
    """A model has more calls than are followed."""


@dataclass(slots=True)
class _Frame:
    names: dict[str, Any]
    function: Any
    returned: list[Any] = field(default_factory=list)


def _is_module(value: object) -> bool:
    return hasattr(value, "_modules") or hasattr(value, "_cells")


def _children(module: Any) -> dict[str, Any]:
    held = vars(module).get("_modules") or vars(module).get("_cells") or {}
    return {name: child for name, child in held.items() if child is not None}


def _parameters(module: Any) -> dict[str, Any]:
    """A module's own parameters and buffers by attribute."""
    parameters: dict[str, Any] = {}
    for store in ("_parameters", "_buffers", "_params"):
        held = vars(module).get(store)
        parameters |= {name: one for name, one in held.items() if one is not None} if held else {}
    return parameters


def _is_own(thing: Any) -> bool:
    """Tell whether a class or function is the user's, not of a framework."""
    home = f"{getattr(thing, '__module__', None) or 'torch'}."
    return not home.startswith((*FRAMEWORKS, "numpy.", "builtins.", "math.", "functools.", "itertools."))


def _forward(module: Any) -> Any:
    return getattr(type(module), "construct" if hasattr(module, "_cells") else "forward", None)


def _inputs(forward: Any) -> list[str]:
    code = forward.__code__
    return list(code.co_varnames[1 : code.co_argcount])


@lru_cache(maxsize=1 << 10)
def _tree(code: Any) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return None
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)


def _is_known(value: Any) -> bool:
    return not isinstance(value, Tensor)


class _Reading:
    """The code that is followed, and what it has shown so far."""

    def __init__(self, model: Model) -> None:
        self.flow = WrittenFlow()
        self._paths: dict[int, str] = {}
        self._first: dict[int, str] = {}  # the node of each tensor, of one that is tied the first
        self._ndims: dict[str, tuple[int, ...]] = {}
        self._calls = self._depth = 0
        waiting = [("", model)]
        while waiting:
            path, module = waiting.pop(0)
            self._paths.setdefault(id(module), path)
            for name, one in _parameters(module).items():
                self._ndims[_below(path, name)] = tuple(one.shape)
                self._first.setdefault(id(one), path if not _is_own(type(module)) else _below(path, name))
            waiting += [(_below(path, name), child) for name, child in _children(module).items()]

    # Calls

    def call(self, function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What the code of a function returns; all that goes in if it cannot be read."""
        self._calls += 1
        if self._calls > MOST_WRITTEN_CALLS:
            raise _TooMuchError
        function = inspect.unwrap(function)
        tree = _tree(function.__code__) if isinstance(function, FunctionType) else None
        if tree is None or self._depth > DEEPEST_WRITTEN_CALLS:
            return self._passed([*given, *named.values()])
        frame = _Frame(_bound(function, tree, given, named), function)
        self._depth += 1
        self._block(tree.body, frame)
        self._depth -= 1
        return merged(frame.returned) if frame.returned else None

    def _module(self, module: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        path = self._paths.get(id(module))
        forward = _forward(module)
        if path is None:
            return self._passed([*given, *named.values()])
        if _is_own(type(module)) and forward is not None:
            return self.call(forward, [module, *given], named)
        children = _children(module)
        if type(module).__name__ in _CHAINS and len(given) == 1:
            value = given[0]
            for child in children.values():
                value = self._module(child, [value], {})
            return value
        nodes = [self._first.get(id(_parameters(module).get("weight")), path)] if _parameters(module) else []
        nodes += [_below(path, name) for name, child in children.items() if _parameters(child)]
        value = self._passed([*given, *named.values()])
        for node in nodes:
            value = self._fed(node, value.nodes)
        if len(nodes) == 1:
            weight = self._ndims.get(_below(path, "weight"), ())
            value = replace(value, whole=(path, -1, weight[0])) if len(weight) == 2 else value
        return value

    def _fed(self, node: str, sources: Iterable[str]) -> Tensor:
        for source in sources:
            if source != node:
                self.flow.feeds[source].add(node)
        return Tensor(frozenset({node}))

    def _passed(self, values: Iterable[Any]) -> Tensor:
        return Tensor(frozenset().union(*(one.nodes for one in tensors(values))))

    def _computed(self, values: Sequence[Any]) -> Tensor:
        """What an operator makes of tensors: a parameter among others is a node that the others go into."""
        every = list(tensors(values))
        parameters = [operand for operand in every if operand.is_parameter]
        others = [operand for operand in every if not operand.is_parameter]
        if not parameters:
            return self._passed(every)
        if not any(operand.nodes for operand in others):
            return replace(self._passed(parameters), is_parameter=len(parameters) == 1)
        first = max(parameters, key=lambda operand: len(self._ndims.get(min(operand.nodes, default=""), ())))
        node = min(first.nodes)
        tensor = self._fed(node, self._passed(others).nodes)
        shape = self._ndims.get(node, ())
        beside = self._passed(operand for operand in parameters if operand is not first)
        whole = (node, -1, shape[-2]) if len(shape) > 1 else None
        return Tensor(tensor.nodes | beside.nodes, whole=whole)

    # Statements: what they return is "" or the word that ends the block

    def _block(self, body: Sequence[ast.stmt], frame: _Frame) -> str:
        for statement in body:
            if ended := self._statement(statement, frame):
                return ended
        return ""

    def _statement(self, node: ast.stmt, frame: _Frame) -> str:  # noqa: C901, PLR0911, PLR0912 - one line a kind of statement
        match node:
            case ast.Return():
                frame.returned.append(self._value(node.value, frame) if node.value else None)
                return "return"
            case ast.Break():
                return "break"
            case ast.Continue():
                return "continue"
            case ast.Raise():
                return "return"
            case ast.Assign():
                value = self._value(node.value, frame)
                for target in node.targets:
                    self._assign(target, value, frame)
                    self._note_cut(target, node.value, value, frame)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, self._value(node.value, frame), frame)
            case ast.AugAssign():
                load = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
                self._assign(node.target, self._value(load, frame), frame)
            case ast.Expr():
                self._value(node.value, frame)
            case ast.If():
                return self._branch(node, frame)
            case ast.For():
                return self._loop(node, frame)
            case ast.While():
                for _ in range(2):
                    self._block(node.body, frame)
            case ast.With():
                return self._block(node.body, frame)
            case ast.Try():
                return self._block(node.body, frame)
        return ""

    def _branch(self, node: ast.If, frame: _Frame) -> str:
        test = self._value(node.test, frame)
        if _is_known(test):
            return self._block(node.body if test else node.orelse, frame)
        before = dict(frame.names)
        ended = self._block(node.body, frame)
        after, frame.names = frame.names, before
        other = self._block(node.orelse, frame)
        if ended:
            return other
        if not other:
            names = {**after, **frame.names}
            frame.names = {name: merged([x[name] for x in (after, frame.names) if name in x]) for name in names}
        else:
            frame.names = after
        return ""

    def _loop(self, node: ast.For, frame: _Frame) -> str:
        items = self._items(self._value(node.iter, frame))
        for item in items[:MOST_WRITTEN_ROUNDS]:
            self._assign(node.target, item, frame)
            if (ended := self._block(node.body, frame)) in ("return", "break"):
                return ended if ended == "return" else ""
        return ""

    def _items(self, value: Any) -> list[Any]:
        """The items of what is gone through; a tensor's are itself, twice, so that what is carried over is seen."""
        if _is_module(value):
            return list(_children(value).values()) or [self._attribute(value, name) for name in _parameters(value)]
        if isinstance(value, (list, tuple, range, dict)):
            return list(value)
        return [tensor(value)] * 2

    def _assign(self, target: ast.expr, value: Any, frame: _Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            count = len(target.elts)
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            fits = isinstance(value, (list, tuple)) and len(value) == count and not starred
            for element, item in zip(
                target.elts, value if fits else [replace(tensor(value), whole=None)] * count, strict=True
            ):
                self._assign(element.value if isinstance(element, ast.Starred) else element, item, frame)
        elif isinstance(target, ast.Subscript):
            container, index = self._value(target.value, frame), self._value(target.slice, frame)
            in_list = (
                isinstance(container, list) and isinstance(index, int) and -len(container) <= index < len(container)
            )
            if in_list or (isinstance(container, dict) and isinstance(index, (str, int))):
                container[index] = value
            elif isinstance(target.value, ast.Name) and isinstance(container, Tensor):
                frame.names[target.value.id] = self._passed([container, value])

    def _note_cut(self, target: ast.expr, written: ast.expr, value: Any, frame: _Frame) -> None:
        """Keep what the features of a node are divided among: by their first axis, so that pieces follow each other."""
        if not isinstance(target, ast.Tuple) or not all(isinstance(element, ast.Name) for element in target.elts):
            return
        cut: Tensor | None = None
        if isinstance(written, ast.Call) and _called(written) in _SPLITTING:
            whole, axis = self._split_of(written, frame)
            if whole is not None and whole.whole and axis is not None and is_axis(whole, axis):
                cut = whole
        elif isinstance(value, Tensor) and value.whole and value.ndim and value.whole[1] == -value.ndim:
            cut = value
        if cut is not None and cut.whole:
            names = tuple(element.id for element in target.elts if isinstance(element, ast.Name))
            node = cut.whole[0]
            self.flow.cuts[node] = names if self.flow.cuts.get(node, names) == names else ()

    def _split_of(self, call: ast.Call, frame: _Frame) -> tuple[Tensor | None, int | None]:
        """The tensor that a call divides, and along which axis."""
        given = [self._value(one, frame) for one in call.args]
        named = {one.arg: self._value(one.value, frame) for one in call.keywords}
        func = call.func
        if isinstance(func, ast.Attribute) and isinstance(held := self._value(func.value, frame), Tensor):
            given = [held, *given]
        if not given or not isinstance(given[0], Tensor):
            return None, None
        place = 1 if _called(call) == "unbind" else 2
        axis = named.get("dim", named.get("axis", given[place] if len(given) > place else 0))
        return given[0], axis if isinstance(axis, int) else None

    # Expressions

    def _value(self, node: ast.expr, frame: _Frame) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line a kind of expression
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return _looked_up(node.id, frame)
            case ast.Attribute():
                return self._attribute(self._value(node.value, frame), node.attr)
            case ast.Call():
                return self._call(node, frame)
            case ast.BinOp():
                return self._binary(node, frame)
            case ast.Tuple() | ast.List():
                return self._listed(node.elts, frame)
            case ast.Dict():
                keys = [self._value(key, frame) if key else None for key in node.keys]
                return {
                    key: self._value(element, frame)
                    for key, element in zip(keys, node.values, strict=True)
                    if _hashed(key)
                }
            case ast.Subscript():
                return self._item(self._value(node.value, frame), node.slice, frame)
            case ast.IfExp():
                test = self._value(node.test, frame)
                if _is_known(test):
                    return self._value(node.body if test else node.orelse, frame)
                return merged([self._value(node.body, frame), self._value(node.orelse, frame)])
            case ast.ListComp() | ast.GeneratorExp():
                return self._gone_through(node.elt, node.generators, replace(frame, names=dict(frame.names)))
            case ast.Compare():
                return self._compared(node, frame)
            case ast.BoolOp():
                values = [self._value(element, frame) for element in node.values]
                if not all(map(_is_known, values)):
                    return NOTHING
                return all(values) if isinstance(node.op, ast.And) else any(values)
            case ast.UnaryOp():
                value = self._value(node.operand, frame)
                if isinstance(node.op, ast.Not):
                    return not value if _is_known(value) else NOTHING
                return -value if isinstance(value, (int, float)) and isinstance(node.op, ast.USub) else value
            case ast.NamedExpr():
                value = self._value(node.value, frame)
                self._assign(node.target, value, frame)
                return value
            case ast.Lambda():
                return replace(frame, names=dict(frame.names), function=(frame.function, node))
            case ast.Starred():
                return self._value(node.value, frame)
        return NOTHING

    def _listed(self, nodes: Sequence[ast.expr], frame: _Frame) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            value = self._value(node, frame)
            values += self._items(value) if isinstance(node, ast.Starred) and _is_known(value) else [value]
        return values

    def _gone_through(self, element: ast.expr, loops: Sequence[ast.comprehension], frame: _Frame) -> list[Any]:
        if not loops:
            return [self._value(element, frame)]
        elements: list[Any] = []
        for item in self._items(self._value(loops[0].iter, frame))[:MOST_WRITTEN_ROUNDS]:
            self._assign(loops[0].target, item, frame)
            tests = [self._value(one, frame) for one in loops[0].ifs]
            if all(not _is_known(test) or test for test in tests):
                elements += self._gone_through(element, loops[1:], frame)
        return elements

    def _compared(self, node: ast.Compare, frame: _Frame) -> Any:
        left, right = self._value(node.left, frame), self._value(node.comparators[0], frame)
        comparison = _COMPARED.get(type(node.ops[0]))
        plain = isinstance(left, NUMBERS) and isinstance(right, (*NUMBERS, list, tuple, dict))
        nothing = isinstance(node.ops[0], (ast.Is, ast.IsNot))
        if len(node.ops) > 1 or comparison is None or not (plain or nothing):
            return NOTHING
        try:
            return comparison(left, right)
        except TypeError:
            return NOTHING

    def _binary(self, node: ast.BinOp, frame: _Frame) -> Any:
        left, right = self._value(node.left, frame), self._value(node.right, frame)
        if isinstance(left, (*NUMBERS, list)) and isinstance(right, (*NUMBERS, list)) and type(node.op) in _BINARY:
            try:
                return _BINARY[type(node.op)](left, right)
            except (TypeError, ArithmeticError, ValueError):
                return NOTHING
        return self._passed([left, right]) if isinstance(node.op, (ast.Add, ast.Sub)) else self._computed([left, right])

    def _attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Tensor):
            if name == "shape":
                return Tensor(is_size=True)
            return NOTHING if name in _BARE else replace(owner, whole=None)
        if _is_module(owner):
            if name in _parameters(owner):
                path = self._first.get(id(_parameters(owner)[name]), _below(self._paths.get(id(owner), ""), name))
                return Tensor(frozenset({path}), is_parameter=True)
            if name in (children := _children(owner)):
                return children[name]
        value = plain_attribute(owner, name)
        return NOTHING if type(value).__name__ in ("Tensor", "Parameter", "ndarray", "StubTensor") else value

    def _item(self, owner: Any, index: ast.expr, frame: _Frame) -> Any:  # noqa: PLR0911 - one line a kind of what is held
        if isinstance(owner, Tensor):
            place = self._value(index, frame)
            if owner.is_parameter and (used := self._passed([place])).nodes:
                return self._fed(min(owner.nodes, default=""), used.nodes)
            return replace(owner, whole=None, ndim=None)
        if isinstance(index, ast.Slice):
            ends = [self._value(one, frame) if one else None for one in (index.lower, index.upper, index.step)]
            whole = self._items(owner)
            fits = all(one is None or isinstance(one, int) for one in ends)
            return whole[slice(*ends)] if fits and _is_known(owner) else [*whole]
        place = self._value(index, frame)
        if _is_module(owner):
            if isinstance(place, int) and str(place) not in _children(owner):
                items = self._items(owner)
                return items[place] if -len(items) <= place < len(items) else NOTHING
            return self._attribute(owner, str(place)) if isinstance(place, (int, str)) else merged(self._items(owner))
        try:
            return owner[place] if _is_known(place) else merged(self._items(owner))
        except (TypeError, KeyError, IndexError):
            return NOTHING

    def _call(self, node: ast.Call, frame: _Frame) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line a kind of what is called
        given = self._listed(node.args, frame)
        named = {item.arg or "**": self._value(item.value, frame) for item in node.keywords}
        name = _called(node)
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value, frame)
            if isinstance(owner, Tensor):
                return self._method(node.func, owner, [*given, *named.values()], frame)
            if isinstance(owner, list) and name in _OF_LISTS:
                return getattr(owner, name)(*given) if owner or name != "pop" else NOTHING
            if isinstance(owner, dict) or (_is_module(owner) and type(owner).__name__ in _LISTS):
                pairs = owner if isinstance(owner, dict) else _children(owner)
                if name in ("items", "keys", "values"):
                    return [list(item) if name == "items" else item for item in getattr(pairs, name)()]
            function = self._attribute(owner, name)
            if _is_module(owner) and isinstance(function, MethodType) and function.__self__ is owner:
                own = function.__func__
                return (
                    self.call(own, [owner, *given], named)
                    if _is_own(own)
                    else self._computed([*given, *named.values()])
                )
        else:
            function = self._value(node.func, frame)
        values = [*given, *named.values()]
        if isinstance(function, _Frame):
            return self._lambda(function, given)
        if _is_module(function):
            return self._module(function, given, named)
        if isinstance(function, MethodType) and _is_own(function.__func__):
            return self.call(function.__func__, [function.__self__, *given], named)
        if isinstance(function, FunctionType) and _is_own(function):
            return self.call(function, given, named)
        if any(function is item for item in _SAFE):
            return self._plain(function, given, named)
        if name in _BARE:
            return NOTHING
        if name in _SPLITTING or name in _JOINING:
            return self._passed(values)
        made = self._shaped(name, given) if given and isinstance(given[0], Tensor) else None
        return made if made is not None else self._computed(values)

    def _lambda(self, held: _Frame, given: Sequence[Any]) -> Any:
        function, node = held.function
        names = {one.arg: value for one, value in zip(node.args.args, given, strict=False)}
        return self._value(node.body, _Frame({**held.names, **names}, function))

    def _plain(self, function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        listed = [self._items(argument) if _is_module(argument) else argument for argument in given]
        if function in (enumerate, zip, reversed, list, tuple):
            listed = [self._items(argument) if isinstance(argument, Tensor) else argument for argument in listed]
        elif not all(map(_is_known, listed)):
            return NOTHING if function is not sum else self._passed(listed)
        if function is sum and any(isinstance(argument, Tensor) for argument in _flat(listed)):
            return self._passed(listed)
        try:
            outcome = function(*listed, **named)
            outcome = (
                list(outcome) if function in (enumerate, zip, reversed) else outcome
            )  # a strict zip fails only here
        except (TypeError, ValueError):
            return self._passed(given)
        return [list(argument) for argument in outcome] if function in (enumerate, zip) else outcome

    def _method(self, func: ast.Attribute, owner: Tensor, given: Sequence[Any], frame: _Frame) -> Any:
        """What a method of a tensor returns; one that changes the tensor changes it under its name, too."""
        if func.attr in _BARE:
            return Tensor(is_size=func.attr == "size")
        outcome = self._shaped(func.attr, [owner, *given])
        if outcome is None:
            joins = func.attr in _JOINING or func.attr in _SPLITTING
            outcome = self._passed([owner, *given]) if joins else self._computed([owner, *given])
        if func.attr.endswith("_") and isinstance(func.value, ast.Name):
            frame.names[func.value.id] = outcome
        return outcome

    def _shaped(self, name: str, given: Sequence[Any]) -> Tensor | None:
        """A tensor with other axes, which still holds the features whole; None for all other operators."""
        tensor: Tensor = given[0]
        sizes = list(given[1:])
        if len(sizes) == 1 and isinstance(sizes[0], list):
            sizes = sizes[0]
        if name in ("reshape", "view") and sizes:
            return replace(tensor, whole=reshaped(tensor.whole, sizes), ndim=len(sizes))
        if name in ("transpose", "permute", "swapaxes") and sizes and all(isinstance(one, int) for one in sizes):
            return replace(tensor, whole=moved(tensor, sizes))
        return replace(tensor) if name in ("contiguous", "float", "to", "astype") else None


def _bound(function: Any, tree: ast.FunctionDef, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function by name; one that is not given is its default."""
    arguments = tree.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    defaults = function.__defaults__ or ()
    bound: dict[str, Any] = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    bound |= function.__kwdefaults__ or {}
    bound |= dict(zip(names, given, strict=False))
    bound |= {name: value for name, value in named.items() if name != "**"}
    if arguments.vararg:
        bound[arguments.vararg.arg] = list(given[len(names) :])
    if arguments.kwarg:
        known = {*names, *(argument.arg for argument in arguments.kwonlyargs)}
        bound[arguments.kwarg.arg] = {name: value for name, value in named.items() if name not in known}
    return bound


def _looked_up(name: str, frame: _Frame) -> Any:
    if name in frame.names:
        return frame.names[name]
    function = frame.function
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    if name in free:
        try:
            return free[name].cell_contents
        except ValueError:
            return NOTHING
    return function.__globals__.get(name, getattr(builtins, name, NOTHING))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _hashed(value: Any) -> bool:
    return isinstance(value, (str, int, float, type(None)))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
