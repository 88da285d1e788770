"""Modules put into the order in which a run called them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    """Return the side with its modules in the order of their first return.

    Unchanged if any module with parameters was never called (its functions may have been used past its hooks): its
    place would be unknown.
    """
    if any(module.parameters and module.path not in order.first for module in side.modules):
        return side
    last = len(order.first)
    modules = sorted(side.modules, key=lambda module: order.first.get(module.path, last))
    return replace(side, modules=tuple(modules), order="execution")
