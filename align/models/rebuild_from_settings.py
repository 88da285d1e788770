"""How the user's code calls a live layer, and the layer built anew with settings that are tried until one is true.

Changing an attribute of a live layer often changes nothing, since what counts was made of it by the constructor. A
layer keeps an argument of that under its own name, in an operator that it built, or changed (as 1 - momentum), which
the rules of `mappings/pitfalls` know. So there are several proposals, and what comes of each is held against the live
layer. Only what a change makes different is brought into a copy of it, so that everything else stays its own, and only
where it has what the constructor made without the change: else it was not built so.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable
from weakref import ref

import numpy as np

from align.core.protocols import ModelRunner
from align.errors import UserCodeError
from align.models.function_source import called_name, function_source, is_own, methods_of, own_classes, shown, targets
from align.models.source_lines import climb
from align.models.thresholds import DEEPEST_ATTRIBUTE, DEEPEST_CALLS
from align.models.user_code import run_user_code
from align.rules.pitfalls import SAME, axes_of, pitfalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.protocols import LayerSettings, Model, Setting
    from align.models.function_source import FunctionSource

    Arguments = dict[str, Setting]
    Wanted = dict[str, inspect.Parameter]

OF_AXES = ("kernel_size", "stride", "dilation")
NOT_KEPT = ("_init", "dtype", "device")  # the live layer's values are kept, whatever they started from
VALID = {"pad_mode": "valid"}  # no padding, as which a padding of 0 counts too
OUTDATED = {"pad_mode": "padding"}  # a number that belongs to the other argument's value


@dataclass(frozen=True, slots=True)
class LayerBuilder:
    """How a framework builds layers of one class, and copies a live one.

    `fill` gives a built layer (first) the values that it shares with a live one. `kept_at` says, of arguments that no
    attribute of their name holds, where a layer of the class keeps them: `norm1.eps`, `weight.shape.1`.
    """

    cls: type
    build: Callable[..., Model]
    copy: Callable[[Model], Model]
    fill: Callable[[Model, Model], None]
    types: LayerTypes
    kept_at: Mapping[str, str]


def rebuild_layer(
    layer: Model, settings: LayerSettings, changes: Mapping[str, Setting], builder: LayerBuilder
) -> Model | None:
    """Return a copy of the layer with `changes`, None where no proposal builds what the live layer is.

    Parameters that it lacked without the changes start as the constructor makes them. Of a layer whose class is derived
    from the builder's, attributes are changed where it keeps such.
    """
    known = kept_arguments(layer, builder.kept_at)
    wanted = wanted_arguments(builder.cls)
    for before, after in proposed_arguments(settings, wanted, known, changes):
        with suppress(UserCodeError):  # a constructor that refuses what it is given
            code = partial(_changed, layer, before, after, builder)
            changed = run_user_code(code, partial(UserCodeError, f"building {builder.cls.__name__}"))
            if changed is not None:
                return changed
    own = type(layer) is not builder.cls and changes.keys() <= vars(layer).keys()
    return with_attributes(builder.copy(layer), changes) if own else None


def with_attributes(layer: Model, changes: Mapping[str, Setting]) -> Model:
    """Change attributes of a copy; whether that changes what it computes must show."""
    for name, value in changes.items():
        setattr(layer, name, value)
    return layer


def build_named(class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
    """Return a new layer of a public class, None where there is none or its constructor refuses the arguments."""
    module, _, name = class_name.rpartition(".")

    def build() -> Model:
        return getattr(importlib.import_module(module), name)(**arguments)

    with suppress(UserCodeError):
        return run_user_code(build, partial(UserCodeError, f"building {name}"))
    return None


def _changed(
    layer: Model, before: Mapping[str, Setting], after: Mapping[str, Setting], builder: LayerBuilder
) -> Model | None:
    built = BuiltLayers(*(builder.build(**arguments) for arguments in (before, before, after)))
    builder.fill(built.changed, layer)
    copied = builder.copy(layer)
    return copied if copy_changed_setting(copied, built, builder.types) else None


def kept_arguments(layer: Model, kept_at: Mapping[str, str]) -> Arguments:
    """Arguments of a live layer that its parts keep, by the places of these."""
    return {name: value for name, place in kept_at.items() if (value := _reach(layer, place)) is not None}


def _reach(value: Any, place: str) -> Any:
    """Follow attributes and, where the name is a number, items; None where one is missing."""
    for name in place.split("."):
        value = dict(enumerate(value or ())).get(int(name)) if name.isdigit() else getattr(value, name, None)
    return value


def wanted_arguments(cls: type) -> Wanted:
    """The arguments of a class's constructor by name; of one that hands all on, those of the base that takes them."""
    handed_on = False
    for base in cls.__mro__:
        if "__init__" in vars(base):
            taken = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            named = {one.name: one for one in taken if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
            if handed_on:
                named.pop("mode", None)  # which of its kinds a recurrent layer is, the class itself says
            if named or not taken:
                return named
            handed_on = True
    return {}


def proposed_arguments(
    layer: LayerSettings, wanted: Wanted, known: Mapping[str, Setting], changes: Mapping[str, Setting]
) -> Iterator[tuple[Arguments, Arguments]]:
    """Propose arguments that make the live layer, each beside those that make it with `changes`.

    `known` are arguments of which the framework knows where they are kept. Nothing is proposed where the class does
    not take a change, or needs an argument that the layer does not keep.
    """
    padding = _padding_beside(changes, layer)
    if padding is None or not changes.keys() <= wanted.keys():
        return
    kept, (read, translated) = _kept(layer), _read_by_rules(layer)
    tried: list[Arguments] = []
    for found in (_over(read, {**kept, **translated}), _over(read, kept), _over(kept, read)):
        given = {name: value for name, value in {**found, **known}.items() if name in wanted}
        fitting = {name: _as_flag(wanted[name], value) for name, value in given.items() if _fits(wanted[name], value)}
        complete = all(one.default is not one.empty or name in fitting for name, one in wanted.items())
        if complete and fitting not in tried:
            tried.append(fitting)
            yield fitting, {**_over(fitting, changes), **padding}


def _kept(layer: LayerSettings) -> Arguments:
    """The layer's attributes, before them those of its operators."""
    attributes = {name: value for name, value in layer.values.items() if "." not in name}
    of_operators: Arguments = {}
    for name, value in layer.values.items():
        if "." in name:
            of_operators.setdefault(name.rpartition(".")[2], value)
    found = {**of_operators, **attributes}
    return {name: _of_own_axes(value, layer) if name in OF_AXES else value for name, value in found.items()}


def _of_own_axes(value: Setting, layer: LayerSettings) -> Setting:
    """Leave out axes that a layer adds inside: mindspore.nn.Conv1d works on two."""
    axes = axes_of(layer.classes)
    if not axes or not isinstance(value, tuple) or len(value) <= axes:
        return value
    return value[-1] if axes == 1 else value[-axes:]


def _read_by_rules(layer: LayerSettings) -> tuple[Arguments, Arguments]:
    """What the rules read, and of that what the layer keeps in another form than it was given."""
    read: Arguments = {}
    translated: Arguments = {}
    for rule in pitfalls():
        form = rule.form_of(layer.classes)
        if form is not None and form.is_held(layer.values):
            found = form.arguments(form.given(layer.values, layer.classes))
            arguments = {name: value for name, value in found if (name, value) not in form.beside}
            if arguments == VALID and str(layer.values.get("pad_mode")).lower() == "pad":
                arguments = {"pad_mode": "pad", "padding": 0}
            read |= arguments
            translated |= arguments if form.writes_as is not None else {}
    return read, translated


def _padding_beside(changes: Mapping[str, Setting], layer: LayerSettings) -> Arguments | None:
    """The layer's padding in numbers, where a change asks for numbers and gives none; None where it has none."""
    if changes.get("pad_mode") != "pad" or "padding" in changes:
        return {}
    forms = [form for rule in pitfalls() if (form := rule.form_of(layer.classes)) and form.means == "padding"]
    numbers = dict(forms[0].arguments(forms[0].read(layer.values, layer.classes))) if forms else {}
    return None if numbers.get("pad_mode") == SAME else {"padding": numbers.get("padding", 0)}


def _over(first: Mapping[str, Setting], second: Mapping[str, Setting]) -> Arguments:
    """The first arguments with the second in their place."""
    outdated = {number for name, number in OUTDATED.items() if name in second}
    return {**{name: value for name, value in first.items() if name not in outdated}, **second}


def _fits(wanted: inspect.Parameter, value: Setting) -> bool:
    """A default need not be given, nor can a truth value that stands for a tensor, or a number in place of a name."""
    default = wanted.default
    if wanted.name.endswith(NOT_KEPT) or (value == default and type(value) is type(default)):
        return False
    is_tensor = value is True and not isinstance(default, (bool, type(None)))
    return not is_tensor and not (isinstance(default, str) and not isinstance(value, str))


def _as_flag(wanted: inspect.Parameter, value: Setting) -> Setting:
    """A tensor that is not there is a flag that was not given."""
    return False if value is None and isinstance(wanted.default, bool) else value


MISSING = object()
FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)


