"""Sides as docs/step.md names them: a model that returns its loss, `value_and_grad`, MindSpore's Model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from step_nets import batch, mindspore_side, torch_side

import align

pytestmark = pytest.mark.frameworks


def with_model(halved: float = 1.0) -> align.Training:
    """MindSpore's `Model`, whose network takes the step."""
    import mindspore

    side = mindspore_side(optimizer="momentum")
    loss = side.loss
    model = mindspore.Model(
        side.model, lambda_cell(lambda outputs, label: halved * loss(outputs, label)), side.optimizer
    )
    return replace(side, loss=None, step=lambda given: model.train_network(given["x"], given["label"]))


def lambda_cell(function: Any) -> Any:
    from mindspore import nn

    class Loss(nn.Cell):
        def construct(self, outputs: Any, label: Any) -> Any:
            return function(outputs, label)

    return Loss()


def by_hand(halved: float = 1.0) -> align.Training:
    """`value_and_grad` and the optimizer called."""
    import mindspore

    side = mindspore_side(optimizer="momentum")
    forward = lambda x, label: halved * side.loss(side.model(x), label)  # noqa: E731 - as users write it
    grad = mindspore.value_and_grad(forward, None, side.optimizer.parameters)

    def step(given: Any) -> Any:
        loss, gradients = grad(given["x"], given["label"])
        side.optimizer(gradients)
        return loss

    return replace(side, loss=None, step=step)


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


@pytest.mark.parametrize("make", [with_model, by_hand])
def test_steps_of_mindspore(make: Any) -> None:
    for halved, causes in ((1.0, []), (0.5, ["gradient-factor"])):
        result = align.compare_training_step(torch_side(optimizer="momentum"), make(halved), batch=batch(), steps=1)
        assert [one.cause for one in result.culprits] == causes


def test_models_that_return_their_loss() -> None:
    for halved, at_fault in ((1.0, False), (0.5, True)):
        result = align.compare_training_step(returning_loss(), returning_loss(halved), batch=batch(), steps=1)
        assert bool(result.culprits) == at_fault
