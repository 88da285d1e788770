"""Where a call came from, and what it was given, found without looking at any value."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from align.core.load_code import INSTALLED
from align.core.traces import TensorKind

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FrameType

    from align.core.parameters import Array
    from align.core.training import LabelClasses

    ToArray = Callable[[Any], Array | None]
    FromArray = Callable[[Array, Any], Any]


# Modules whose frames are no place of the user's: they call what the user's code set up (`Sequential`, hooks).
FRAMEWORKS = frozenset({"torch", "mindspore"})
NOT_THE_USERS = FRAMEWORKS | {"align", "contextlib"}

# The name of functions of ours that stand between the user's code and a framework's, and only pass a call on.
PASSES_ON = "passed_on_to_framework"
# Ours, where the user's code begins: what called it is no part of the model.
BOUNDARY = "align.models.user_code"


def user_line(home: str) -> str:
    """`file:line` of the innermost frame of the user's model around here; "" if no code of the user's is running.

    Files in the folder `home` are given from there.
    """
    return next(user_lines(home), "")


def user_lines(home: str) -> Iterator[str]:
    """Yield the lines of the user's model that lead here, as `user_line` gives them, the innermost first.

    They end where a framework called the user's code.
    """
    frame: FrameType | None = inspect.currentframe()
    is_there = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        is_users = module.partition(".")[0] not in NOT_THE_USERS
        if module == BOUNDARY or (is_there and not is_users):
            return
        if is_users:
            is_there = True
            yield f"{frame.f_code.co_filename.removeprefix(home)}:{frame.f_lineno}"
        frame = frame.f_back


def user_place() -> str:
    """`file:line` as messages name it, of the innermost frame of the user's model around here; "" if there is none."""
    file, _, line = user_line("").rpartition(":")
    return _shown(file, line)


def raised_at(error: BaseException) -> str:
    """`file:line` of the user's code that an exception came through last; "" if it came through none.

    Code of packages that are installed counts only where there is no other: models may be theirs.
    """
    frames = [*traceback.walk_tb(error.__traceback__)]
    begun = [number for number, (frame, _) in enumerate(frames) if _module(frame) == BOUNDARY]
    own = [(frame.f_code.co_filename, line) for frame, line in frames[max(begun, default=-1) + 1 :] if _is_users(frame)]
    nearest = [place for place in own if not INSTALLED.intersection(Path(place[0]).parts)]
    file, line = (nearest or own or [("", 0)])[-1]
    return _shown(file, line)


def _shown(file: str, line: int | str) -> str:
    return f"{(near_path(Path(file)) or Path(file)).as_posix()}:{line}" if file else ""


def near_path(file: Path) -> Path | None:
    """The path from the folder of installed packages, or from the current folder; None for a file elsewhere."""
    installed = [number for number, part in enumerate(file.parts) if part in INSTALLED]
    if installed:
        return Path(*file.parts[installed[-1] + 1 :])
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else None


def _is_users(frame: FrameType) -> bool:
    top = _module(frame).partition(".")[0]
    return top not in NOT_THE_USERS and top not in sys.stdlib_module_names and Path(frame.f_code.co_filename).is_file()


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def called_by_user() -> bool:
    """Tell whether what a framework is doing was asked for by the user's code, not by ours."""
    frame = inspect.currentframe()
    frame = frame.f_back if frame else None  # the function that asks
    while frame := frame.f_back if frame else None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in FRAMEWORKS and frame.f_code.co_name != PASSES_ON:
            return package != "align"
    return False


def tensor_kinds(named: Iterable[tuple[str, Any]]) -> dict[str, TensorKind]:
    """Shape and dtype of those that are tensors, whatever the framework."""
    kinds = {}
    for name, value in named:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is not None and dtype is not None:
            kinds[name] = TensorKind(tuple(shape), str(dtype).rpartition(".")[2].lower())
    return kinds


# A call of a framework's operator, as its dispatch mode shows it: looked at, made again with other tensors, answered.
#
# An operator is a function of its arguments. One that writes into its first argument is run on copies of it, and the
# last outcome is written.