@dataclass(frozen=True, slots=True)
class LayerTypes:
    """The types of a framework that a layer holds. `equal` tells whether two tensors hold the same.

    `ignored` are attributes, also of what a layer holds, that are no settings: they say how or when it was built.
    """

    module: Any
    parameter: Any
    tensor: Any
    equal: Callable[[Any, Any], bool]
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BuiltLayers:
    """What the constructor made of the live layer's settings, twice, and of the changed ones."""

    plain: Any
    twin: Any
    changed: Any


def copy_changed_setting(live: Any, built: BuiltLayers, types: LayerTypes) -> bool:
    """Give `live` what the change made different; False, and nothing done, where it was not built as `plain` was.

    What differs between `plain` and `twin` too belongs to no setting: a time, a number.
    """
    edits: list[tuple[dict[str, Any], str, Any]] = []
    if not _collect((vars(live), vars(built.plain), vars(built.twin), vars(built.changed)), types, edits):
        return False
    for target, name, value in edits:
        if value is MISSING:
            del target[name]
        else:
            target[name] = value
    return True


def _collect(
    layers: tuple[dict[str, Any], ...], types: LayerTypes, edits: list[tuple[dict[str, Any], str, Any]]
) -> bool:
    target, plain, _, changed = layers
    for name in sorted((plain.keys() | changed.keys()) - types.ignored):
        mine, before, twin, after = (layer.get(name, MISSING) for layer in layers)
        inside = _inside((mine, before, twin, after), types)
        if inside is not None:
            if not _collect(inside, types, edits):
                return False
        elif not _alike(before, after, types) and _alike(before, twin, types):
            reshaped = isinstance(mine, types.parameter) and isinstance(after, types.parameter)
            if reshaped or not _alike(mine, before, types):
                return False
            edits.append((target, name, after))
    return True


