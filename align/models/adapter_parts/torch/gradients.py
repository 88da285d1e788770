"""Gradients of a torch model: one pass back from a fixed mix of what it returns, how they are watched, what they say.

On their way back others may take their place; see GradientForms. A pass back from a random mix says how much tensors
depend on each parameter. A model's own gradients stay as they are.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from align.core.thresholds import FLOAT64_ROUNDING
from align.core.traces import capture_key
from align.models.adapter_parts.step_calls import GradientRecorder, random_weighted_sum
from align.models.adapter_parts.torch.state import is_scripted, to_array, to_tensor
from align.models.live_calls import leaves
from align.models.thresholds import INFLUENCE_ROUNDING_UNITS, SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.adapter_parts.step_calls import ToArray
    from align.models.record_calls import FromArray


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

    def copy_back(self, tensor: Any, given: Any, returned: Any) -> None:
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


def sum_of_outputs(outputs: Any, *_unused: Any) -> Any:
    """The sum of all numbers that a model returns and that have a gradient, as a loss."""
    import torch

    return sum(_real(leaf).sum() for _, leaf in leaves(outputs) if torch.is_tensor(leaf) and leaf.requires_grad)


def influences(model: Model, call: Callable[[], Any]) -> tuple[dict[str, float], float]:
    """Expected change of the outputs, as a share of their size, if a parameter changes by its own root mean square.

    Also returned: the share below which it is rounding. `call` runs the model. With L a sum of the outputs with
    standard normal weights, E |dL/dp|^2 is the squared Frobenius norm of the Jacobian. 0 where no gradient arrives,
    or none that is a number. The model is a copy: its parameters require gradients afterwards.
    """
    import torch

    own = _differentiable(model)
    with torch.enable_grad(), _watched() as watched:
        outputs = [_real(leaf) for _, leaf in leaves(call()) if torch.is_tensor(leaf) and leaf.requires_grad]
    noise = max(INFLUENCE_ROUNDING_UNITS * watched.unit, FLOAT64_ROUNDING)
    if not outputs:
        return dict.fromkeys(own, 0.0), noise
    generator = torch.Generator().manual_seed(SEED)
    mixes = (torch.randn(leaf.shape, generator=generator).to(leaf) for leaf in outputs)
    mixed = sum((leaf * mix).sum().cpu() for leaf, mix in zip(outputs, mixes, strict=True))
    gradients = torch.autograd.grad(mixed, [*own.values()], allow_unused=True)
    size = math.sqrt(sum(_squares(leaf) for leaf in outputs))
    pairs = zip(own.items(), gradients, strict=True)
    return {name: _share(parameter, gradient, size) for (name, parameter), gradient in pairs}, noise


def gradients(model: Model, call: Callable[[], Any], scales: Mapping[str, float]) -> dict[str, Any]:
    """Gradients by parameter of the sum over tensors of (tensor * standard normal) / scale, None where none arrives.

    `scales` are those of what modules return, by `Capture.key`. `call` runs the model, which is a copy: its parameters
    require gradients afterwards. Each tensor is mixed as it is returned: later operations in place change nothing.
    """
    import torch

    own = _differentiable(model)
    mix = _Mix(scales)
    seen = [(path, module) for path, module in model.named_modules() if not isinstance(module, torch.jit.ScriptModule)]
    handles = [module.register_forward_hook(partial(mix.add, path)) for path, module in seen]
    with torch.enable_grad():
        call()
    for handle in handles:
        handle.remove()
    found = torch.autograd.grad(sum(mix.parts), [*own.values()], allow_unused=True) if mix.parts else [None] * len(own)
    return dict(zip(own, found, strict=True))


class _Mix:
    """Adds up what modules return, each element times a random number."""

    def __init__(self, scales: Mapping[str, float]) -> None:
        import torch

        self.parts: list[Any] = []
        self._scales = scales
        self._calls: Counter[str] = Counter()
        self._generator = torch.Generator().manual_seed(SEED)

    def add(self, path: str, _module: Any, _inputs: Any, output: Any) -> None:
        import torch

        for name, leaf in leaves(output):
            scale = self._scales.get(capture_key(path, self._calls[path], name))
            if scale and torch.is_tensor(leaf) and leaf.requires_grad:
                numbers = _real(leaf)
                weights = torch.randn(numbers.shape, generator=self._generator) / scale
                self.parts.append((numbers * weights.to(numbers)).sum().cpu())
        self._calls[path] += 1


def _differentiable(model: Model) -> dict[str, Any]:
    """The parameters that may have a gradient, which from now on they require."""
    own = {name: p for name, p in model.named_parameters() if p.is_floating_point() or p.is_complex()}
    for parameter in own.values():
        parameter.requires_grad_(True)
    return own


def _watched() -> Any:
    """A mode that notes in `unit` the rounding unit of the coarsest dtype in which something with a gradient is held.

    A float64 copy may still compute in float32: attention often has its softmax there, whatever the model's dtype.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Watched(TorchFunctionMode):  # type: ignore[misc]
        unit = torch.finfo(torch.float64).eps

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            self.note(result if isinstance(result, (tuple, list)) else (result,))
            return result

        def note(self, results: Iterable[Any]) -> None:
            held = (one for one in results if torch.is_tensor(one) and one.requires_grad)
            self.unit = max(self.unit, *(torch.finfo(one.dtype).eps for one in held), 0.0)

    return Watched()


def _real(tensor: Any) -> Any:
    """The numbers of an output as real ones, of at least float32: sums of less overflow."""
    import torch

    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def _squares(tensor: Any) -> float:
    return float(tensor.detach().abs().square().sum())


def _share(parameter: Any, gradient: Any, size: float) -> float:
    if gradient is None or not parameter.numel() or not size:
        return 0.0
    share = math.sqrt(_squares(parameter) / parameter.numel() * _squares(gradient)) / size
    return share if math.isfinite(share) else 0.0
