"""Which cells of a network a repair touched, and what of them: by comparing all that each cell is before and after.

A repair may replace a cell, rebuild one of its operators, set an attribute, fill a parameter, or put other code in the
place of a method or of a function that the method calls.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where a cell stands and how MindSpore manages it, not what it computes.
_NOT_TOLD = {"param_prefix", "cell_init_args", "instance_name", "seed0", "seed1", "phase", "pynative_grad"}


def snapshot(net: Any) -> dict[str, dict[str, object]]:
    """By path, all that a cell is, by value; functions stand as themselves, which keeps them alive."""
    return {path: dict(_facts(cell)) for path, cell in net.cells_and_names()}


def touched(before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]) -> dict[str, list[str]]:
    """The names of what differs by the path of the cell, and what is there on one side only."""
    found = {}
    for path in {**before, **after}:
        mine, theirs = before.get(path, {}), after.get(path, {})
        unlike = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        if unlike:
            found[path] = sorted(unlike)
    return found


def _facts(cell: Any) -> Iterator[tuple[str, object]]:
    import mindspore

    yield "class", f"{type(cell).__module__}.{type(cell).__qualname__}"
    for name, value in {**vars(cell), **vars(cell).get("_primitives", {})}.items():
        if isinstance(value, mindspore.ops.Primitive):
            yield f"{name}.class", type(value).__name__
            yield from ((f"{name}.{key}", item) for key, item in vars(value).items() if _told(key, item))
        elif isinstance(value, mindspore.Tensor):
            yield name, _digest(value)
        elif callable(value) and not isinstance(value, mindspore.nn.Cell):
            yield name, getattr(value, "__func__", value)
        elif _told(name, value):
            yield name, value
    for name, parameter in cell.parameters_and_names(expand=False):
        yield name.rpartition(".")[2], _digest(parameter)
    yield from _code(cell)


def _told(name: str, value: object) -> bool:
    """Tell whether an attribute is a plain setting."""
    if name in _NOT_TOLD or name.startswith("_"):
        return False
    if isinstance(value, (tuple, list)):
        return all(_told(name, item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str)) or "typing" in type(value).__module__


def _digest(tensor: Any) -> str:
    return f"{tensor.dtype} {tensor.shape} {hashlib.sha256(tensor.asnumpy().tobytes()).hexdigest()}"


def _code(cell: Any) -> Iterator[tuple[str, object]]:
    """The function that the cell runs, and the functions that it names."""
    construct = getattr(cell.construct, "__func__", cell.construct)
    yield "code", construct
    code, around = getattr(construct, "__code__", None), getattr(construct, "__globals__", {})
    for name in code.co_names if code else ():
        spaces = [around.get(space) for space in code.co_names if hasattr(around.get(space), "__spec__")]
        for number, space in enumerate([around, *map(vars, spaces)]):
            if callable(space.get(name)):
                yield f"{name} ({number})", space[name]
