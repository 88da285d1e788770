"""Labels that are no class of the outputs end in one message, whatever a framework makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import InputsError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

FRAMEWORKS = ("torch", "mindspore")
X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
FROM_ONE = [1, 2, 3, 1, 2, 3]


def losses(framework: str) -> dict[str, Callable[..., Any]]:
    """Losses over indices of classes: classes of the framework, functions, and what people write themselves."""
    if framework == "torch":
        import torch
        from torch.nn import functional

        log, rows = functional.log_softmax, torch.arange(6)
        return {
            "class": torch.nn.CrossEntropyLoss(),
            "function": lambda outputs, label: functional.nll_loss(log(outputs, 1), label),
            "gather": lambda outputs, label: -log(outputs, 1).gather(1, label[:, None]).mean(),
            "index": lambda outputs, label: -log(outputs, 1)[rows, label].mean(),
            "one-hot": lambda outputs, label: -(log(outputs, 1) * functional.one_hot(label, 3)).mean(),
        }
    from mindspore import Tensor, nn, ops

    def one_hot(label: Any) -> Any:
        return ops.one_hot(label, 3, Tensor(1.0), Tensor(0.0))

    return {
        "class": nn.CrossEntropyLoss(),
        "function": lambda outputs, label: ops.cross_entropy(outputs, label),
        "gather": lambda outputs, label: -ops.log_softmax(outputs, 1).gather_elements(1, label[:, None]).mean(),
        "sparse, the mean": nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        "sparse": lambda outputs, label: nn.SoftmaxCrossEntropyWithLogits(sparse=True)(outputs, label).mean(),
        "one-hot": lambda outputs, label: -(ops.log_softmax(outputs, 1) * one_hot(label)).mean(),
    }


def side(framework: str, loss: Any, step: Any = None) -> align.Training:
    if framework == "torch":
        import torch

        model = torch.nn.Linear(4, 3)
        return align.Training(model, loss, torch.optim.SGD(model.parameters(), 0.1), step and step(model))
    from mindspore import nn

    cell = nn.Dense(4, 3)
    return align.Training(cell, loss, nn.SGD(cell.trainable_params(), 0.1), step and step(cell))


def refused(given: align.Training, labels: list[int]) -> InputsError:
    with pytest.raises(InputsError) as raised:
        align.check_parameters(given, batch={"x": X, "label": np.array(labels)})
    return raised.value


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_labels_counted_from_one_are_told_of_every_loss(framework: str) -> None:
    for loss in losses(framework).values():
        error = refused(side(framework, loss), FROM_ONE)
        assert error.message == "label holds 1 to 3, and the outputs have 3 classes: 0 to 2"
        assert "count the classes from 0" in error.hint


@pytest.mark.parametrize(("labels", "ends"), [([0, -1, 1, 2, 0, 1], "-1 to 2"), ([1000, 0, 1, 2, 0, 1], "0 to 1000")])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_label_far_off_ends_no_process_and_a_negative_one_is_no_last_class(
    framework: str, labels: list[int], ends: str
) -> None:
    assert f"label holds {ends}, and" in refused(side(framework, losses(framework)["class"]), labels).message


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_labels_that_the_loss_moves_or_leaves_out_are_no_fault(framework: str) -> None:
    found = losses(framework)
    ignoring = type(found["class"])(ignore_index=3)
    for loss, labels in (
        (lambda outputs, label: found["class"](outputs, label - 1), FROM_ONE),
        (ignoring, [0, 1, 2, 3, 3, 0]),
        (found["class"], [0, 1, 2, -100, 0, 1]),
    ):
        batch = {"x": X, "label": np.array(labels)}
        assert align.check_parameters(side(framework, loss), batch=batch).verdict.exit_code == 0
    moved = refused(side(framework, lambda outputs, label: found["class"](outputs, label - 2)), FROM_ONE)
    assert moved.message.startswith("what the step makes of the labels holds -1 to 1, and")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_step_of_the_users_own_is_looked_at_too(framework: str) -> None:
    loss = losses(framework)["class"]

    def step(model: Any) -> Any:
        return lambda batch: loss(model(batch["x"]), batch["label"])

    assert "label holds 1 to 3" in refused(side(framework, None, step), FROM_ONE).message


def test_another_failure_is_not_laid_to_labels() -> None:
    def fails(outputs: Any, label: Any) -> Any:
        raise RuntimeError(f"no kernel for {tuple(outputs.shape)} and {tuple(label.shape)}")

    with pytest.raises(align.errors.UserCodeError, match="no kernel for"):
        align.check_parameters(side("torch", fails), batch={"x": X, "label": np.array(FROM_ONE)})


def test_mindspore_trains_on_after_a_step_that_python_ended() -> None:
    import mindspore
    from mindspore import nn

    net = nn.Dense(3, 2)

    def ended(_outputs: Any, _label: Any) -> Any:
        raise ValueError("no such label")

    side = align.Training(net, ended, nn.SGD(net.trainable_params(), 0.1))
    with pytest.raises(align.errors.UserCodeError, match="no such label"):
        align.check_parameters(side, batch={"x": np.ones((4, 3), np.float32), "label": np.zeros(4, np.int64)})
    buffer = mindspore.Parameter(mindspore.Tensor(np.ones(4, np.float32)))
    buffer.copy_(mindspore.Tensor(np.zeros(4, np.float32)))  # is refused while a way back is going on
    assert not buffer.asnumpy().any()
