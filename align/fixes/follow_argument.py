"""Where the value of a constructor's argument comes from: each place that it is handed through, up to where it is made.

A name is followed to the variable, the default of a parameter, the call that gives the parameter, an attribute of the
object, or the constant of the module. What is computed on the way is not followed further.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from align.core.align_sequences import grouped
from align.models.function_source import (
    CONSTRUCTOR,
    FunctionSource,
    called_name,
    function_source,
    is_own,
    methods_of,
    own_classes,
)
from align.models.source_lines import Construction, construction_of, may_call_class_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.models.source_lines import Place

DEEPEST_HAND: Final = 12
"""A value that is handed on more often is not followed: two names that stand for each other would have no end.
Measured: in the models of mindcv and mindone an activation or a norm goes through five hands at most."""


@dataclass(frozen=True, slots=True)
class Site:
    """An expression in a file that gives a value."""

    file: str
    node: ast.expr

    @property
    def key(self) -> Place:
        """What tells it from all others: trees are read anew, so nodes do not."""
        return self.file, self.node.lineno, self.node.col_offset

    @property
    def is_literal(self) -> bool:
        """Tell whether the value itself stands here."""
        try:
            ast.literal_eval(self.node)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class LayerCall(Construction):
    """A call that makes a layer."""

    node: ast.Call


class CallsOfLayers:
    """The calls that make the layers of a live model, and the places that their arguments come from."""

    def __init__(self, layers: Mapping[str, Any]) -> None:
        self._layers = layers
        self._made: dict[str, LayerCall | None] = {}
        self._places: dict[Place, set[str]] | None = None

    def construction(self, path: str) -> LayerCall | None:
        """The call that makes a layer, with the class's own arguments; None where none is found."""
        if path not in self._made:
            found = construction_of(self._layers[""], path) if path else None
            self._made[path] = _as_call(found) if found else None
        return self._made[path]

    def super_call(self, path: str) -> LayerCall | None:
        """The call of the base's constructor in a class of the user's own that a framework's is the base of."""
        for cls in own_classes(self._layers[path]):
            for source in methods_of(cls):
                if source.node.name == CONSTRUCTOR and (node := base_call(source)) is not None:
                    return LayerCall(source, node, path)
        return None

    def made_at(self, key: Place) -> set[str]:
        """All layers whose calls, or what these are given, stand at a place."""
        if self._places is None:
            self._places = {}
            holders = {path.rpartition(".")[0] for path in self._layers if path}  # they hand on what they are given
            for path in self._layers.keys() - holders:
                for place in self._all_places(path):
                    self._places.setdefault(place, set()).add(path)
        return self._places.get(key, set())

    def _all_places(self, path: str) -> Iterator[Place]:
        for construction in (self.construction(path), self.super_call(path)):
            if construction is None:
                continue
            yield Site(construction.source.file, construction.node).key
            for value in (
                construction.node.func,
                *construction.node.args,
                *(one.value for one in construction.node.keywords),
            ):
                yield from (one.key for one in self.places(construction, value))

    def places(self, construction: Construction, value: ast.expr) -> list[Site]:
        """The places that a value is handed through, from the call up."""
        sites = [Site(construction.source.file, value)]
        for _ in range(DEEPEST_HAND):
            step = self._before(construction, value)
            if step is None:
                return sites
            construction, value = step
            sites.append(Site(construction.source.file, value))
        return sites

    def _before(self, construction: Construction, value: ast.expr) -> tuple[Construction, ast.expr] | None:
        """The expression that a name stands for, with the method that it is in."""
        if (
            isinstance(value, ast.Attribute)
            and construction.bound
            and is_own(value, construction.source.own, value.attr)
        ):
            return self._attribute(construction, value.attr)
        if not isinstance(value, ast.Name):
            return None
        assigned = _assigned(construction.source.node, value.id)
        parameters = [one.arg for one in _parameters(construction.source.node)]
        if value.id in parameters:
            return None if assigned else self._parameter(construction, value.id)
        if assigned:
            return (construction, assigned[0]) if len(assigned) == 1 else None
        constant = _module_values("".join(linecache.getlines(construction.source.file))).get(value.id, [])
        return (construction, constant[0]) if len(constant) == 1 else None

    def _attribute(self, construction: Construction, name: str) -> tuple[Construction, ast.expr] | None:
        kept = [
            (Construction(source, value, construction.owner), value)
            for cls in own_classes(self._layers[construction.owner])
            for source in methods_of(cls)
            for value in _kept_as(source, name)
        ]
        return kept[0] if len(kept) == 1 else None

    def _parameter(self, construction: Construction, name: str) -> tuple[Construction, ast.expr] | None:
        """What the caller gives a parameter of a constructor, or of a function that it calls, else its default."""
        if construction.caller is not None:
            caller, is_known = _as_call(construction.caller), True
        elif construction.source.node.name == CONSTRUCTOR:
            caller, is_known = self._caller(construction)
        else:
            return None
        if caller is not None:
            if is_open(caller.node):
                return None
            given = arguments_of(
                caller.node, [one.arg for one in _parameters(construction.source.node)][construction.bound :]
            )
            if name in given:
                return caller, given[name]
        default = _defaults(construction.source.node).get(name)
        return (construction, default) if is_known and default is not None else None

    def _caller(self, construction: Construction) -> tuple[LayerCall | None, bool]:
        """The call of a constructor, and whether it is known what it is given; nobody in the model calls its own."""
        kind = type(self._layers[construction.owner])
        run = function_source(kind.__init__) if isinstance(kind.__init__, FunctionType) else None
        if run is not None and _place(run) != _place(construction.source):  # a derived class hands on
            node = base_call(run)
            return (LayerCall(run, node, construction.owner), True) if node is not None else (None, False)
        if not construction.owner:
            return None, True
        caller = self.construction(construction.owner)
        if caller is None or not self.is_of_class(construction.owner, caller):
            return None, False
        return caller, True

    def is_of_class(self, path: str, made: Construction) -> bool:
        """Tell whether a call gives its arguments to the class of the layer that it makes."""
        return may_call_class_of(made, self._layers[path], self._layers[made.owner])


