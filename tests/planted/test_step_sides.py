"""Models that return their loss, as those of Hugging Face do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from step_nets import batch, torch_side

import align

pytestmark = pytest.mark.frameworks


def returning_loss(halved: float = 1.0) -> align.Training:
    """A torch model that returns its loss in a dict, as those of Hugging Face do."""
    import torch

    side = torch_side(optimizer="momentum")

    class WithLoss(type(side.model)):  # type: ignore[misc]
        def forward(self, x: Any, label: Any) -> Any:
            logits = super().forward(x)
            return {"loss": halved * torch.nn.functional.cross_entropy(logits, label), "logits": logits}

    side.model.__class__ = WithLoss
    return replace(side, loss=None)


def test_models_that_return_their_loss() -> None:
    for halved, at_fault in ((1.0, False), (0.5, True)):
        result = align.compare_training_step(returning_loss(), returning_loss(halved), batch=batch(), steps=1)
        assert bool(result.culprits) == at_fault
