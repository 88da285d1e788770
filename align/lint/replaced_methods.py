"""Methods that users wrote in place of the framework's: a class that steps or computes by itself is not its base."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING

from align.models.source_lines import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Iterator

HARMLESS = {  # what builds, shows, saves or moves, and so leaves the computation as it is
    "__init__", "__init_subclass__", "__new__", "__repr__", "__str__", "__getstate__", "__setstate__", "__setattr__",
    "__getattr__", "__deepcopy__", "__reduce__", "extra_repr", "state_dict", "load_state_dict", "add_param_group",
    "set_train", "train", "eval", "to",
}  # fmt: skip


def replaced_methods(maker: type) -> list[str]:
    """Name the methods of a framework's class that a class of users overrides: `Clipped.construct`."""
    return [f"{cls.__name__}.{name}" for cls, name in _replaced(maker)]


def framework_class(maker: type) -> type:
    """The first class among a class and its bases that is a framework's; the class itself if none is."""
    return next((cls for cls in maker.__mro__ if _is_framework(cls)), maker)


def _replaced(maker: type) -> Iterator[tuple[type, str]]:
    base = framework_class(maker)
    for cls in maker.__mro__[: maker.__mro__.index(base)]:
        for name, value in vars(cls).items():
            if name not in HARMLESS and _is_other(value, getattr(base, name, None)):
                yield cls, name


def _is_other(own: object, inherited: object) -> bool:
    """Tell a function of the user's: torch puts its own step, wrapped for a profiler, into classes that inherit it."""
    if not callable(own) or not callable(inherited):
        return False
    written = inspect.unwrap(own)
    return isinstance(written, FunctionType) and written is not inspect.unwrap(inherited)


def _is_framework(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in FRAMEWORKS
