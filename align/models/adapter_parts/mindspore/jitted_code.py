"""The code of a network that `mindspore.jit` compiles, which is run uncompiled where its layers are to be seen."""

from __future__ import annotations

import sys
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.protocols import Model

_JITTED = "staging_specialize"  # what `mindspore.jit` puts in the place of a function


def jitted_code(model: Model) -> tuple[str, ...]:
    """Name the compiled functions of a network's cells, their methods and what these call of their own module.

    Functions of other modules, and what is compiled while the network runs, are not found.
    """
    found: dict[str, None] = {}
    for _, cell in model.cells_and_names():
        found |= dict.fromkeys(_own(cell))
        for cls in type(cell).__mro__:
            if cls.__module__.partition(".")[0] != "mindspore":
                found |= dict.fromkeys(_of_class(cls))
    return tuple(found)


def _own(cell: Any) -> Iterator[str]:
    """What was put into the cell itself: `net.construct = mindspore.jit(net.construct)`."""
    for name, value in vars(cell).items():
        if _is_jitted(value):
            yield f"{type(cell).__qualname__}.{name}"


def _of_class(cls: type) -> Iterator[str]:
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    for name, value in vars(cls).items():
        if _is_jitted(value):
            yield f"{cls.__qualname__}.{name}"
        elif isinstance(value, FunctionType):
            yield from (used for used in value.__code__.co_names if _is_jitted(module.get(used)))


def _is_jitted(value: Any) -> bool:
    function = value.__func__ if isinstance(value, MethodType) else value
    return isinstance(function, FunctionType) and function.__code__.co_name == _JITTED
