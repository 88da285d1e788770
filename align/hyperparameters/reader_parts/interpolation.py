"""References in a configuration: `${optimizer.lr}` of OmegaConf stands for another value of the same tree.

`???` says that a value is to be given later. What is computed, and what stands for a whole part, gives no value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from align.hyperparameters.reader_parts.nested_settings import Leaf, Tree
from align.hyperparameters.thresholds import LONGEST_CHAIN_OF_REFERENCES

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Scalar

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
