"""What is known of a tensor in code that is followed: where it comes from, what it holds whole; plain attributes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from math import prod
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NUMBERS = (int, float, bool, str, type(None))
FRAMEWORKS = ("torch.", "mindspore.")  # with what stands behind the names of their modules


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by the nodes that it comes from; `is_parameter` where nothing was computed with it yet.

    `whole` is the node whose features it holds whole, with the axis, from the end, of which its first pieces are
    slices; `ndim` is how many axes it has if that is known. `is_size` says that it is a size of another.
    """

    nodes: frozenset[str] = frozenset()
    is_parameter: bool = False
    is_size: bool = False
    ndim: int | None = None
    whole: tuple[str, int, int] | None = None


NOTHING = Tensor()


def tensor(value: Any) -> Tensor:
    """All that a value holds as one tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return Tensor(frozenset().union(*(tensor(one).nodes for one in value)))
    return NOTHING


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in values, those of lists one by one."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def reshaped(whole: tuple[str, int, int] | None, sizes: Sequence[Any]) -> tuple[str, int, int] | None:
    """The axis of the first pieces of a last axis that became several: the first that is no size of before."""
    if whole is None or whole[1] != -1:
        return None
    node, _, count = whole
    known = [one if isinstance(one, int) and one > 0 else 0 for one in sizes]
    filling = [axis for axis in range(1, len(known)) if all(known[-axis:]) and prod(known[-axis:]) == count]
    first = next((place for place, one in enumerate(sizes) if not (isinstance(one, Tensor) and one.is_size)), None)
    axis = filling[0] if filling else len(sizes) - first if first else 0
    return (node, -axis, count) if axis else None


def moved(held: Tensor, axes: Sequence[int]) -> tuple[str, int, int] | None:
    """Where the axis of the first pieces stands after axes were exchanged, or all put in an order."""
    if held.whole is None or held.ndim is None:
        return None
    node, axis, count = held.whole
    order = [one % held.ndim for one in axes]
    if len(order) == 2 != held.ndim:
        first, second = order
        order = [{first: second, second: first}.get(one, one) for one in range(held.ndim)]
    place = axis % held.ndim
    return (node, order.index(place) - held.ndim, count) if sorted(order) == list(range(held.ndim)) else None


def is_axis(whole: Tensor, axis: int) -> bool:
    """Tell whether an axis, counted from either end, is that of a tensor's first pieces."""
    place = whole.whole[1] if whole.whole else 0
    return axis == place or (whole.ndim is not None and axis == place + whole.ndim)


def merged(values: Sequence[Any]) -> Any:
    """One value for what may be any of several: equal ones stay, lists of one length are merged item by item."""
    first = values[0] if values else NOTHING
    if all(one is first for one in values):
        return first
    if isinstance(first, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == len(first) for one in values
    ):
        return [merged(items) for items in zip(*values, strict=True)]
    if all(isinstance(one, NUMBERS) for one in values) and all(one == first for one in values):
        return first
    return Tensor(frozenset().union(*(tensor(one).nodes for one in values)))


def plain_attribute(held: Any, name: str) -> Any:
    """An attribute of an object, for which no code of the user's runs; NOTHING for a property of the user's own."""
    value = inspect.getattr_static(held, name, NOTHING)
    if isinstance(held, type):
        return value
    if isinstance(held, ModuleType):
        return getattr(held, name, NOTHING)
    if isinstance(value, FunctionType):
        return MethodType(value, held)
    if isinstance(value, property):
        module = str(getattr(value.fget, "__module__", ""))
        return getattr(held, name, NOTHING) if module.startswith(FRAMEWORKS) else NOTHING
    return getattr(held, name, NOTHING) if hasattr(type(value), "__get__") else value
