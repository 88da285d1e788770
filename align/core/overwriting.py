"""Values written into the very tensors that a call is given: whoever else holds one has the new value too.

What a layer is given may flow past it as well (the residual stream). torch's tensors and MindSpore's are written alike.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Overwriter:
    """Writes to tensors, but never to those that belong to the model (`kept`), nor to views of them."""

    def __init__(self, kept: Callable[[], Iterable[Any]]) -> None:
        self._tensors = kept

    @cached_property
    def _kept(self) -> set[int]:
        return {_place(tensor) for tensor in self._tensors()}

    def __call__(self, tensor: Any, value: Any) -> Any:
        """Return the tensor with the value written to it, or the value where that cannot be."""
        if tuple(tensor.shape) != tuple(value.shape) or _place(tensor) in self._kept or _repeats(tensor):
            return value
        tensor.copy_(value)
        return tensor


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _repeats(tensor: Any) -> bool:
    """Tell whether one place in memory stands for several elements, as in an expanded tensor."""
    return any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))
