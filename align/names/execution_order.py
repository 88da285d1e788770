"""Modules put into the order in which a run called them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from align.core.message_words import counted
from align.names.fold_names import fold_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.parameters import ParameterSet
    from align.core.traces import Capture


@dataclass
class CallOrder:
    """A CaptureSink that only remembers when each module first returned."""

    first: dict[str, int] = field(default_factory=dict)

    def add(self, capture: Capture, value: Array) -> None:  # noqa: ARG002
        """Note a module."""
        self.first.setdefault(capture.module, capture.order)


def in_execution_order(side: ParameterSet, order: CallOrder) -> ParameterSet:
    """Return the side with its modules in the order of their first return, and those marked that were not seen to run.

    Those stand where the module around them ended; their tensors may have been used past them, as attention uses its
    output projection. If no module with parameters was seen, the order of registration stays.
    """
    modules = tuple(m if m.path in order.first else replace(m, ran=False) for m in side.modules)
    if not any(module.parameters and module.ran for module in modules):
        return replace(side, modules=modules)
    modules = tuple(sorted(modules, key=lambda module: _end(module.path, order.first)))
    return replace(side, modules=modules, order="execution")


def _end(path: str, first: Mapping[str, int]) -> int:
    while path and path not in first:
        path = path.rpartition(".")[0]
    return first.get(path, len(first))


def unseen_modules(side: ParameterSet) -> list[str]:
    """Say, in one line, which modules with parameters were not seen to run; nothing if all were."""
    paths = [module.path for module in side.modules if module.parameters and not module.ran]
    if not paths:
        return []
    were, them = ("was", "it") if len(paths) == 1 else ("were", "them")
    count = f"{counted(len(paths), 'module')} of {side.label} {were} not seen to run"
    return [f"{count}, so that the order tells nothing of {them}: {', '.join(fold_names(paths))}"]
