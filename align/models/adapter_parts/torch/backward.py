"""One backward pass of a torch model from a fixed mix of what it returns; its own gradients stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.gradients import GradientRecorder, random_weighted_sum
from align.models.adapter_parts.torch.state import is_scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.adapter_parts.gradients import FromArray, ToArray


def differentiate(
    model: Model, call: Callable[[], Any], given: Sequence[Any], sink: CaptureSink, forms: tuple[ToArray, FromArray]
) -> None:
    """Run `call`, then back to the parameters and to the floating ones of the tensors `given` to it."""
    import torch

    def has_gradient(value: Any) -> bool:
        return torch.is_tensor(value) and value.requires_grad and not value.is_complex()

    to_array, from_array = forms
    recorder = GradientRecorder(sink, to_array, has_gradient)
    ends = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()]
    ends += [parameter for parameter in model.parameters() if parameter.requires_grad]
    seen = ((path, module) for path, module in model.named_modules() if not is_scripted(module))
    with recorder.watching(seen), torch.enable_grad():
        mix = random_weighted_sum(call(), has_gradient, from_array)
    if torch.is_tensor(mix) and ends:
        torch.autograd.grad(mix, ends, allow_unused=True)
