"""The user's code: the boundary behind which it runs, and what a run must leave as it was, as random states.

A model may count its calls, keep a cache or register a longer table in its forward; a table that is put back without
the number that says how long it is would break the next run, so all attributes go back together.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import numpy as np

from align.core.about import refuse_sudden_ends
from align.core.load_code import check_packages, import_user_code, model_readers, users_code
from align.core.parameters import TensorMemory
from align.core.protocols import Preparer
from align.errors import AlignError, CannotRunError, SideError, UserCodeError
from align.models.live_calls import raised_at, set_meanwhile
from align.models.thresholds import CHECKSUM_ELEMENTS, SEED
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.parameters import Array

_seed = ContextVar("seed", default=SEED)


def seed_of_runs() -> int:
    """The seed that every run starts from now."""
    return _seed.get()


def other_seed(seed: int = SEED + 1) -> AbstractContextManager[int]:
    """Let runs start from another seed for a while: what differs then depends on random numbers."""
    return set_meanwhile(_seed, seed)


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
    copies = [(one, one.copy()) for one in containers if one]
    try:
        yield
    finally:
        for container in filter(None, empty):
            container.clear()
        for container, content in copies:
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
    known_ids = {id(one) for one in (*modules, *tensors)}
    owners = {id(owner): owner for module in modules for owner in (module, *type(module).__mro__)}
    for owner in owners.values():
        for name, function in _functions(vars(owner)):
            for kept in _kept(function):
                if isinstance(kept, kinds) and id(kept) not in known_ids:
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
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += (size - 1) * step
    return False


# The one boundary where every exception is caught: behind it runs code that is not ours.
#
# While it runs, the command line, the folder and the end of the process stay align's own. A function of the user's is
# named by its module or file.


T = TypeVar("T")
_FOLDERS_AFTER_IMPORT: dict[str, str] = {}


def run_user_code(code: Callable[[], T], failed: Callable[[BaseException], AlignError], folder: str = "") -> T:
    """Return what the user's code returns; whatever it raises, or a call that ends the program, is `failed(error)`.

    An AlignError passes: it comes from our own code that the user's code called, a sink or a reader. What the code
    prints goes to standard error, since standard output is for results. It starts in `folder`, by default the current
    one, and sees no arguments of the command line; folder and arguments are put back.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), kept_process(folder), users_code():
            return code()
    except AlignError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):  # of our own sinks too, which the code calls
            raise CannotRunError.of("memory_error.all") from error
        raise failed(error) from error


# torch and MindSpore raise RuntimeError where their allocators find no memory: torch of the processor
# ("DefaultCPUAllocator: can't allocate memory"; on Windows "not enough memory"), of a GPU ("CUDA out of memory") and of
# an NPU ("NPU out of memory"), MindSpore ("Allocate memory failed", "Memory not enough"), onnxruntime its arena.
_NO_MEMORY = re.compile(
    r"DefaultCPUAllocator: |\b(?:CUDA|NPU|HIP|XPU) out of memory|^Allocate memory failed|Memory not enough"
    r"|Failed to allocate memory for requested buffer"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of Python or of a framework says that there is no memory left."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error))))


@contextlib.contextmanager
def kept_process(folder: str = "") -> Iterator[None]:
    """Give the user's code no arguments of ours, start it in `folder`, and undo what it does to the process.

    `os._exit` and `os.exec*` raise ProgramEnded here: they would end align with a code of the user's choice.
    """
    argv, hook, before = sys.argv, sys.excepthook, _current_folder()
    sys.argv = argv[:1]
    _go_to(folder)
    allow_ends = refuse_sudden_ends()
    try:
        yield
    finally:
        allow_ends()
        sys.argv, sys.excepthook = argv, hook
        _go_to(before)


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed while align runs in it
        return ""


def _go_to(folder: str) -> None:
    if folder and folder != _current_folder():
        os.chdir(folder)


def load_function(side: str, what: str = "model file") -> Callable[[], Any]:
    """Return the function that `package.module:function` or `file.py:function` names; whatever it raises is wrapped.

    A model that stands there, which may be called as well, is what the function returns. `what` a file that is not
    there is called.
    """
    function = find_function(side, what)
    if any(reader.owns(function) for reader in model_readers().values()):
        return lambda: function
    return lambda: _guarded(side, function, _FOLDERS_AFTER_IMPORT.get(side.rpartition(":")[0], ""))


def find_function(side: str, what: str = "model file") -> Callable[..., Any]:
    """Return what `package.module:function` or `file.py:function` names, which can be called; raises SideError."""
    meant = what.removesuffix(" file")
    place, separator, name = side.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise SideError(side, say("side_usage.no_form"), meant)
    module = _guarded(side, lambda: _imported(place, what))
    function = getattr(module, name, None)
    if not callable(function):
        fault = "side_usage.no_function" if hasattr(module, name) else "side_usage.no_such_name"
        raise SideError(
            side,
            say(fault, name=name, place=place, functions=_function_names(module) or say("side_usage.no_functions")),
            meant,
        )
    found: Callable[..., Any] = function
    return found


def _imported(place: str, what: str) -> Any:
    """Import it, and keep the folder that its code went to, from which its functions may read files."""
    before = str(Path.cwd())
    module = import_user_code(place, what)
    if (after := str(Path.cwd())) != before:
        _FOLDERS_AFTER_IMPORT[place] = after
    return module


def _function_names(module: Any) -> str:
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
    return ", ".join(sorted(name for name in own if not name.startswith("_")))


def _guarded(side: str, code: Callable[[], Any], folder: str = "") -> Any:
    def failed(error: BaseException) -> AlignError:
        if isinstance(error, ModuleNotFoundError):
            return _missing_module(side, error)
        failure = _named_otherwise(UserCodeError(say("model_error.building", side=side), error), side, error)
        if line := raised_at(error):
            failure.hint = say("model_error.look_at", line=line, hint=failure.hint)
        return failure

    for reader in model_readers().values():
        if isinstance(reader, Preparer):
            reader.prepare()
    return run_user_code(code, failed, folder)


def _named_otherwise(failed: UserCodeError, side: str, error: BaseException) -> UserCodeError:
    """Say of a relative import that leads nowhere how to name the side instead."""
    place, _, function = side.rpartition(":")
    if isinstance(error, ImportError) and "relative import" in str(error):
        if place.endswith(".py"):
            failed.hint = say("side_usage.dot_in_folder")
        else:
            failed.hint = say("side_usage.as_package", path=place.replace(".", "/"), function=function)
    return failed


def _missing_module(side: str, error: ModuleNotFoundError) -> CannotRunError:
    name = error.name or ""
    for reader in model_readers().values():
        if name.partition(".")[0] in reader.requires:
            check_packages(reader)
    if f"{side.rpartition(':')[0]}.".startswith(f"{name}."):
        return SideError(side, say("side_usage.no_module", name=name))
    return UserCodeError(say("model_error.building", side=side), error)
