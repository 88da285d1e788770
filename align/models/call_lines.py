"""The line of the user's code that calls a layer of a live model."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from align.models.source_lines import climb, is_own, methods_of, own_classes, shown

if TYPE_CHECKING:
    from align.models.source_lines import FunctionSource

CALLED = ("forward", "construct")


def called_at(owner: object, path: str) -> str:
    """Return `file.py:12`, the line that calls the layer at `path`, or the list that it stands in; "" if none is."""
    for names, chain in climb(owner, path):
        methods = [source for cls in own_classes(chain[0]) for source in methods_of(cls)]
        forward = [source for source in methods if source.node.name in CALLED]
        others = [source for source in methods if source.node.name not in (*CALLED, "__init__")]
        for source in [*forward, *others]:
            if line := _calling_line(source, names[0]):
                return shown(source, line)
    return ""


def _calling_line(source: FunctionSource, name: str) -> int:
    """The line of a method that calls `self.name`, or an item of it in a loop; the first that names it, 0 if none."""
    nodes = list(ast.walk(source.node))
    called = [node.lineno for node in nodes if isinstance(node, ast.Call) and calls_own(node, source, name)]
    looped = [line for node in nodes if isinstance(node, ast.For) for line in loop_lines(node, source, name)]
    named = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and is_own(node, source.own, name)
    ]
    return min(called or looped or named, default=0)


def calls_own(call: ast.Call, source: FunctionSource, name: str) -> bool:
    """Tell whether a call calls `self.name`, or an item of it."""
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return is_own(function, source.own, name)


def loop_lines(loop: ast.For, source: FunctionSource, name: str) -> list[int]:
    """The lines of a loop over `self.name` that call what it loops over."""
    if not any(is_own(node, source.own, name) for node in ast.walk(loop.iter)):
        return []
    targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    calls = (node for node in ast.walk(loop) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id in targets]
