"""How much tensors of a torch model depend on each parameter, by one backward pass from a random mix of them."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.traces import capture_key
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from align.core.protocols import Model

_SEED = 0
# Shares this many times the rounding unit of the coarsest dtype on the way are rounding: of key biases, which softmax
# cancels, 4 units are left in one layer, and the rounding of some hundred layers adds up like a random walk.
_UNITS = 100
# Far above the rounding of float64 in a model of any depth, far below what a layer of any depth has left.
_LEAST = 1e-9


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
    noise = max(_UNITS * watched.unit, _LEAST)
    if not outputs:
        return dict.fromkeys(own, 0.0), noise
    generator = torch.Generator().manual_seed(_SEED)
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
        self._generator = torch.Generator().manual_seed(_SEED)

    def add(self, path: str, _module: Any, _inputs: Any, output: Any) -> None:
        """Take what one call of a module returned."""
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
    own = {name: p for name, p in model.named_parameters() if _is_continuous(p)}
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


def _is_continuous(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


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
