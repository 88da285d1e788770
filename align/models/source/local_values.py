"""What stands behind a local variable at the place where it is used."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from align.models.thresholds import MOST_FUNCTIONS_READ, MOST_STATEMENTS_READ

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.models.function_source import FunctionNode

Block = tuple[ast.AST, str]  # a node, and the field in which it keeps statements
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def resolved(function: FunctionNode, value: ast.expr) -> ast.expr:
    """Follow a local variable to what was assigned to it; the variable itself where that may be one of several."""
    if not isinstance(value, ast.Name):
        return value
    before = [one for one in assignments(function).get(value.id, ()) if one.lineno < value.lineno]
    filled = [one.value for one in before if one.value is not None and not _is_none(one.value)]
    if len(filled) < 2:
        return filled[0] if filled else value
    last = max(before, key=lambda one: one.lineno)
    return last.value if last.value is not None and _block_of(function, last) in _around(function, value) else value


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def assignments(function: FunctionNode) -> Mapping[str, Sequence[ast.Assign | ast.AnnAssign]]:
    """The statements of a function that assign to each of its variables alone."""
    found: defaultdict[str, list[ast.Assign | ast.AnnAssign]] = defaultdict(list)
    for node in nodes_of(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in targets(node):
                if isinstance(target, ast.Name):
                    found[target.id].append(node)
    return found


def targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
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
    """All nodes of a function but those of functions and classes inside of it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _own_nodes(node)


def statements_before(function: FunctionNode, variable: ast.Name) -> list[ast.stmt] | None:
    """The statement that assigns to a variable before it is used, and those that follow up to there.

    None where that is not one line of statements, as in a loop that goes on with what it did before.
    """
    found: list[ast.stmt] = []
    for holder, name, statement in _around_statements(function, variable):
        block = getattr(holder, name)
        for one in block[: block.index(statement)][::-1]:
            found.append(one)
            if isinstance(one, (ast.Assign, ast.AnnAssign)) and _assigns(one, variable.id):
                return found[::-1]
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


def _block_of(function: FunctionNode, statement: ast.stmt) -> Block:
    return _parents(function)[statement]


@lru_cache(maxsize=MOST_FUNCTIONS_READ)
def _parents(function: FunctionNode) -> Mapping[ast.AST, Block]:
    """What holds each node of a function, and in which of its fields."""
    found: dict[ast.AST, Block] = {}
    for holder in nodes_of(function):
        for name, value in ast.iter_fields(holder):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.AST) and not isinstance(one, ast.expr_context):
                    found[one] = holder, name
    return found
