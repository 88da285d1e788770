"""A small torch model whose code does what a test asks for, and its comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward

ALIGNED, WRONG = Outcome.ALIGNED, Outcome.NOT_ALIGNED


def inputs(seed: int = 0) -> dict[str, Any]:
    return {"x": np.random.default_rng(seed).standard_normal((4, 6, 8)).astype(np.float32)}


def net(**steps: Any) -> Any:
    """A small torch model; `steps` are what its code does: `first`, `between`, `last`, each of (net, tensor)."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8)

        def forward(self, x: Any) -> Any:
            x = steps.get("first", same)(self, x)
            hidden = steps.get("between", lambda _, h: torch.relu(h))(self, self.n(self.a(x)))
            return steps.get("last", same)(self, self.b(hidden))

    torch.manual_seed(0)
    return Net()


def same(_: Any, value: Any) -> Any:
    return value


def compared(reference: Any, candidate: Any, given: Any = None, **options: Any) -> Any:
    options.setdefault("power", False)
    return compare_forward(reference, candidate, inputs=given or inputs(), **options)
