"""A live layer built anew with other settings: proposals of how it was built, tried until one is the truth.

Changing an attribute of a live layer often changes nothing, since what counts was made of it by the constructor. A
layer keeps an argument of that under its own name, in an operator that it built, or changed (as 1 - momentum), which
the rules of `mappings/pitfalls` know. So there are several proposals, and what comes of each is held against the live
layer. Only what a change makes different is brought into a copy of it, so that everything else stays its own, and only
where it has what the constructor made without the change: else it was not built so.
"""

from __future__ import annotations

import importlib
import inspect
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from align.errors import UserCodeError
from align.models.thresholds import DEEPEST_ATTRIBUTE
from align.models.user_code import run_user_code
from align.rules.pitfalls import SAME, axes_of, pitfalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.protocols import LayerSettings, Model, Setting

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


def _alike(one: Any, other: Any, types: LayerTypes, depth: int = DEEPEST_ATTRIBUTE) -> bool:
    """Tell whether two attributes were made of the same settings; a parameter's values are none."""
    if one is other or depth == 0:
        return True
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return isinstance(one, bool) == isinstance(other, bool) and one == other
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_alike(a, b, types, depth - 1) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and _alike_of_one_type(one, other, types, depth)


def _alike_of_one_type(one: Any, other: Any, types: LayerTypes, depth: int) -> bool:
    if isinstance(one, types.parameter):
        return bool(one.shape == other.shape)
    if isinstance(one, (types.module, ref)):  # what is inside a module is looked at by itself
        return True
    if isinstance(one, FUNCTIONS):
        return bool(one.__qualname__ == other.__qualname__)
    if isinstance(one, (types.tensor, np.ndarray)):
        return types.equal(one, other) if isinstance(one, types.tensor) else np.array_equal(one, other)
    mine, theirs = (value if isinstance(value, dict) else getattr(value, "__dict__", None) for value in (one, other))
    if mine is None or theirs is None:
        return bool(one == other)
    names = mine.keys() - types.ignored
    same = names == theirs.keys() - types.ignored
    return same and all(_alike(mine[name], theirs[name], types, depth - 1) for name in names)
