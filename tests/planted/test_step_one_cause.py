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


@pytest.mark.parametrize(
    ("kind", "steps", "cases"), [("sgd", 1, [(0.01, 0.0), (0.0, 0.01)]), ("adamw", 2, [(0.01, 0.0)])]
)
def test_a_decay_that_one_side_lacks_is_one_culprit(kind: str, steps: int, cases: list[tuple[float, float]]) -> None:
    for decays in cases:
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


def changing(kind: str, number: float = 0.1) -> Callable[[Any, Any, Any], Any]:
    """A loop that does something to the gradients before the update."""
    import torch

    def made(model: Any, loss: Any, optimizer: Any) -> Any:
        own, clip = [*model.parameters()], torch.nn.utils

        def step(given: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(given["x"]), given["label"])
            value.backward()
            if kind == "all":
                clip.clip_grad_norm_(own, number)
            elif kind == "value":
                clip.clip_grad_value_(own, number / 10)
            elif kind == "sum":
                whole = sum(float(one.grad.norm()) for one in own)
                for one in own:
                    one.grad *= min(1.0, number / whole)
            for one in own:
                if kind == "each":
                    clip.clip_grad_norm_(one, number)
                elif kind == "decay":
                    one.grad.add_(one.detach(), alpha=number)
            optimizer.step()
            return value.detach()

        return step

    return made


@pytest.mark.parametrize(
    ("kinds", "cause", "facts"),
    [
        (("all", "each"), "gradients-clipped-by-own-norm", {"norm": 0.1, "reference": "all by norm 0.1"}),
        (("all", "value"), "gradient-clipped", {"bound": 0.01, "reference": "all by norm 0.1"}),
        (("value", "all"), "gradients-clipped-by-norm", {"norm": 0.1, "reference": "by value 0.01"}),
        (
            ("all", "sum"),
            "gradients-clipped-by-other-norm",
            {"norm": "sum of the tensors' norms", "reference": "all by norm 0.1"},
        ),
        (("all", ""), "gradients-left-as-they-are", {"reference": "all by norm 0.1"}),
        (("", "decay"), "decay-in-gradients", {"decay": 0.1}),
    ],
)
def test_loops_that_change_gradients_each_in_their_way_are_one_culprit(
    kinds: tuple[str, str], cause: str, facts: dict[str, Any]
) -> None:
    (culprit,) = compared(*(side(step=changing(kind)) for kind in kinds), 2).culprits
    assert (culprit.kind, culprit.part, culprit.cause, culprit.sureness) == ("gradients", "step", cause, "confirmed")
    assert culprit.facts == facts
    assert len(culprit.parameters) >= 5
    twin = kinds[1] or "none"
    assert compared(side(step=changing(twin)), side(step=changing(twin)), 1).culprits == ()


def test_one_step_of_one_factor_is_no_clipping() -> None:
    def halved(model: Any, loss: Any, optimizer: Any) -> Any:
        def step(given: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(given["x"]), given["label"])
            value.backward()
            for one in model.parameters():
                one.grad *= 0.5
            optimizer.step()
            return value.detach()

        return step

    for steps in (1, 2):
        (culprit,) = compared(side(step=changing("")), side(step=halved), steps).culprits
        assert (culprit.cause, culprit.facts) == ("gradient-factor", {"factor": 0.5})


def test_an_optimizer_that_is_derived_from_another_steps_once() -> None:
    import torch

    class Clipping(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], self.bound)
            return super().step(closure)

    def made(bound: float) -> Callable[[Any], Any]:
        def build(model: Any) -> Any:
            optimizer = Clipping(model.parameters(), 0.1)
            optimizer.bound = bound
            return optimizer

        return build

    (culprit,) = compared(side(), side(made(0.1)), 2).culprits
    assert (culprit.kind, culprit.cause) == ("update", "clip-global-norm")
    assert compared(side(), side(made(1e6)), 2).culprits == ()
