"""How much what a torch model returns depends on each parameter, by one backward pass from a random mix of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from align.core.calling import leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.protocols import Model

_SEED = 0


def influences(model: Model, call: Callable[[], Any]) -> dict[str, float]:
    """Expected change of the outputs, as a share of their size, if a parameter changes by its own root mean square.

    `call` runs the model. With L a sum of the outputs with standard normal weights, E |dL/dp|^2 is the squared
    Frobenius norm of the Jacobian. 0 where no gradient arrives; gradients of the model's parameters are overwritten.
    """
    import torch

    own = {name: p for name, p in model.named_parameters() if p.is_floating_point()}
    for parameter in own.values():
        parameter.grad = None
        parameter.requires_grad_(True)
    with torch.enable_grad():
        outputs = [leaf for _, leaf in leaves(call()) if torch.is_tensor(leaf) and leaf.requires_grad]
        if not outputs:
            return dict.fromkeys(own, 0.0)
        generator = torch.Generator().manual_seed(_SEED)
        mixes = [torch.randn(leaf.shape, generator=generator, dtype=torch.float64) for leaf in outputs]
        mixed = sum((leaf * mix.to(leaf)).sum() for leaf, mix in zip(outputs, mixes, strict=True))
        mixed.backward()
    size = sum(float(leaf.detach().abs().square().sum()) for leaf in outputs) ** 0.5
    return {name: _share(parameter, size) for name, parameter in own.items()}


def _share(parameter: Any, size: float) -> float:
    if parameter.grad is None or not parameter.numel() or not size:
        return 0.0
    squares = float(parameter.detach().square().mean()) * float(parameter.grad.square().sum())
    return math.sqrt(squares) / size
