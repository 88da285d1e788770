"""What a run of a user's model must leave as it was, whatever the framework: attributes, and random states.

A model may count its calls, keep a cache or register a longer table in its forward; a table that is put back without
the number that says how long it is would break the next run, so all attributes go back together.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Every run starts from these random numbers, so that two runs of one model draw the same.
SEED = 0
_seed = ContextVar("seed", default=SEED)


def seed_of_runs() -> int:
    """The seed that every run starts from now."""
    return _seed.get()


@contextmanager
def other_random_numbers() -> Iterator[None]:
    """Let runs start from another seed for a while: what differs then depends on random numbers."""
    token = _seed.set(SEED + 1)
    try:
        yield
    finally:
        _seed.reset(token)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Start Python's and NumPy's random numbers at the seed, and put their states back at the end."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed_of_runs())
    np.random.seed(seed_of_runs())
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def attributes_kept(modules: Iterable[Any], counts: Callable[[str], bool] = lambda _: True) -> Iterator[None]:
    """Give modules back the attributes whose names count, and dicts, lists and sets among them what they held.

    Nothing deeper is kept, and no tensor: one that is changed in place stays changed.
    """
    kept = [_Kept(vars(module), counts) for module in modules]
    try:
        yield
    finally:
        for one in kept:
            one.put_back()


class _Kept:
    """The attributes of one module, not copied, and the content of its containers."""

    def __init__(self, attributes: dict[str, Any], counts: Callable[[str], bool]) -> None:
        self._attributes, self._counts = attributes, counts
        self._before = {name: value for name, value in attributes.items() if counts(name)}
        containers = (value for value in self._before.values() if type(value) in (dict, OrderedDict, list, set))
        self._held = [(container, container.copy()) for container in containers]

    def put_back(self) -> None:
        """Put back what was replaced, and take away what is new."""
        for container, held in self._held:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(held)
        for name in [name for name in self._attributes if self._counts(name) and name not in self._before]:
            del self._attributes[name]
        self._attributes.update(self._before)
