"""A module often returns what the last one inside it returned: the very same tensor, which need not be looked at again.

torch counts how often a tensor was written to; where nothing counts (MindSpore, tensors of inference mode), nothing is
taken for the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from align.core.traces import Capture


class LatestTensors:
    """The tensors of the call that ended last; they stay alive meanwhile, so that none is mistaken for another."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, int, Capture]] = []
        self._new: list[tuple[Any, int, Capture]] = []

    def same(self, tensor: Any) -> Capture | None:
        """The capture of the last call that is this tensor, not written to since; None if there is none."""
        version = _version(tensor)
        return next((one for known, before, one in self._known if known is tensor and before == version), None)

    def note(self, tensor: Any, capture: Capture) -> None:
        """Take a tensor of the call that is about to end."""
        version = _version(tensor)
        if version is not None:
            self._new.append((tensor, version, capture))

    def finish(self) -> None:
        """From now on, what was noted is what the last call returned."""
        self._known, self._new = self._new, []


def _version(tensor: Any) -> int | None:
    try:
        return getattr(tensor, "_version", None)
    except RuntimeError:  # tensors of torch's inference mode
        return None
