"""Real optimizers, stepped under given gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.protocols import LearningRates, ParameterGroup
from align.training.step_result import SteppedParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.parameters import Array


@dataclass(frozen=True)
class Case:
    """Values and gradients of some steps, alike for both sides."""

    before: Array
    gradients: list[Array]


@dataclass(frozen=True)
class RealSteps:
    """What an optimizer did, and the group that the adapter reads of it."""

    group: ParameterGroup
    after: list[Array]


def make_case(size: int = 64, steps: int = 5, scale: Any = 1.0, dtype: str = "float32", seed: int = 0) -> Case:
    generator = np.random.default_rng(seed)
    before = generator.standard_normal(size).astype(dtype)
    return Case(before, [(generator.standard_normal(size) * scale).astype(dtype) for _ in range(steps)])


def step_torch(text: str, case: Case, rates: Sequence[float] | None) -> RealSteps:
    import torch

    from align.models.adapter_parts.torch.state import TorchOptimizers

    parameter = torch.nn.Parameter(torch.tensor(case.before))
    optimizer = eval(text, {"torch": torch, "P": parameter})
    group = TorchOptimizers().read_groups(optimizer, None, [], 8)[0]
    after = []
    for step, gradient in enumerate(case.gradients):
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates[step]
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        after.append(parameter.detach().numpy().copy())
    return RealSteps(group if rates is None else with_rates(group, rates), after)


def step_mindspore(text: str, case: Case) -> RealSteps:
    import mindspore

    from align.models.adapter_parts.mindspore.optimizers import MindSporeOptimizers

    parameter = mindspore.Parameter(mindspore.Tensor(case.before.copy()), name="weight")
    optimizer = eval(text, {"mindspore": mindspore, "P": parameter})
    group = MindSporeOptimizers().read_groups(optimizer, None, [], 8)[0]
    after = []
    for gradient in case.gradients:
        optimizer((mindspore.Tensor(gradient.copy()),))
        after.append(parameter.asnumpy().copy())
    return RealSteps(group, after)


def with_rates(group: ParameterGroup, rates: Sequence[float]) -> ParameterGroup:
    return replace(group, rates=LearningRates(tuple(rates), by="a schedule"))


def step(text: str, case: Case, rates: Sequence[float] | None = None) -> RealSteps:
    return step_torch(text, case, rates) if text.startswith("torch") else step_mindspore(text, case)


def pair(case: Case, reference: RealSteps, candidate: RealSteps, **changes: Any) -> SteppedParameter:
    made = SteppedParameter(
        "fc.weight",
        "dense.weight",
        case.before,
        case.gradients,
        reference.after,
        candidate.after,
        reference.group,
        candidate.group,
    )
    return replace(made, **changes)


@pytest.fixture
def new_case() -> Callable[..., Case]:
    return make_case


@pytest.fixture
def real_steps() -> Callable[..., RealSteps]:
    return step


@pytest.fixture
def paired() -> Callable[..., SteppedParameter]:
    return pair
