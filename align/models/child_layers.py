"""The layers that a layer holds, as its framework keeps them."""

from __future__ import annotations

from functools import reduce
from typing import Any

CHILDREN = ("_modules", "_cells")  # where torch and MindSpore keep the layers of a list, by their names


def layer_at(model: object, path: str) -> Any:
    """The live layer at a path."""
    return reduce(getattr, path.split(".") if path else [], model)


def children_of(holder: object) -> dict[str, Any]:
    """The layers that one holds, by name, in their order; this is what the framework itself keeps."""
    found: dict[str, Any] = next((vars(holder)[one] for one in CHILDREN if one in vars(holder)), {})
    return found
