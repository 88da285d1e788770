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

from align.models.thresholds import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_seed = ContextVar("seed", default=SEED)


def seed_of_runs() -> int:
    """The seed that every run starts from now."""
    return _seed.get()


@contextmanager
def other_seed(seed: int = SEED + 1) -> Iterator[None]:
    """Let runs start from another seed for a while: what differs then depends on random numbers."""
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


@contextmanager
def fixed_seed() -> Iterator[None]:
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
def restored_attributes(modules: Iterable[Any], counts: Callable[[str], bool] | None = None) -> Iterator[None]:
    """Give modules back the attributes whose names count (all do), and dicts, lists and sets among them what they held.

    Nothing deeper is kept, and no tensor: one that is changed in place stays changed.
    """
    kept = [(vars(module), _counting(vars(module), counts)) for module in modules]
    containers = [value for _, before in kept for value in before.values() if type(value) in _CONTAINERS]
    empty = [one for one in containers if not one]  # most of them are: no copy is made
    held = [(one, one.copy()) for one in containers if one]
    try:
        yield
    finally:
        for container in filter(None, empty):
            container.clear()
        for container, content in held:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(content)
        for attributes, before in kept:
            for name in attributes.keys() - before.keys():
                if counts is None or counts(name):
                    del attributes[name]
            attributes.update(before)


_CONTAINERS = frozenset({dict, OrderedDict, list, set})


def _counting(attributes: dict[str, Any], counts: Callable[[str], bool] | None) -> dict[str, Any]:
    return attributes.copy() if counts is None else {name: one for name, one in attributes.items() if counts(name)}
