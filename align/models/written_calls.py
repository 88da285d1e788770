"""Calls of layers as source of Python: the name of the class in a file, and its arguments."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.layer_settings import Setting


def written(value: Setting) -> str:
    """Return a setting as source, texts in double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return '"' + value + '"' if isinstance(value, str) else repr(value)


def keywords(arguments: Mapping[str, Setting]) -> str:
    """Return arguments as they stand in a call."""
    return ", ".join(f"{name}={written(value)}" for name, value in arguments.items())


def class_of(layer: str) -> type:
    """The class of a full name, as `mindspore.nn.ReLU`."""
    holder, _, name = layer.rpartition(".")
    found: type = getattr(import_module(holder), name)
    return found


def name_in(file: str, layer: str) -> str:
    """What the module of a file calls a class: `nn.ReLU`; "" where it imports neither the class nor what holds it."""
    kind, name = class_of(layer), layer.rpartition(".")[2]
    module = next((one for one in [*sys.modules.values()] if getattr(one, "__file__", None) == file), None)
    for key, value in vars(module).items() if module else ():
        if value is kind:
            return key
        if isinstance(value, ModuleType) and getattr(value, name, None) is kind:
            return f"{key}.{name}"
    return ""
