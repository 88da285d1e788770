"""The first tensor of an iteration that is no number, and the loss that is computed in half precision."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from align.models.nested_values import leaves
from align.watch.loss_scale_result import OverflowPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.models.loop_watcher import LoopCall, LoopForms

HALF = frozenset({"float16", "bfloat16"})


class OverflowSink:
    """A LoopSink that looks at what modules return, and at the gradients that come back to it."""

    def __init__(self, forms: LoopForms, iteration: int) -> None:
        self._forms, self._iteration = forms, iteration
        self._forward: OverflowPlace | None = None
        self._backward: OverflowPlace | None = None
        self._last = ""
        self.half_losses: dict[str, str] = {}

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Nothing is kept."""

    def returned(
        self, call: LoopCall, _module: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """Look at what a call returned."""
        for _, leaf in leaves(output):
            if not self._forms.is_floating(leaf):
                continue
            if tuple(leaf.shape) in ((), (1,)) and (dtype := self._forms.dtype_of(leaf)) in HALF:
                self.half_losses.setdefault(call.path, dtype)
            if self._forward is None and not self._finite(leaf):
                self._forward = OverflowPlace(self._iteration, call.path, call.class_name, "forward")

    def arrived(self, call: LoopCall, _name: str, gradient: Any) -> None:
        """Look at a gradient."""
        if self._backward is not None:
            return
        if self._finite(gradient):
            self._last = call.path
        else:
            self._backward = OverflowPlace(self._iteration, call.path, call.class_name, "backward", self._last)

    def place(self) -> OverflowPlace:
        """Where the iteration, which overflowed, did so first."""
        return self._forward or self._backward or OverflowPlace(self._iteration, None, "", "backward", self._last)

    def _finite(self, tensor: Any) -> bool:
        return isfinite(self._forms.norms([self._forms.norm(tensor)])[0])
