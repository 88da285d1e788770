"""Sums in the code of a cell's construct, and the same code with one addend of one of them left out.

The source is rewritten, so that a residual is dropped as a careless port drops it: in `y + x`, `y += x` and in a call
of an operator that adds. Code without source, or that needs names from around it, is left alone.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def addends(cell: Any) -> Iterator[tuple[int, str]]:
    """Number and text of each addend that is a plain name in the cell's own code: what a skip connection carries."""
    tree = _tree(cell)
    for number, (node, kept) in enumerate(_sums(cell, tree)) if tree else ():
        yield number, f"{ast.unparse(kept)} for {ast.unparse(node)}"


def without_addend(cell: Any, number: int) -> Callable[..., Any]:
    """The cell's construct with that addend left out, bound to the cell."""
    tree = _tree(cell)
    node, kept = list(_sums(cell, tree))[number]
    tree = ast.fix_missing_locations(_Replace(node, kept).visit(tree))
    written = type(cell).construct
    space: dict[str, Any] = {}
    exec(compile(tree, inspect.getfile(written), "exec"), written.__globals__, space)
    return types.MethodType(space[written.__name__], cell)


def _tree(cell: Any) -> Any:
    """The construct of a class outside MindSpore as a tree, without decorators; None where it cannot be had alone."""
    written = type(cell).construct
    code = getattr(written, "__code__", None)
    if code is None or code.co_freevars or type(cell).__module__.startswith("mindspore."):
        return None
    try:
        source = inspect.getsource(written)
    except (OSError, TypeError):
        return None
    tree = ast.parse(textwrap.dedent(source))
    if not isinstance(tree.body[0], ast.FunctionDef):
        return None
    tree.body[0].decorator_list = []
    return tree


def _sums(cell: Any, tree: Any) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each sum with a plain name on one side, and what stays of it without."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = [node.left, node.right]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            sides = [node.target, node.value]
        elif isinstance(node, ast.Call) and len(node.args) == 2 and _adds(cell, node.func):
            sides = list(node.args)
        else:
            continue
        for dropped, kept in (sides, sides[::-1]):
            if isinstance(dropped, ast.Name) and not (isinstance(node, ast.AugAssign) and dropped is node.target):
                yield node, kept


def _adds(cell: Any, function: ast.AST) -> bool:
    """Tell whether a call is one of an operator of the cell that adds."""
    own = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    return own and type(getattr(cell, function.attr, None)).__name__ == "Add"  # type: ignore[attr-defined]


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.AST, kept: ast.AST) -> None:
        self._node = node
        self._kept = kept

    def visit(self, node: ast.AST) -> Any:
        if node is not self._node:
            return super().visit(node)
        return ast.Pass() if isinstance(node, ast.AugAssign) else self._kept
