"""Nested values with the place of each, and the flat settings that they make.

A tree is a dict, a list, or a Leaf. Names of parts are joined by dots; a list of single values is one value, and the
places in other lists are numbers.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_format import Setting, SettingsSource
from align.hyperparameters.thresholds import (
    DEEPEST_SETTINGS,
    LONGEST_CHAIN_OF_REFERENCES,
    LONGEST_VALUE,
    MOST_BASES,
    MOST_SETTINGS,
)
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.hyperparameters.settings_format import Scalar, Value


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


# The files that a configuration is made from: each read once a way, and never in a circle.
#
# They are named relative to it, or stand in an installed package, which is found and not imported.

IN_PACKAGE = "::"
CONFIGS_OF_PACKAGE = (".mim", "configs")  # where mmengine's packages keep them
BASES = ("_base_", "__BASE__", "_BASE_")


class BaseFiles:
    """The files that are being read, outermost first, and how many were read in all."""

    def __init__(self, source: SettingsSource) -> None:
        self._open: list[Path] = [source.path.resolve()]
        self._read = 0

    def within(self, name: str, named_by: SettingsSource, read: Callable[[SettingsSource], Tree]) -> Tree:
        """Read a base that a file names; raises UnreadableSettingsError for one that is missing, or is being read."""
        path = _package_file(name, named_by) if IN_PACKAGE in name else named_by.path.parent / name
        self._read += 1
        if path.resolve() in self._open or self._read > MOST_BASES:
            raise UnreadableSettingsError(named_by.shown, say("settings_fault.circle", base=name))
        if not path.is_file():
            raise UnreadableSettingsError(
                named_by.shown, say("settings_fault.no_base", base=name), say("settings_fault.base_hint")
            )
        self._open.append(path.resolve())
        try:
            return read(SettingsSource(path))
        finally:
            self._open.pop()


def package_folder(package: str, base: str, named_by: SettingsSource) -> Path:
    """Where a package is installed; raises UnreadableSettingsError where it is not, `base` being what is looked for."""
    spec = find_spec(package) if package.isidentifier() and package != "__main__" else None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        fault = say("settings_fault.no_package", base=base, package=package)
        raise UnreadableSettingsError(named_by.shown, fault, say("settings_fault.package_hint", package=package))
    return Path(places[0])


def _package_file(name: str, named_by: SettingsSource) -> Path:
    """The file that `package::folder/config.py` stands for, with mmengine's rule; the ending may be left out."""
    package, _, inside = name.partition(IN_PACKAGE)
    path = package_folder(package, name, named_by).joinpath(*CONFIGS_OF_PACKAGE, inside)
    return path if path.suffix else path.with_suffix(".py")


# References in a configuration: `${optimizer.lr}` of OmegaConf stands for another value of the same tree.
#
# `???` says that a value is to be given later. What is computed, and what stands for a whole part, gives no value.

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
MISSING = "???"


def with_references(tree: Tree) -> Tree:
    """A tree in which references to single values are filled in; the input is not changed."""
    return _filled(tree, tree)


def _filled(tree: Tree, whole: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: _filled(one, whole) for name, one in tree.items()}
    if isinstance(tree, list):
        return [_filled(one, whole) for one in tree]
    if isinstance(tree, Leaf) and isinstance(tree.value, str) and ("${" in tree.value or tree.value == MISSING):
        return _leaf(tree, whole)
    return tree


def _leaf(leaf: Leaf, whole: Tree) -> Tree:
    found: Scalar = None if leaf.value == MISSING else leaf.value
    for _ in range(LONGEST_CHAIN_OF_REFERENCES):
        if not isinstance(found, str) or "${" not in found:
            break
        alone = _REFERENCE.fullmatch(found.strip())
        target = _at(whole, alone[1]) if alone else None
        if isinstance(target, list) and all(isinstance(one, Leaf) for one in target):
            return [replace(one, place=leaf.place) for one in target]
        found = _value(target) if alone else _REFERENCE.sub(lambda one: str(_text(whole, one)), found)
    return replace(leaf, value=None if isinstance(found, str) and "${" in found else found)


def _text(whole: Tree, reference: re.Match[str]) -> str:
    found = _at(whole, reference[1])
    return str(found.value) if isinstance(found, Leaf) else reference[0]


def _value(tree: Tree | None) -> Scalar:
    return tree.value if isinstance(tree, Leaf) else None


def _at(tree: Tree, path: str) -> Tree | None:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


# Values as programs print them, and the parts of a printed call such as `Namespace(lr=0.1, betas=(0.9, 0.999))`.

OPENING, CLOSING, QUOTES = "([{<", ")]}>", "'\""


def printed_value(text: str) -> Value:
    """What a text stands for: a number, a list, True, None, else the text without quotes.

    >>> printed_value("(0.9, 0.999)"), printed_value("cosine"), printed_value("1e-4")
    ((0.9, 0.999), 'cosine', 0.0001)
    """
    text = text.strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a text
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return short(_unwrapped(text))
    if isinstance(found, (list, tuple)) and all(isinstance(one, (str, int, float, bool, type(None))) for one in found):
        return tuple(found)
    return short(found) if isinstance(found, (str, int, float, bool, type(None))) else short(text)


def call_arguments(text: str, start: int) -> tuple[list[tuple[str, str, int]], int]:
    """The arguments `name=value` of a printed call, from behind its parenthesis: name, text and where each begins.

    Also where the call ends: behind its closing parenthesis, or at the end of a text that was cut off.
    """
    found, begin = [], start
    for place, mark in _top_level_marks(text, start):
        name, equals, value = text[begin:place].partition("=")
        if equals and name.strip().isidentifier():
            found.append((name.strip(), value.strip(), begin + len(name) - len(name.lstrip())))
        begin = place + 1
        if mark == ")":
            break
    return found, begin


def _top_level_marks(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The commas between arguments and the parenthesis that ends them; what stands in quotes or brackets is passed."""
    depth, quote, place = 0, "", start
    while place < len(text):
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING:
            depth += 1
        elif depth and letter in CLOSING:
            depth -= 1
        elif letter == ")" or (letter == "," and not depth):
            yield place, letter
        place += 1


def _unwrapped(text: str) -> str:
    """What stands in `<SchedulerType.COSINE: 'cosine'>` and `PosixPath('x')`; other texts as they are."""
    if text.startswith("<") and text.endswith(">") and ": " in text:
        return text[1:-1].rpartition(": ")[2].strip(QUOTES)
    if text.endswith(")") and text.partition("(")[0].isidentifier():
        inside = text.partition("(")[2][:-1].strip()
        return inside.strip(QUOTES) if inside[:1] in tuple(QUOTES) else text
    return text
