"""Nested values with the place of each, and the flat settings that they make.

A tree is a dict, a list, or a Leaf. Names of parts are joined by dots; a list of single values is one value, and the
places in other lists are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_format import Setting
from align.hyperparameters.thresholds import DEEPEST_SETTINGS, LONGEST_VALUE, MOST_SETTINGS
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.hyperparameters.settings_format import Scalar

DELETE = "_delete_"
Tree = Any


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value and its place; `option`, `computed` and `also` as of a Setting."""

    value: Scalar
    place: str
    option: bool = False
    computed: bool = False
    also: tuple[str, ...] = ()


def flat_settings(tree: Tree, shown: str) -> list[Setting]:
    """All settings of a tree; raises UnreadableSettingsError if it is deeper or larger than any configuration."""
    found: list[Setting] = []
    for setting in _walk(tree, (), shown):
        found.append(setting)
        if len(found) > MOST_SETTINGS:
            raise UnreadableSettingsError(shown, say("settings_fault.too_many", most=MOST_SETTINGS))
    return found


def merged(base: Tree, over: Tree) -> Tree:
    """A configuration over another one: dicts are merged key by key, all else replaces; inputs are not changed."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    if isinstance(flag := over.get(DELETE), Leaf) and flag.value:
        return {name: value for name, value in over.items() if name != DELETE}
    return base | {name: merged(base[name], value) if name in base else value for name, value in over.items()}


def placed(tree: Tree, path: Sequence[str], value: Tree) -> Tree:
    """A tree with a value at a path, in place of what stood there; the input is not changed."""
    if not path:
        return value
    inside = tree.get(path[0], {}) if isinstance(tree, dict) else {}
    return {**(tree if isinstance(tree, dict) else {}), path[0]: placed(inside, path[1:], value)}


def short(value: Scalar) -> Scalar:
    """A value as it is kept: of a long text the beginning."""
    return value[:LONGEST_VALUE] if isinstance(value, str) else value


def _walk(tree: Tree, path: tuple[str, ...], shown: str) -> Iterator[Setting]:
    if len(path) > DEEPEST_SETTINGS:
        raise UnreadableSettingsError(shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS))
    if isinstance(tree, Leaf):
        yield Setting(".".join(path), short(tree.value), tree.place, tree.option, tree.computed, tree.also)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from _walk(value, (*path, str(name)), shown)
    elif all(isinstance(one, Leaf) for one in tree):
        yield from _single_values(tree, path)
    else:
        for index, value in enumerate(tree):
            yield from _walk(value, (*path, str(index)), shown)


def _single_values(leaves: list[Leaf], path: tuple[str, ...]) -> Iterator[Setting]:
    if leaves:
        yield Setting(".".join(path), tuple(short(one.value) for one in leaves), leaves[0].place)
