"""One cause that shows at many parameters is one culprit that lists them, and clean twins of these show none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

SAMPLES = 12


def batch() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    values = generator.standard_normal((SAMPLES, 8)).astype(np.float32)
    return {"x": values, "label": generator.standard_normal(SAMPLES).astype(np.float32)}


def side(optimizer: Callable[[Any], Any] | None = None, step: Callable[[Any, Any, Any], Any] | None = None) -> Any:
    """A net with parameters of a single number, of which one step tells little."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.act, self.norm = nn.Linear(8, 16), nn.PReLU(), nn.LayerNorm(16)
            self.head, self.scale = nn.Linear(16, 1), nn.Parameter(torch.full((), 0.7))

        def forward(self, x: Any) -> Any:
            return self.head(self.act(self.norm(self.stem(x))))[:, 0] * self.scale

    torch.manual_seed(0)
    model, loss = Net(), torch.nn.MSELoss()
    made = optimizer(model) if optimizer else torch.optim.SGD(model.parameters(), 0.1)
    return align.Training(model, loss, made, step and step(model, loss, made))


def compared(reference: Any, candidate: Any, steps: int = 1) -> Any:
    return align.compare_training_step(reference, candidate, batch=batch(), steps=steps)


def decaying(decay: float, kind: str) -> Callable[[Any], Any]:
    import torch

    made = {"sgd": (torch.optim.SGD, 0.1), "adamw": (torch.optim.AdamW, 1e-3)}[kind]
    return lambda model: made[0](model.parameters(), made[1], weight_decay=decay)


@pytest.mark.parametrize(("kind", "steps"), [("sgd", 1), ("adamw", 2)])
def test_a_decay_that_one_side_lacks_is_one_culprit(kind: str, steps: int) -> None:
    for decays in ((0.01, 0.0), (0.0, 0.01)):
        result = compared(*(side(decaying(one, kind)) for one in decays), steps)
        (culprit,) = result.culprits
        assert (culprit.cause, culprit.sureness) == ("weight-decay", "confirmed")
        assert culprit.facts == {"weight_decay": f"{decays[0]:g} vs {decays[1]:g}"}
        moved = {one.candidate for one in result.updates if one.factor > 1.0}
        assert {*culprit.parameters} == moved
        assert {"scale", "act.weight", "stem.weight"} <= moved
    assert compared(side(decaying(0.01, kind)), side(decaying(0.01, kind)), steps).culprits == ()


def grouped(factor: float) -> Callable[[Any], Any]:
    """Two groups, of unlike rates."""
    import torch

    def made(model: Any) -> Any:
        own = [*model.parameters()]
        return torch.optim.SGD([{"params": own[:2], "lr": 0.1 * factor}, {"params": own[2:], "lr": 0.02 * factor}], 1.0)

    return made


def test_rates_of_two_groups_that_are_off_by_one_factor_are_one_culprit() -> None:
    (culprit,) = compared(side(grouped(1.0)), side(grouped(0.5)), 2).culprits
    assert (culprit.cause, culprit.facts["rates"]) == ("learning-rate", "0.02 vs 0.01, 0.1 vs 0.05")
    assert len(culprit.parameters) == 8
    assert compared(side(grouped(1.0)), side(grouped(1.0)), 2).culprits == ()
