"""Parts of a text of Python that are written anew, and the proof that nothing else of it means another thing."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from align.models.edited_code import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence


class Span(NamedTuple):
    """A part of a text, and what stands there afterwards."""

    start: int
    stop: int
    text: str


def replaced(text: str, spans: Sequence[Span]) -> str:
    """Return the text with all parts written anew; they do not overlap."""
    for one in sorted(spans, reverse=True):
        text = text[: one.start] + one.text + text[one.stop :]
    return text


def ends(text: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression begins and ends in a text; Python counts lines, and bytes of UTF-8 in a line."""
    lines = split_lines(text)
    stops = ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
    first, last = (
        sum(map(len, lines[: row - 1])) + len(lines[row - 1].encode()[:column].decode()) for row, column in stops
    )
    return first, last


def split_lines(text: str) -> list[str]:
    r"""Return the lines as Python counts them: other marks than `\n`, `\r` and `\r\n` end none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def added_argument(text: str, call: ast.Call, argument: str) -> Span:
    """New keywords of a call, right behind its last argument, or between its empty parentheses."""
    present = [*call.args, *(one.value for one in call.keywords)]
    stop = ends(text, call)[1] - 1
    if not present:
        return Span(stop, stop, argument)
    end = max(ends(text, one)[1] for one in present)
    while text[end:stop].lstrip().startswith(")"):  # parentheses around the last argument
        end = text.index(")", end) + 1
    return Span(end, end, f", {argument}")


def import_of(text: str, module: str, name: str) -> list[Span]:
    """The line that imports a name, below the other imports of a module; none where it is there."""
    tree = ast.parse(text)
    imports = [one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
    if any(isinstance(one, ast.ImportFrom) and one.module == module and _imports(one, name) for one in imports):
        return []
    future = [one for one in imports if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    lines = split_lines(text)
    behind = next((one for one in imports if one not in future), None)
    row = behind.lineno - 1 if behind else (future[-1].end_lineno or 0) if future else 0
    start = sum(map(len, lines[:row]))
    end = "\r\n" if "\r\n" in text else "\n"
    return [Span(start, start, f"from {module} import {name}{end}")]


def _imports(statement: ast.ImportFrom, name: str) -> bool:
    return any(one.name == name and one.asname is None for one in statement.names)


def alike_but_for(before: str, after: str, statements: int) -> bool:
    """Tell whether a new text is one of Python, of as many statements as before and `statements` more."""
    try:
        trees = [ast.parse(text) for text in (before, after)]
        compiled(after, "<edited>")
    except (SyntaxError, ValueError):
        return False
    counts = [sum(isinstance(one, ast.stmt) for one in ast.walk(tree)) for tree in trees]
    return counts[1] == counts[0] + statements