class LiveOperatorCall:
    """One call; `tensors` are those among its arguments, in order, also those inside of lists.

    `function` makes the call of (args, kwargs); `copied` copies a tensor, and is given where the operator writes into
    its first argument.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        given: tuple[tuple[Any, ...], Mapping[str, Any]],
        forms: tuple[ToArray, FromArray],
        copied: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = name
        self._function = function
        self._given = {str(place): one for place, one in enumerate(given[0])} | dict(given[1])
        self._positions = len(given[0])
        self._to_array, self._from_array = forms
        self._copied = copied
        arrays = [(place, leaf, self._to_array(leaf)) for place, leaf in leaves(self._given)]
        self._leaves = [(place, leaf) for place, leaf, array in arrays if array is not None]
        self.tensors: list[Array] = [array for _, _, array in arrays if array is not None]

    def run(self, instead: Mapping[int, Array] | None = None) -> Any:
        """Return what the operator makes of its arguments, with these tensors in the place of its own."""
        new = {
            self._leaves[at][0]: self._from_array(value, self._leaves[at][1]) for at, value in (instead or {}).items()
        }
        if self._copied is not None and self._leaves[0][0] not in new:
            new[self._leaves[0][0]] = self._copied(self._leaves[0][1])
        given = with_leaves(self._given, new.get) if new else self._given
        return self._call(given)

    def output(self, made: Any) -> Array | None:
        """The first tensor of what the operator made."""
        return next(self._arrays(made), None)

    def outputs(self, made: Any) -> list[Array]:
        """All tensors of what the operator made."""
        return [*self._arrays(made)]

    def with_output(self, outcome: Any, value: Array) -> Any:
        """Return what the operator made with its first tensor replaced."""
        place, leaf = next((p, one) for p, one in leaves(outcome) if self._to_array(one) is not None)
        new = {place: self._from_array(value, leaf)}
        return with_leaves(outcome, new.get)

    def plain(self) -> Any:
        """Make the call as it is, writing into what it writes into."""
        return self._call(self._given)

    def answer(self, outcome: Any) -> Any:
        """Return the outcome of the call, written into the first argument where the operator does that."""
        if self._copied is None:
            return outcome
        first = self._leaves[0][1]
        first.copy_(outcome)
        return first

    def _arrays(self, made: Any) -> Iterator[Array]:
        return (array for _, leaf in leaves(made) if (array := self._to_array(leaf)) is not None)

    def _call(self, given: Mapping[str, Any]) -> Any:
        places = [str(place) for place in range(self._positions)]
        return self._function(
            *(given[place] for place in places), **{name: one for name, one in given.items() if name not in places}
        )


# Functions of the user's own with a way back of their own, seen where they are applied, in either framework.


@contextmanager
def around_apply(base: Any, applied: Callable[[Any, Any, Any, Any], None]) -> Iterator[None]:
    """Tell of each `apply` of the classes of a base: the class, arguments by position and by name, and what came.

    A base that only inherits `apply` gets one for that time, so that an `apply` that was looked up before is seen.
    """
    own_apply = vars(base).get("apply")

    def around(function: Any, *args: Any, **kwargs: Any) -> Any:
        apply = super(base, function).apply if own_apply is None else own_apply.__get__(None, function)
        output = apply(*args, **kwargs)
        applied(function, args, kwargs, output)
        return output

    base.apply = classmethod(around)
    try:
        yield
    finally:
        if own_apply is None:
            del base.apply
        else:
            base.apply = own_apply


# Hooks on modules of either framework, by path, which are taken off again.


@contextmanager
def hooked(modules: Iterable[tuple[str, Any]], before: Callable[..., Any], after: Callable[..., Any]) -> Iterator[None]:
    """Call `before` and `after` with the path, then what forward hooks with keywords get, at all calls of modules."""
    with ExitStack() as stack:
        for path, module in modules:
            stack.callback(module.register_forward_pre_hook(partial(before, path), with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(partial(after, path), with_kwargs=True).remove)
        yield


# All objects of a class that are alive: to find what holds something that does not know its holder.

_KNOWN: ContextVar[dict[type, list[Any]] | None] = ContextVar("_KNOWN", default=None)


def living_objects(cls: type) -> list[Any]:
    """Return every instance of a class, or of one derived from it, that Python's collector knows; some 50 ms."""
    known = _KNOWN.get()
    if known is None:
        return _found(cls)
    if cls not in known:
        known[cls] = _found(cls)
    return [*known[cls]]


def looked_for_once() -> AbstractContextManager[Any]:
    """Let living_objects answer from what it found first: for work that asks often, while none of them are made."""
    return set_meanwhile(_KNOWN, {})


def _found(cls: type) -> list[Any]:
    objects, types = gc.get_objects(), _derived(cls)
    return list(compress(objects, map(types.__contains__, map(type, objects))))


def _derived(cls: type) -> set[type]:
    return {cls}.union(*map(_derived, type.__subclasses__(cls)))


# Nested containers taken apart into named leaves, and put together again.


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
        copied = copy.copy(value)
        for field in dataclasses.fields(value):
            item = with_leaves(getattr(value, field.name), put, inside(name, field.name))
            object.__setattr__(copied, field.name, item)
        return copied
    return put(name, value)


def inside(name: str, key: Any) -> str:
    """The name of a leaf in what is called `name`."""
    return f"{name}.{key}" if name else str(key)


# `align.probe`: a value anywhere in the code of a model, compared like a layer's output.
#
# Outside of a run that records it costs one look-up and gives the value back.

T = TypeVar("T")
PROBE = "probe"  # the class of what is probed
_PREFIX = "probe:"


class Recorder(Protocol):
    """Takes probed values."""

    def probe(self, path: str, value: Any) -> Any:
        """Note a value; return it, or what is to stand in its place."""


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def probe(name: str, x: T) -> T:
    """Have `x`, a tensor or a structure of tensors, compared with the other side's probe of this name; return it.

    Use what is returned (`x = align.probe("scores", x)`): when layers are compared alone, it is the reference's value.
    A name that is met several times counts its calls.

    >>> probe("scores", 3)
    3
    """
    recorder = _recorder.get()
    return x if recorder is None else recorder.probe(f"{_PREFIX}{name}", x)


def is_probe(path: str) -> bool:
    """Tell whether this is the path of a probe, and not of a module."""
    return path.startswith(_PREFIX)


def probe_name(path: str) -> str:
    """The name that the user gave the probe at this path."""
    return path.removeprefix(_PREFIX)


def probed_by(recorder: Recorder) -> AbstractContextManager[Recorder | None]:
    """Hand what is probed meanwhile to the recorder."""
    return set_meanwhile(_recorder, recorder)


_labels: ContextVar[list[LabelClasses] | None] = ContextVar("labels", default=None)


@contextmanager
def noted_labels() -> Iterator[list[LabelClasses]]:
    """The labels that losses take meanwhile as numbers of classes."""
    noted: list[LabelClasses] = []
    with set_meanwhile(_labels, noted):
        yield noted


def note_labels(labels: LabelClasses) -> None:
    """Note labels for who asks for them."""
    if (noted := _labels.get()) is not None:
        noted.append(labels)


@contextmanager
def set_meanwhile(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Give a context variable a value for a while."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
