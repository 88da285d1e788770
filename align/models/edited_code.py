"""Source that is written anew: an expression of a live function, for as long as a trial runs, and calls of layers."""

from __future__ import annotations

import linecache
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FunctionType

    from align.core.layer_settings import Setting


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
