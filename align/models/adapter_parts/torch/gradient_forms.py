"""How torch watches gradients on their way back, and lets others take their place; see GradientForms."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.torch.arrays import to_array, to_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.dtypes import Array


class TorchGradients:
    """The forms of one step; `like` is any parameter of the model, None for a model without one."""

    def __init__(self, like: Any) -> None:
        import torch

        device = "cpu" if like is None else like.device
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def to_array(self, value: Any) -> Array | None:
        """Copy out a tensor."""
        import torch

        return to_array(value.detach()) if torch.is_tensor(value) else None

    def has_gradient(self, value: Any) -> bool:
        """Tell whether autograd runs, and takes such tensors."""
        import torch

        return bool(torch.is_grad_enabled() and value.is_floating_point())

    def awaits(self, tensor: Any) -> bool:
        """Tell whether it requires one."""
        return bool(tensor.requires_grad)

    def watched(self, tensor: Any, arrived: Callable[[Array], None]) -> Any:
        """Return the tensor under another name: the same memory, and a place of its own on the way back."""
        return _functions().watched.apply(tensor, arrived) if tensor.requires_grad else tensor

    def settle(self, tensor: Any, given: Any, returned: Any) -> None:
        """After an in-place operation let the caller's tensor follow, for whoever uses it later."""
        if given is not tensor and given._version and not (tensor.is_leaf and tensor.requires_grad):  # noqa: SLF001
            tensor.copy_(returned)

    def cut(self, tensor: Any, value: Array, arrived: Callable[[Array], None]) -> Any:
        """Return a new tensor, which requires a gradient whatever the old one did."""
        return _functions().cut.apply(self._anchor, to_tensor(value).to(tensor), arrived)

    def tied(self, tensor: Any, given: Callable[[], Array | None]) -> Any:
        """Return a scalar 0."""
        return _functions().tied.apply(tensor, given) if tensor.requires_grad else tensor.new_zeros(())

    def joined(self, tensor: Any, ties: Sequence[Any]) -> Any:
        """Add zeros, which leave the dtype as it is."""
        return tensor + sum(ties) if ties else tensor


@cache
def _functions() -> Any:
    """The operations, which can be made only where torch is imported."""
    import torch

    class Watched(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, tensor: Any, arrived: Any) -> Any:
            ctx.arrived = arrived
            return tensor.data  # no view: what is done in place to a view loses its place on the way back

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.arrived(to_array(gradient))
            return gradient, None

    class Cut(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, _anchor: Any, value: Any, arrived: Any) -> Any:
            ctx.arrived = arrived
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.arrived(to_array(gradient))
            return None, None, None

    class Tied(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, tensor: Any, given: Any) -> Any:
            ctx.given, ctx.like = given, tensor.new_empty(())
            ctx.shape, ctx.asked = tensor.shape, tensor.is_leaf
            return tensor.new_zeros(())

        @staticmethod
        def backward(ctx: Any, _gradient: Any) -> Any:
            value = ctx.given()
            if value is None and ctx.asked:  # the user's own step may ask for it, as a gradient penalty does
                return ctx.like.new_zeros(ctx.shape), None
            return (None if value is None else to_tensor(value).to(ctx.like).reshape(ctx.shape)), None

    class Functions:
        watched, cut, tied = Watched, Cut, Tied

    return Functions
