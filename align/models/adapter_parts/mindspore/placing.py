"""Where, in which precision and in which mode a MindSpore network computes, and what of its code is compiled.

Only what stands here knows of devices other than the CPU. MindSpore has one device for a whole process, so single
layers change their precision but not their place. What `mindspore.jit` compiles is run uncompiled where its layers are
to be seen.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from align.errors import CannotRunError
from align.models.adapter_parts.mindspore.copies import copied_cell
from align.models.nested_values import leaves, with_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.protocols import Model

TARGETS = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "ascend": "Ascend", "npu": "Ascend"}
_JITTED = "staging_specialize"  # what `mindspore.jit` puts in the place of a function


def place_network(network: Model, device: str | None, dtype: str | None) -> None:
    """Choose the device of the process, and cast the floating parameters in place."""
    import mindspore

    if device is not None:
        _choose_device(device)
    if dtype is not None:
        for tensor in (*network.get_parameters(), *(buffer for _, buffer in network.named_buffers())):
            if tensor.is_floating_point():
                tensor.set_dtype(getattr(mindspore, dtype))


def placed_cell(cell: Model, device: str | None, dtype: str | None) -> Callable[..., Any]:
    """Let a copy of the cell answer in that precision; what it returns comes back as the cell's own would."""
    import mindspore

    if device is not None:
        raise CannotRunError.of("mindspore_model.lone_layer_elsewhere")
    copied = copied_cell(cell)
    place_network(copied, None, dtype)
    wanted = getattr(mindspore, str(dtype))

    def answer(*args: Any, **kwargs: Any) -> Any:
        found = [leaf for _, leaf in leaves((args, kwargs)) if _is_floating(leaf)]
        like = next(iter(found), next((one for one in cell.get_parameters() if one.is_floating_point()), None))
        there = with_leaves((args, kwargs), lambda _, leaf: leaf.astype(wanted) if _is_floating(leaf) else leaf)
        output = copied(*there[0], **there[1])
        if like is None:
            return output
        return with_leaves(output, lambda _, leaf: leaf.astype(like.dtype) if _is_floating(leaf) else leaf)

    return answer


def _is_floating(leaf: Any) -> bool:
    import mindspore

    return isinstance(leaf, mindspore.Tensor) and bool(leaf.is_floating_point())


def _choose_device(name: str) -> None:
    import mindspore

    kind, _, number = name.partition(":")
    target = TARGETS.get(kind.lower())
    if target is None or (number and not number.isdigit()):
        raise CannotRunError.of("mindspore_model.unknown_device", name=name, targets=[*TARGETS])
    if target == mindspore.get_context("device_target") and not number:
        return
    try:
        mindspore.set_device(target, int(number or 0))
    except (RuntimeError, ValueError) as error:
        said = str(error).strip().partition(". ")[0]
        raise CannotRunError.of("mindspore_model.no_device", name=name, said=said) from error


@contextmanager
def layer_by_layer(*, graph: bool) -> Iterator[None]:
    """Let what `mindspore.jit` compiles run uncompiled for a while, unless all of it is to be a graph.

    Hooks inside compiled code fail, or are passed by. MindSpore asks for this variable at every call.
    """
    before = os.environ.get("MS_JIT")
    if not graph:
        os.environ["MS_JIT"] = "0"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("MS_JIT", None)
        else:
            os.environ["MS_JIT"] = before


@contextmanager
def in_mode(*, graph: bool) -> Iterator[None]:
    """Compute in GRAPH or PYNATIVE mode for a while."""
    import mindspore

    mode = mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)
    try:
        yield
    finally:
        mindspore.set_context(mode=mode)


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
