"""Generators of random numbers that a model, its loss or its step holds itself: a seed for all does not reach them."""

from __future__ import annotations

import inspect
import pickle
import sys
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.training import Training

# By the package of its class and the class: those of NumPy, of Python, of torch and MindSpore.
_GENERATORS = frozenset(
    {
        ("numpy", "Generator"),
        ("numpy", "RandomState"),
        ("random", "Random"),
        ("torch", "Generator"),
        ("mindspore", "Generator"),
    }
)
_FOREIGN = frozenset({"builtins", "types", "numpy", "torch", "mindspore", "collections", "functools"})
_TRANSPARENT = frozenset({"_modules", "_cells"})  # where frameworks keep the modules inside
_RUNS = ("forward", "construct", "__call__")


class OwnGenerators:
    """The generators that the parts of a training hold, and which of them went on drawing.

    Found in attributes of modules, in what functions close over, and in globals that the code of a forward names.
    """

    def __init__(self, training: Training, is_module: Callable[[Any], bool]) -> None:
        self._found: dict[str, Any] = {}
        seen: set[int] = set()
        parts = {"": training.model, "loss": training.loss, "step": training.step}
        for name, part in parts.items():
            self._found.update(_within(part, name, is_module, seen))
        self._states = {name: _state(one) for name, one in self._found.items()}

    def advanced(self) -> list[str]:
        """Those that drew since, by path and class: `drop.rng (numpy Generator)`."""
        return [name for name, one in self._found.items() if _state(one) != self._states[name]]


def _state(generator: Any) -> bytes:
    """What decides what a generator draws next."""
    if hasattr(generator, "bit_generator"):
        return pickle.dumps(generator.bit_generator.state)
    state = (generator.get_state if hasattr(generator, "get_state") else generator.getstate)()
    to_numpy = getattr(state, "numpy", getattr(state, "asnumpy", None))
    return pickle.dumps(state if to_numpy is None else to_numpy())


def _within(value: Any, path: str, is_module: Callable[[Any], bool], seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if (kind := _generator(value)) is not None:
        yield f"{path} ({kind})", value
        return
    for name, inner in _parts(value, is_module):
        yield from _within(inner, f"{path}.{name}".strip("."), is_module, seen)


def _parts(value: Any, is_module: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """What a value holds, with names; of a dict or list of modules too."""
    if isinstance(value, dict):
        yield from ((str(key), one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(place), one) for place, one in enumerate(value))
    elif isinstance(value, MethodType):
        yield "", value.__func__
    elif isinstance(value, FunctionType):
        yield from _named_by(value)
    elif is_module(value) or _is_plain(value):
        yield from (("" if name in _TRANSPARENT else name, one) for name, one in vars(value).items())
        yield from (("", one) for name in _RUNS if isinstance(one := getattr(type(value), name, None), FunctionType))


def _is_plain(value: Any) -> bool:
    """Tell whether a value is an object of a class that is no framework's: a sampler that a user wrote."""
    return hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in _FOREIGN


def _named_by(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Generators among the globals and the enclosing variables that a function's code names."""
    names = function.__code__.co_names
    yield from ((name, one) for name in names if _generator(one := function.__globals__.get(name)) is not None)
    inner = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    yield from inner.items()


def _generator(value: Any) -> str | None:
    """The package and class of a generator; None for anything else, and for the one that torch seeds for all."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _GENERATORS:
            torch = sys.modules.get("torch")
            common = torch is not None and value is torch.default_generator
            return None if common else f"{package} {kind.__name__}"
    return None
