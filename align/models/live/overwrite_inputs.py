"""Values written into the very tensors that a call is given: whoever else holds one has the new value too.

What a layer is given may flow past it as well (the residual stream). torch's tensors and MindSpore's are written alike.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Overwriter:
    """Writes to tensors, but never to those that belong to the model (`kept`), nor to views of them.

    What was written to is put back at the end: a model may keep a mask or a table anywhere.
    """

    def __init__(self, kept: Callable[[], Iterable[Any]]) -> None:
        self._tensors = kept
        self._before: list[tuple[Any, Any]] = []

    @cached_property
    def _kept(self) -> set[int]:
        return {_place(tensor) for tensor in self._tensors()}

    def __call__(self, tensor: Any, value: Any) -> Any:
        """Return the tensor with the value written to it, or the value where that cannot be."""
        if tuple(tensor.shape) != tuple(value.shape) or not _is_writable(tensor) or _place(tensor) in self._kept:
            return value
        self._before.append((tensor, tensor + 0))
        tensor.copy_(value)
        return tensor

    def put_back(self) -> None:
        """Give all tensors the values that they had, the last one first."""
        while self._before:
            tensor, value = self._before.pop()
            tensor.copy_(value)


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _is_writable(tensor: Any) -> bool:
    """Tell whether all is well after a write: MindSpore's to views of a part of a tensor go wrong.

    torch refuses those to tensors of its inference mode.
    """
    if hasattr(tensor, "is_inference"):
        return not tensor.is_inference() and not _overlaps(tensor)
    return bool(tensor.is_contiguous()) and tensor.untyped_storage().nbytes() == tensor.nbytes


def _overlaps(tensor: Any) -> bool:
    """Tell whether one place in memory may stand for several elements: expanded tensors, sliding windows."""
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += (size - 1) * step
    return False