def _as_call(made: Construction) -> LayerCall | None:
    return (
        LayerCall(made.source, made.node, made.owner, made.caller, made.bound)
        if isinstance(made.node, ast.Call)
        else None
    )


def base_call(source: FunctionSource) -> ast.Call | None:
    """The only call of the base's constructor in a method."""
    found = [one for one in ast.walk(source.node) if isinstance(one, ast.Call) and called_name(one) == CONSTRUCTOR]
    return found[0] if len(found) == 1 else None


def is_open(call: ast.Call) -> bool:
    """Tell whether a call is handed arguments that do not stand in it."""
    return any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)


def arguments_of(call: ast.Call, parameters: list[str]) -> dict[str, ast.expr]:
    """The expressions that a call gives to parameters, by their names."""
    placed = dict(zip(parameters, call.args, strict=False))
    return placed | {one.arg: one.value for one in call.keywords if one.arg is not None}


def _place(source: FunctionSource) -> tuple[str, int]:
    return source.file, source.node.lineno


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    placed = [*function.args.posonlyargs, *function.args.args]
    by_place = zip(placed[len(placed) - len(function.args.defaults) :], function.args.defaults, strict=True)
    by_name = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {one.arg: value for one, value in (*by_place, *by_name) if value is not None}


def _assigned(body: ast.AST, name: str) -> list[ast.expr]:
    """What is assigned to a variable in a body; two where another statement stores it, for then nobody knows."""
    stores = sum(isinstance(one, ast.Name) and one.id == name and is_stored(one) for one in ast.walk(body))
    plain = [value for target, value in _assignments(body) if isinstance(target, ast.Name) and target.id == name]
    return plain if len(plain) == stores else [ast.Constant(None)] * 2


def is_stored(node: ast.Name) -> bool:
    """Tell whether a name is assigned to."""
    return isinstance(node.ctx, ast.Store)


def _kept_as(source: FunctionSource, name: str) -> list[ast.expr]:
    return [value for target, value in _assignments(source.node) if is_own(target, source.own, name)]


def _assignments(body: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value


@lru_cache(maxsize=64)
def _module_values(text: str) -> Mapping[str, list[ast.expr]]:
    statements = (one for one in ast.parse(text).body if isinstance(one, (ast.Assign, ast.AnnAssign)))
    assigned = (both for one in statements for both in _assignments(one))
    return grouped((target.id, value) for target, value in assigned if isinstance(target, ast.Name))
