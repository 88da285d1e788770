"""Nested containers taken apart into named leaves, and put together again."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, leaf) of nested tuples, lists, mappings and dataclasses; "" names a lone leaf."""
    items = items_of(type(value))  # type: ignore[arg-type]  # mypy takes no class for hashable
    if items is None:
        yield name, value
        return
    for key, item in items(value):
        yield from leaves(item, inside(name, key))


@lru_cache(maxsize=1024)
def items_of(kind: type) -> Callable[[Any], Iterable[tuple[Any, Any]]] | None:
    """How the (key, item) pairs of such a container are had, None for a leaf; asked three times a call."""
    if issubclass(kind, Mapping):
        return kind.items
    if issubclass(kind, (tuple, list)):
        return enumerate
    return _field_items if dataclasses.is_dataclass(kind) else None


def _field_items(value: Any) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def with_leaves(value: Any, put: Callable[[str, Any], Any], name: str = "") -> Any:
    """Return the value with each leaf replaced by `put(name, leaf)`; containers are copied, never changed."""
    if isinstance(value, Mapping):
        items = copy.copy(value) if isinstance(value, MutableMapping) else dict(value)
        for key, item in value.items():  # what Hugging Face's models return has no `update`
            items[key] = with_leaves(item, put, inside(name, key))
        return items
    if isinstance(value, (tuple, list)):
        listed = [with_leaves(item, put, inside(name, index)) for index, item in enumerate(value)]
        return value._make(listed) if hasattr(value, "_make") else type(value)(listed)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            item = with_leaves(getattr(value, field.name), put, inside(name, field.name))
            object.__setattr__(made, field.name, item)
        return made
    return put(name, value)


def inside(name: str, key: Any) -> str:
    """The name of a leaf in what is called `name`."""
    return f"{name}.{key}" if name else str(key)