def _inside(values: tuple[Any, ...], types: LayerTypes) -> tuple[dict[str, Any], ...] | None:
    """The attributes of four children of one type, or four mappings; None for anything else."""
    if all(isinstance(value, dict) for value in values):
        return values
    kinds = {type(value) for value in values[1:]}
    if len(kinds) == 1 and all(isinstance(value, types.module) for value in values):
        return tuple(vars(value) for value in values)
    return None


def _alike(first: Any, second: Any, types: LayerTypes, depth: int = DEEPEST_ATTRIBUTE) -> bool:
    """Tell whether two attributes were made of the same settings; a parameter's values are none."""
    if first is second or depth == 0:
        return True
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        return isinstance(first, bool) == isinstance(second, bool) and first == second
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(
            _alike(a, b, types, depth - 1) for a, b in zip(first, second, strict=True)
        )
    return type(first) is type(second) and _alike_of_one_type(first, second, types, depth)


def _alike_of_one_type(first: Any, second: Any, types: LayerTypes, depth: int) -> bool:
    if isinstance(first, types.parameter):
        return bool(first.shape == second.shape)
    if isinstance(first, (types.module, ref)):  # what is inside a module is looked at by itself
        return True
    if isinstance(first, FUNCTIONS):
        return bool(first.__qualname__ == second.__qualname__)
    if isinstance(first, (types.tensor, np.ndarray)):
        return types.equal(first, second) if isinstance(first, types.tensor) else np.array_equal(first, second)
    mine, theirs = (value if isinstance(value, dict) else getattr(value, "__dict__", None) for value in (first, second))
    if mine is None or theirs is None:
        return bool(first == second)
    names = mine.keys() - types.ignored
    same = names == theirs.keys() - types.ignored
    return same and all(_alike(mine[name], theirs[name], types, depth - 1) for name in names)


# How the user's code calls a layer of a live model: at which line, and on what it has padded by a function.
#
# A layer that is handed what was padded need not pad. Values are followed back from the call: through variables,
# methods of the model's own, functions of the same file, and what works on single elements (an activation, a cast). A
# layer that mixes elements ends the way: what was padded in front of another convolution is not padded for this one.


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
    by_name: dict[str, list[FunctionSource]] = {}
    for source in (source for cls in own_classes(layer) for source in methods_of(cls)):
        others = by_name.setdefault(source.node.name, [])
        if not others or any(called_name(node) == "super" for node in ast.walk(others[-1].node)):
            others.append(source)
    return [source for own in by_name.values() for source in own]


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
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    loops = (node for node in nodes if isinstance(node, ast.For))
    lines = {line for loop in loops for line in _loop_lines(loop, source, name)}
    return [call for call in calls if _calls_own(call, source, name)] or [one for one in calls if one.lineno in lines]


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
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) or node.value is None:
        return
    place = node.end_lineno or node.lineno, node.end_col_offset or 0
    value = ast.BinOp(node.target, node.op, node.value) if isinstance(node, ast.AugAssign) else node.value
    yield from ((target, value, place) for target in targets(node))


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
    read = (one for one in ast.walk(source.node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load))
    called = [call.lineno for call in _calls_of(source, name)]
    return min(called or [node.lineno for node in read if is_own(node, source.own, name)], default=0)


def _calls_own(call: ast.Call, source: FunctionSource, name: str) -> bool:
    """Tell whether a call calls `self.name`, or an item of it."""
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return is_own(function, source.own, name)


def _loop_lines(loop: ast.For, source: FunctionSource, name: str) -> list[int]:
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
