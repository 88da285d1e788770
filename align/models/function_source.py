"""The source of live functions as syntax trees, and the user's own classes.

A function is found by its file and first line, not by its name: so classes made in functions, defined twice or in a
notebook are found too. What was built in C or by `exec` has no source.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from align.models.thresholds import MOST_FUNCTIONS_READ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FRAMEWORKS = ("torch", "mindspore")
NOT_OWN = (*FRAMEWORKS, "align", "builtins", "pybind11_builtins")  # a base of every cell of MindSpore is of the last
INSTALLED = ("site-packages", "dist-packages")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
CONSTRUCTOR = "__init__"
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


def own_function(value: object) -> FunctionType | None:
    """A function of the user's own without its decorators; None for anything else."""
    if not isinstance(value, FunctionType) or (value.__module__ or "").partition(".")[0] in NOT_OWN:
        return None
    unwrapped = inspect.unwrap(value)
    return unwrapped if isinstance(unwrapped, FunctionType) else None


def named_object(node: ast.expr, inside: FunctionNode, names: Mapping[str, Any]) -> object:
    """What `f` or `module.f` means in the code of a function; `names` are its module's. None where it is not known."""
    parts = _dotted(node)
    if not parts or parts[0] in _local_names(inside):
        return None
    found: Any = names.get(parts[0])
    for part in parts[1:]:
        found = getattr(found, part, None) if isinstance(found, ModuleType) else None
    return found


def meant(source: FunctionSource, node: ast.expr) -> object:
    """What a name of the module means in a function; None where it is not known."""
    module = sys.modules.get(source.module)
    return named_object(node, source.node, vars(module)) if module else None


def helpers_of(functions: Iterable[FunctionType]) -> Iterator[FunctionType]:
    """The functions of the same project that these call by their names, each once, and those that these call."""
    waiting = [*functions]
    found = {*waiting}
    while waiting:
        caller = waiting.pop(0)
        for called in _called_by(caller):
            if called not in found and _of_one_project(called, caller):
                found.add(called)
                waiting.append(called)
                yield called


def _called_by(function: FunctionType) -> Iterator[FunctionType]:
    source = function_source(function)
    for node in ast.walk(source.node) if source else ():
        if source and isinstance(node, ast.Call):
            called = own_function(named_object(node.func, source.node, function.__globals__))
            if called is not None:
                yield called


def _of_one_project(function: FunctionType, other: FunctionType) -> bool:
    """Tell whether two functions are of one package; of what is not installed, all are."""
    if function.__module__.partition(".")[0] == other.__module__.partition(".")[0]:
        return True
    return not any(part in Path(function.__code__.co_filename).parts for part in INSTALLED)


def _dotted(node: ast.expr) -> list[str]:
    """The names of `a.b.c`; none for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    outer = _dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*outer, node.attr] if outer and isinstance(node, ast.Attribute) else []


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def _local_names(function: FunctionNode) -> set[str]:
    """The names that mean something else in a function than in its module."""
    inside = [*ast.walk(function)]
    given = (one.arg for one in inside if isinstance(one, ast.arg))
    stored = (one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    nested = (one.name for one in inside if isinstance(one, DEFINITIONS) and one is not function)
    imported = (
        one.asname or one.name.partition(".")[0] for node in inside if isinstance(node, IMPORTS) for one in node.names
    )
    return {*given, *stored, *nested, *imported}
