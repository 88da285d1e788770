"""A module often returns what the last one inside it returned: the very same tensor, which need not be looked at again.

That takes a framework that counts how often a tensor was written to, as torch does (but for writes through `.data`);
MindSpore's `_version` stays 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from align.core.traces import Capture

Writes = Callable[[Any], int | None]
"""How often a tensor was written to, None where nobody counts."""


def no_write_count(_tensor: Any) -> int | None:
    """Nobody counts."""
    return None


class LatestTensors:
    """The tensors of the call that ended last; they stay alive meanwhile, so that none is mistaken for another."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._known: list[tuple[Any, int, Capture]] = []
        self._new: list[tuple[Any, int, Capture]] = []

    def same(self, tensor: Any) -> Capture | None:
        """The capture of the last call that is this tensor, not written to since; None if there is none."""
        for known, before, capture in self._known:
            if known is tensor and before == self._writes(tensor):
                return capture
        return None

    def note(self, tensor: Any, capture: Capture) -> None:
        """Take a tensor of the call that is about to end."""
        count = self._writes(tensor)
        if count is not None:
            self._new.append((tensor, count, capture))

    def finish(self) -> None:
        """From now on, what was noted is what the last call returned."""
        self._known, self._new = self._new, []
