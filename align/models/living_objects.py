"""All objects of a class that are alive: to find what holds something that does not know its holder."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import compress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_KNOWN: ContextVar[dict[type, list[Any]] | None] = ContextVar("_KNOWN", default=None)


def living_objects(cls: type) -> list[Any]:
    """Return every instance of a class, or of one derived from it, that Python's collector knows; some 50 ms."""
    known = _KNOWN.get()
    if known is None:
        return _found(cls)
    if cls not in known:
        known[cls] = _found(cls)
    return [*known[cls]]


@contextmanager
def looked_for_once() -> Iterator[None]:
    """Let living_objects answer from what it found first: for work that asks often, while none of them are made."""
    token = _KNOWN.set({})
    try:
        yield
    finally:
        _KNOWN.reset(token)


def _found(cls: type) -> list[Any]:
    objects, types = gc.get_objects(), _derived(cls)
    return list(compress(objects, map(types.__contains__, map(type, objects))))


def _derived(cls: type) -> set[type]:
    """The class, and all that are derived from it, however far."""
    return {cls}.union(*map(_derived, type.__subclasses__(cls)))
