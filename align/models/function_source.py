"""The source of live functions as syntax trees, and the user's own classes.

A function is found by its file and first line, not by its name: so classes made in functions, defined twice or in a
notebook are found too. What was built in C or by `exec` has no source.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import warnings
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from align.core.load_code import INSTALLED
from align.models.live_calls import FRAMEWORKS, near_path
from align.models.thresholds import MOST_FUNCTIONS_READ, MOST_STATEMENTS_READ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.protocols import Setting


NOT_OWN = FRAMEWORKS | {"align", "builtins", "pybind11_builtins"}  # a base of every cell of MindSpore is of the last
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


def is_own(node: ast.AST, self_name: str, name: str) -> bool:
    """Tell whether a node is `self.name`."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    return node.attr == name and node.value.id == self_name


def defined_at(function: object) -> str:
    """Return `file.py:12`, the line that begins a function; "" for what is none."""
    source = function_source(function) if isinstance(function, FunctionType) else None
    return shown(source, source.node.lineno) if source else ""


def shown(source: FunctionSource, line: int) -> str:
    """A line of a function's file as messages name it."""
    return shown_line(source.file, source.module, line)


def shown_line(file: str, module: str, line: int) -> str:
    """A line of a file of a module as messages name it."""
    path = near_path(Path(file)) or Path(*Path(file).parts[-1 - module.count(".") :])  # else from its top package
    return f"{path.as_posix()}:{line}"


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
    seen = {*waiting}
    while waiting:
        caller = waiting.pop(0)
        for called in _called_by(caller):
            if called not in seen and _of_one_project(called, caller):
                seen.add(called)
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
    given = (node.arg for node in inside if isinstance(node, ast.arg))
    stored = (node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    nested = (node.name for node in inside if isinstance(node, DEFINITIONS) and node is not function)
    imported = (
        alias.asname or alias.name.partition(".")[0]
        for node in inside
        if isinstance(node, IMPORTS)
        for alias in node.names
    )
    return {*given, *stored, *nested, *imported}


# Source that is written anew: an expression of a live function, for as long as a trial runs, and calls of layers.


@dataclass(frozen=True, slots=True)
class CodeChange:
    """An expression in a file that is to be another one.

    It begins at `line`, from 1, and `column`, the bytes of UTF-8 before it, as Python's syntax trees count; `before` is
    its source, `after` what is to stand there. Where that adds an item to a list of layers, the names of `moves`
    parameters behind it change.
    """

    file: str
    line: int
    column: int
    before: str
    after: str
    moves: int = 0


@contextmanager
def edited(function: FunctionType, change: CodeChange) -> Iterator[bool]:
    """Let a live function do meanwhile what its changed source says; yields False where that cannot be had."""
    code = _edited_code(function, change)
    if code is None or code.co_freevars != function.__code__.co_freevars:
        yield False
        return
    before = function.__code__
    function.__code__ = code
    try:
        yield True
    finally:
        function.__code__ = before


def changed_line(text: str, change: CodeChange) -> tuple[str, str]:
    """Return the lines of a file's text that a change is on, before and after it, in one line each."""
    start = offset_of(text, change.line, change.column)
    stop = start + len(change.before)
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", stop)
    last = last if last >= 0 else len(text)
    before, after = text[first:last], text[first:start] + change.after + text[stop:last]
    return " ".join(before.split()), " ".join(after.split())


def edited_text(text: str, change: CodeChange) -> str | None:
    """Return the text with a change made; None where another expression stands at its place."""
    start = offset_of(text, change.line, change.column)
    stop = start + len(change.before)
    return text[:start] + change.after + text[stop:] if text[start:stop] == change.before else None


def offset_of(text: str, line: int, column: int) -> int:
    r"""Where in a text with line ends of `\n` an expression begins; see CodeChange for line and column."""
    lines = text.split("\n")
    own = lines[line - 1] if line <= len(lines) else ""
    return sum(len(one) + 1 for one in lines[: line - 1]) + len(own.encode()[:column].decode())


def compiled(source: str | bytes, file: str) -> CodeType:
    """Compile a module; what Python warns of in it was said when it was imported. Raises SyntaxError, ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(source, file, "exec", dont_inherit=True)


def _edited_code(function: FunctionType, change: CodeChange) -> CodeType | None:
    code = function.__code__
    text = edited_text(source_text(function), change)
    if text is None:
        return None
    try:
        module = compiled(text, code.co_filename)
    except (SyntaxError, ValueError):
        return None
    return next((one for one in _codes(module) if _place(one) == _place(code)), None)


def source_text(function: FunctionType) -> str:
    """The text of the file that a function stands in; "" where it cannot be read."""
    return "".join(linecache.getlines(function.__code__.co_filename, function.__globals__))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def written(value: Setting) -> str:
    """Return a setting as source, texts in double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return '"' + value + '"' if isinstance(value, str) else repr(value)


def keywords(arguments: Mapping[str, Setting]) -> str:
    """Return arguments as they stand in a call."""
    return ", ".join(f"{name}={written(value)}" for name, value in arguments.items())


def class_of(layer: str) -> type:
    """The class of a full name, as `mindspore.nn.ReLU`."""
    holder, _, name = layer.rpartition(".")
    found: type = getattr(import_module(holder), name)
    return found


def name_in(file: str, layer: str) -> str:
    """What the module of a file calls a class: `nn.ReLU`; "" where it imports neither the class nor what holds it."""
    kind, name = class_of(layer), layer.rpartition(".")[2]
    module = next((one for one in [*sys.modules.values()] if getattr(one, "__file__", None) == file), None)
    for key, value in vars(module).items() if module else ():
        if value is kind:
            return key
        if isinstance(value, ModuleType) and getattr(value, name, None) is kind:
            return f"{key}.{name}"
    return ""


# What stands behind a local variable at the place where it is used.

Block = tuple[ast.AST, str]  # a node, and the field in which it keeps statements
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def resolved(function: FunctionNode, value: ast.expr) -> ast.expr:
    """Follow a local variable to what was assigned to it; the variable itself where that may be one of several."""
    if not isinstance(value, ast.Name):
        return value
    before = [assignment for assignment in assignments(function).get(value.id, ()) if assignment.lineno < value.lineno]
    filled = [
        assignment.value for assignment in before if assignment.value is not None and not _is_none(assignment.value)
    ]
    if len(filled) < 2:
        return filled[0] if filled else value
    last = max(before, key=lambda assignment: assignment.lineno)
    return last.value if last.value is not None and _parents(function)[last] in _around(function, value) else value


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def assignments(function: FunctionNode) -> Mapping[str, Sequence[ast.Assign | ast.AnnAssign]]:
    """The statements of a function that assign to each of its variables alone."""
    by_name: defaultdict[str, list[ast.Assign | ast.AnnAssign]] = defaultdict(list)
    for node in nodes_of(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in targets(node):
                if isinstance(target, ast.Name):
                    by_name[target.id].append(node)
    return by_name


def targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> list[ast.expr]:
    """What a statement assigns to."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


@lru_cache(maxsize=MOST_STATEMENTS_READ)
def nodes_of(part: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a function or a statement."""
    return tuple(ast.walk(part))


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def storing_nodes(function: FunctionNode) -> tuple[ast.Assign | ast.AnnAssign | ast.Call, ...]:
    """The statements and calls of a function that may keep something."""
    return tuple(one for one in nodes_of(function) if isinstance(one, (ast.Assign, ast.AnnAssign, ast.Call)))


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def returned_values(function: FunctionNode) -> tuple[ast.expr, ...]:
    """What a function returns."""
    return tuple(one.value for one in _own_nodes(function) if isinstance(one, ast.Return) and one.value is not None)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _own_nodes(node)


def statements_before(function: FunctionNode, variable: ast.Name) -> list[ast.stmt] | None:
    """The statement that assigns to a variable before it is used, and those that follow up to there.

    None where that is not one line of statements, as in a loop that goes on with what it did before.
    """
    statements: list[ast.stmt] = []
    for holder, name, statement in _around_statements(function, variable):
        block = getattr(holder, name)
        for earlier in block[: block.index(statement)][::-1]:
            statements.append(earlier)
            if isinstance(earlier, (ast.Assign, ast.AnnAssign)) and _assigns(earlier, variable.id):
                return statements[::-1]
        if isinstance(holder, LOOPS):
            return None
    return None


def _assigns(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in targets(node))


def _around_statements(function: FunctionNode, node: ast.AST) -> Iterator[tuple[ast.AST, str, ast.AST]]:
    """The statements around a node, the innermost first, each with what holds it."""
    parents = _parents(function)
    while node in parents:
        holder, name = parents[node]
        if isinstance(getattr(holder, name), list) and isinstance(node, ast.stmt):
            yield holder, name, node
        node = holder


def _around(function: FunctionNode, node: ast.AST) -> set[Block]:
    return {(holder, name) for holder, name, _ in _around_statements(function, node)}


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def _parents(function: FunctionNode) -> Mapping[ast.AST, Block]:
    parents: dict[ast.AST, Block] = {}
    for holder in nodes_of(function):
        for name, value in ast.iter_fields(holder):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST) and not isinstance(one, ast.expr_context):
                    parents[one] = holder, name
    return parents
