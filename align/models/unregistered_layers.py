"""Layers that a model holds and its framework does not see: in a Python list, tuple or dict.

Their parameters are in no checkpoint, and no optimizer trains them. Some models keep another one so on purpose (a
teacher), so it is worth a word only where parameters lack a counterpart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.models.source_lines import made_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.protocols import Model

WALKS = {"torch": "named_modules", "mindspore": "cells_and_names"}
LISTS = {
    "torch": ("nn.ModuleList([...])", "nn.ModuleDict({...})"),
    "mindspore": ("nn.CellList([...])", "nn.CellDict({...})"),
}


@dataclass(frozen=True, slots=True)
class UnregisteredLayers:
    """A container at `path` with layers of a class, how many, the line that makes it ("" if unknown), what to write."""

    path: str
    container: str
    class_name: str
    count: int
    line: str
    change: str


def unregistered_layers(model: Model, framework: str) -> tuple[UnregisteredLayers, ...]:
    """Find the containers of a live model that hold layers which the framework has not registered.

    Only attributes of registered layers are looked at, and one level of a container; models of frameworks without such
    a register have none.
    """
    walk = WALKS.get(framework, "")
    if not hasattr(model, walk):
        return ()
    registered = dict(getattr(model, walk)())
    known = {id(layer) for layer in registered.values()}
    return tuple(
        _found(model, framework, f"{path}.{name}".lstrip("."), value, own)
        for path, layer in registered.items()
        for name, value in vars(layer).items()
        if (own := [one for one in _items(value) if hasattr(one, walk) and id(one) not in known])
    )


def _items(value: object) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _found(model: Model, framework: str, path: str, value: object, own: list[Any]) -> UnregisteredLayers:
    change = LISTS[framework][isinstance(value, dict)]
    return UnregisteredLayers(path, type(value).__name__, type(own[0]).__name__, len(own), made_at(model, path), change)
