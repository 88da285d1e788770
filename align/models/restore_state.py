"""What a run of a user's model must leave as it was, whatever the framework: attributes, and random states.

A model may count its calls, keep a cache or register a longer table in its forward; a table that is put back without
the number that says how long it is would break the next run, so all attributes go back together.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from align.core.parameters import TensorMemory
from align.models.thresholds import CHECKSUM_ELEMENTS, SEED
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array


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


# The memory that live tensors lie in: what a copy of a model may still share with it, and values written into it.
#
# What a layer is given may flow past it as well (the residual stream): what is written into such a tensor, all who
# hold it have. torch's tensors and MindSpore's are written alike.


def array_memory(value: Array) -> TensorMemory:
    """Where an array lies; a slice lies in the storage of the array that it is a slice of."""
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start = int(owner.__array_interface__["data"][0])
    flat = value.reshape(-1) if value.flags.c_contiguous else value.flatten()
    return TensorMemory(value.dtype.name, "cpu", start, start + owner.nbytes, checksum(flat[sample(flat.size)]))


def sample(size: int) -> slice:
    """Places of at most CHECKSUM_ELEMENTS elements, spread over all of a flat tensor."""
    return slice(None, None, max(1, -(-size // CHECKSUM_ELEMENTS)))


def checksum(elements: Array) -> int:
    """The checksum of the bytes of some elements."""
    return crc32(np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data)


def refuse_captured(modules: Sequence[Any], tensors: Iterable[Any], kinds: tuple[type, ...]) -> None:
    """Raise TypeError if a function of a copy's modules, or a hook, keeps what is of these kinds and not the copy's."""
    own = {id(one) for one in (*modules, *tensors)}
    owners = {id(owner): owner for module in modules for owner in (module, *type(module).__mro__)}
    for owner in owners.values():
        for name, function in _functions(vars(owner)):
            for kept in _kept(function):
                if isinstance(kept, kinds) and id(kept) not in own:
                    what = f"{(owner if isinstance(owner, type) else type(owner)).__name__}.{name}"
                    raise TypeError(say("shared_model.function_keeps", what=what, kind=type(kept).__name__))


def _functions(attributes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in attributes.items():
        for one in value.values() if isinstance(value, dict) else (value,):  # hooks are kept in dicts
            if isinstance(one, (FunctionType, MethodType, partial)):
                yield name, one


def _kept(function: Any) -> Iterator[Any]:
    """What a function keeps in its closure and its defaults, a method as its object."""
    if isinstance(function, partial):
        yield from (*function.args, *function.keywords.values())
        yield from _kept(function.func)
    elif isinstance(function, MethodType):
        yield function.__self__
    elif isinstance(function, FunctionType):
        yield from function.__defaults__ or ()
        yield from (cell.cell_contents for cell in function.__closure__ or () if cell != CellType())


class Overwriter:
    """Writes to tensors, but never to those that belong to the model (`kept`), nor to views of them.

    What was written to is put back at the end: a model may keep a mask or a table anywhere.
    """

    def __init__(self, kept: Callable[[], Iterable[Any]]) -> None:
        self._tensors = kept
        self._before: list[tuple[Any, Any]] = []

    @cached_property
    def _kept(self) -> set[int]:
        return {_place(tensor) for tensor in self._tensors()}

    def __call__(self, tensor: Any, value: Any) -> Any:
        """Return the tensor with the value written to it, or the value where that cannot be."""
        if tuple(tensor.shape) != tuple(value.shape) or not _is_writable(tensor) or _place(tensor) in self._kept:
            return value
        self._before.append((tensor, tensor + 0))
        tensor.copy_(value)
        return tensor

    def put_back(self) -> None:
        """Give all tensors the values that they had, the last one first."""
        while self._before:
            tensor, value = self._before.pop()
            tensor.copy_(value)


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _is_writable(tensor: Any) -> bool:
    """Tell whether all is well after a write: MindSpore's to views of a part of a tensor go wrong.

    torch refuses those to tensors of its inference mode.
    """
    if hasattr(tensor, "is_inference"):
        return not tensor.is_inference() and not _overlaps(tensor)
    return bool(tensor.is_contiguous()) and tensor.untyped_storage().nbytes() == tensor.nbytes


def _overlaps(tensor: Any) -> bool:
    """Tell whether one place in memory may stand for several elements: expanded tensors, sliding windows."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += (size - 1) * step
    return False
