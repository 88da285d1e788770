"""A changed setting brought into a copy of a live layer, from two layers that the class's constructor built.

Only what the change makes different is taken over, so that everything else stays the live layer's own: its values, a
subclass's methods, what was set after it was built. And only where the live layer has what the constructor made
without the change: else it was not built so, and nobody knows what the change would have done to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from align.models.thresholds import DEEPEST_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable

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
