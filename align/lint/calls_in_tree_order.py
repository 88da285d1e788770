"""The modules of a model as if each had been called once, in the order of the tree: to pair layers without a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.traces import Capture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Module, ParameterSet


def calls_in_tree_order(side: ParameterSet) -> list[Capture]:
    """Return a capture of unknown output for each module; it comes after all modules inside, as it returns later."""
    return [Capture(order, one.path, 0, "", one.class_name, (), "") for order, one in enumerate(_returned(side))]


def _returned(side: ParameterSet) -> Iterator[Module]:
    around: list[Module] = []
    for module in side.modules:
        while around and not _is_inside(module.path, around[-1].path):
            yield around.pop()
        around.append(module)
    yield from reversed(around)


def _is_inside(path: str, other: str) -> bool:
    return not other or path.startswith(f"{other}.")
