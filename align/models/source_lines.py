"""The line of the user's code that makes a layer, and the one that calls it: by live objects.

The frameworks' own classes are nobody's to change: what they make inside belongs to the line that makes them. Where
several statements may have made a layer, the one that calls its class is taken, else the first.
"""

from __future__ import annotations

import ast
from collections.abc import Sized
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.models.live.layer_construction import (
    Item,
    LayerConstruction,
    construction_line,
    layer_constructions,
    returned,
)
from align.models.live.source_code import called_name, function_source, is_own, methods_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.models.live.source_code import FunctionSource

FRAMEWORKS = ("torch", "mindspore")
NOT_OWN = (*FRAMEWORKS, "builtins", "pybind11_builtins")  # a base of every cell of MindSpore is of the last
CALLED = ("forward", "construct")
INSTALLED = ("site-packages", "dist-packages")


def made_at(owner: object, path: str, maker: object = None) -> str:
    """Return `file.py:12`, the line that makes the layer at `path` of a live model; "" where nothing can be told.

    The file is given from the current folder, or from the folder that its package lies in. For an item of a list it is
    the item's own line where it can be told, else that of the list. `maker` is the function that returned the model,
    where a list of the framework's is the model itself.
    """
    items: list[Item] = []
    for names, chain in climb(owner, path):
        steps = zip(names, chain[:-1], chain[1:], strict=True)
        items = [Item(name, type(one).__name__, type(holder).__name__, _length(holder)) for name, holder, one in steps]
        if found := _chosen(chain[0], names[0], type(chain[1]).__name__):
            return _shown(found.source, construction_line(found, items[0 if found.hands_on else 1 :]))
    source = function_source(maker) if isinstance(maker, FunctionType) else None
    found = next(returned(source), None) if source else None
    return _shown(found.source, construction_line(found, items)) if found and len(items) == _depth(path) else ""


def called_at(owner: object, path: str) -> str:
    """Return `file.py:12`, the line that calls the layer at `path`, or the list that it stands in; "" as above."""
    for names, chain in climb(owner, path):
        methods = [source for cls in own_classes(chain[0]) for source in methods_of(cls)]
        forward = [source for source in methods if source.node.name in CALLED]
        others = [source for source in methods if source.node.name not in (*CALLED, "__init__")]
        for source in [*forward, *others]:
            if line := _calling_line(source, names[0]):
                return _shown(source, line)
    return ""


def climb(owner: object, path: str) -> Iterator[tuple[list[str], list[object]]]:
    """From the layer's parent up: the names that lead from each owner to the layer, and the owner and what is there."""
    names = path.split(".") if path else []
    chain: list[Any] = [owner]
    for name in names:
        if (child := getattr(chain[-1], name, None)) is None:
            return
        chain.append(child)
    for depth in range(len(names) - 1, -1, -1):
        yield names[depth:], chain[depth:]


def _depth(path: str) -> int:
    return len(path.split(".")) if path else 0


def _length(layer: object) -> int:
    return len(layer) if isinstance(layer, Sized) else 0


def own_classes(layer: object) -> list[type]:
    """The layer's classes that are no framework's, most derived first."""
    return [cls for cls in type(layer).__mro__ if cls.__module__.partition(".")[0] not in NOT_OWN]


def _chosen(parent: object, name: str, class_name: str) -> LayerConstruction | None:
    """The place where an object's own classes make what it keeps under a name."""
    classes = own_classes(parent)
    for cls in classes:
        found = [construction for source in methods_of(cls) for construction in layer_constructions(source, name)]
        told = [construction for construction in found if not construction.hands_on or cls is classes[-1]]
        if told:
            return next((one for one in told if called_name(one.value) == class_name), told[0])
    return None


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


def _shown(source: FunctionSource, line: int) -> str:
    return f"{_file(Path(source.file), source.module)}:{line}"


def _file(path: Path, module: str) -> str:
    """The path from the folder of installed packages, from the current folder, or from that of its top package."""
    installed = [number for number, part in enumerate(path.parts) if part in INSTALLED]
    if installed:
        return Path(*path.parts[installed[-1] + 1 :]).as_posix()
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd()).as_posix()
    return Path(*path.parts[-1 - module.count(".") :]).as_posix()
