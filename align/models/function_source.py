"""The source of live functions as syntax trees, and the user's own classes.

A function is found by its file and first line, not by its name: so classes made in functions, defined twice or in a
notebook are found too. What was built in C or by `exec` has no source.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMEWORKS = ("torch", "mindspore")
NOT_OWN = (*FRAMEWORKS, "align", "builtins", "pybind11_builtins")  # a base of every cell of MindSpore is of the last
INSTALLED = ("site-packages", "dist-packages")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def own_classes(layer: object) -> list[type]:
    """The layer's classes that are no framework's, most derived first."""
    return [cls for cls in type(layer).__mro__ if cls.__module__.partition(".")[0] not in NOT_OWN]


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A function's tree; `own` is what it calls its first argument, `self` mostly."""

    file: str
    module: str
    node: FunctionNode

    @property
    def own(self) -> str:
        """The name of the first argument, "" if there is none."""
        first = (*self.node.args.posonlyargs, *self.node.args.args)
        return first[0].arg if first else ""


def methods_of(cls: type) -> Iterator[FunctionSource]:
    """The methods that a class defines itself and whose source can be read, in the order of the class."""
    for value in vars(cls).values():
        function = inspect.unwrap(value) if callable(value) else None
        source = function_source(function) if isinstance(function, FunctionType) else None
        if source is not None:
            yield source


def function_source(function: FunctionType) -> FunctionSource | None:
    """Return a function's tree, None where its source cannot be read."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    node = _functions(text).get((code.co_name, code.co_firstlineno))
    return None if node is None else FunctionSource(code.co_filename, function.__module__ or "", node)


def functions_of(file: str) -> tuple[FunctionNode, ...]:
    """All functions of a file; () where it cannot be read."""
    return tuple(_functions("".join(linecache.getlines(file))).values())


@lru_cache(maxsize=64)
def _functions(text: str) -> dict[tuple[str, int], FunctionNode]:
    """All functions of a file by name and first line, which is that of the first decorator."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {(node.name, min(one.lineno for one in (node, *node.decorator_list))): node for node in found}


def called_name(node: ast.AST | None) -> str:
    """The last part of the name that a call calls: `LayerNorm` of `nn.LayerNorm(8)`; "" for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def is_own(node: ast.AST, own: str, name: str) -> bool:
    """Tell whether a node is `self.name`."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return node.attr == name and node.value.id == own


def defined_at(function: object) -> str:
    """Return `file.py:12`, the line that begins a function; "" for what is none."""
    source = function_source(function) if isinstance(function, FunctionType) else None
    return shown(source, source.node.lineno) if source else ""


def shown(source: FunctionSource, line: int) -> str:
    """A line of a function's file as messages name it."""
    return shown_line(source.file, source.module, line)


def shown_line(file: str, module: str, line: int) -> str:
    """A line of a file of a module as messages name it."""
    return f"{_file(Path(file), module)}:{line}"


def _file(path: Path, module: str) -> str:
    """The path from the folder of installed packages, from the current folder, or from that of its top package."""
    installed = [number for number, part in enumerate(path.parts) if part in INSTALLED]
    if installed:
        return Path(*path.parts[installed[-1] + 1 :]).as_posix()
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd()).as_posix()
    return Path(*path.parts[-1 - module.count(".") :]).as_posix()
