"""Schedules of learning rates in training steps: stepped as a training would, and compared behind the last step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from step_nets import batch, mindspore_side, torch_side

import align

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.frameworks


def stepped_down(every: int, factor: float = 0.5) -> tuple[align.Training, Any]:
    """A torch side with a schedule, which lives as long as it is kept."""
    import torch

    side = torch_side("one", "momentum")
    return side, torch.optim.lr_scheduler.StepLR(side.optimizer, every, factor)


def with_rates(rates: Sequence[float]) -> align.Training:
    from mindspore import nn

    side = mindspore_side("one")
    return replace(side, optimizer=nn.Momentum(side.model.trainable_params(), [*rates], 0.9))


def found(reference: align.Training, candidate: align.Training, steps: int = 1) -> tuple[list[Any], list[str]]:
    result = align.compare_training_step(reference, candidate, batch=batch(), steps=steps)
    rates = [one.code for one in result.findings if one.code.startswith("schedule-")]
    return [(one.part, one.cause, one.facts) for one in result.culprits], rates


def test_a_schedule_that_the_side_keeps_is_stepped_with_its_optimizer() -> None:
    side, schedule = stepped_down(1)
    assert found(side, with_rates([0.1, 0.05, 0.025, 0.0125]), steps=3) == ([], [])
    assert (schedule.last_epoch, side.optimizer.param_groups[0]["lr"]) == (0, 0.1)
    (culprit,) = found(side, with_rates([0.1, 0.1, 0.05, 0.025]), steps=3)[0]
    assert culprit[:2] == ("optimizer", "schedule-shifted")


def test_schedules_that_part_behind_the_last_step_are_named() -> None:
    side, _schedule = stepped_down(30)
    assert found(side, with_rates([0.1] * 30 + [0.05] * 30)) == ([], [])
    told = {"from step": 21, "learning rate": "0.1 vs 0.05"}
    assert found(side, with_rates([0.1] * 20 + [0.05] * 40))[0] == [("optimizer", "schedule-later", told)]


def test_schedules_that_may_be_equal_are_a_warning() -> None:
    side, _schedule = stepped_down(30)
    assert found(side, with_rates([0.1] * 300 + [0.05] * 300)) == ([], ["schedule-stretched"])
    assert found(torch_side("one", "momentum"), with_rates([0.1] * 30 + [0.05] * 30)) == (
        [],
        ["schedule-on-one-side"],
    )


def test_a_schedule_of_experimental_optimizers_is_stepped_and_put_back() -> None:
    from mindspore.experimental import optim

    side, _schedule = stepped_down(1)
    port = mindspore_side("one")
    optimizer = optim.SGD(port.model.trainable_params(), 0.1, momentum=0.9)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    assert found(side, replace(port, optimizer=optimizer), steps=3) == ([], [])
    assert (schedule.last_epoch, float(optimizer.param_groups[0]["lr"])) == (0, pytest.approx(0.1))
