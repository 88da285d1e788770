"""Training steps beyond single faults: containers, modes, loops with scales and parts, lone parameters."""

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
    values = np.random.default_rng(0).standard_normal((SAMPLES, 8)).astype(np.float32)
    return {"x": values, "label": np.arange(SAMPLES) % 3}


def net(act: Any = None, *, norm: bool = True) -> Any:
    import torch

    torch.manual_seed(0)
    middle = torch.nn.BatchNorm1d(16) if norm else torch.nn.Identity()
    body = torch.nn.Sequential(torch.nn.Linear(8, 16), middle, act or torch.nn.ReLU())
    return torch.nn.Sequential(body, torch.nn.Linear(16, 3))


def side(model: Any = None, step: Callable[[Any, Any, Any], Any] | None = None, held: Any = None) -> align.Training:
    import torch

    model, loss = model or net(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters() if held is None else held(model), 0.1, momentum=0.9)
    return align.Training(model, loss, optimizer, step and step(model, loss, optimizer))


def found(reference: align.Training, candidate: align.Training, steps: int = 2) -> list[tuple[str, str, str, str]]:
    result = align.compare_training_step(reference, candidate, batch=batch(), steps=steps)
    assert result.verdict.exit_code == int(bool(result.culprits))
    return [(one.kind, one.part, one.candidate, one.cause) for one in result.culprits]


def test_a_way_back_that_a_container_cuts_is_named() -> None:
    model = net()
    own = model[0].forward
    model[0].forward = lambda x: own(x).detach()
    assert found(side(), side(model)) == [("backward", "code", "0", "no-gradient")]


def test_a_way_back_that_is_wrong_in_a_layer_of_the_users_own_is_named() -> None:
    import torch

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:  # type: ignore[override]
            context.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:  # type: ignore[override]
            (x,) = context.saved_tensors
            whole = torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))
            return gradient * (whole if Own.right else torch.sigmoid(x))

    class Own(torch.nn.Module):
        right = True

        def forward(self, x: Any) -> Any:
            return Swish.apply(x)

    assert found(side(net(torch.nn.SiLU())), side(net(Own()))) == []
    Own.right = False
    assert found(side(net(torch.nn.SiLU())), side(net(Own()))) == [("backward", "layer", "0.2", "")]


def test_parts_that_are_held_in_evaluation_mode_stay_so() -> None:
    held, other = net(), net()
    held[0][1].eval()
    other[0][1].eval()
    assert found(side(held), side(other)) == []
    assert [one[2:] for one in found(side(), side(held))] == [("0.1", ""), ("0.1", "statistics-kept")]
    assert not held[0][1].training


def test_parameters_in_no_optimizer_are_named_without_a_word_of_rates() -> None:
    def without_head(model: Any) -> list[Any]:
        return list(model[0].parameters())

    expected = [("update", "optimizer", "", "in-no-optimizer")]
    assert found(side(), side(held=without_head)) == expected
    none = side()
    assert found(side(), align.Training(none.model, none.loss)) == expected


def clipped(scale: float, *, unscaled_first: bool = True) -> Any:
    import torch

    def make(model: Any, loss: Any, optimizer: Any) -> Any:
        def unscale() -> None:
            for one in model.parameters():
                one.grad /= scale

        def step(given: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(given["x"]), given["label"])
            (value * scale).backward()
            if unscaled_first:
                unscale()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if not unscaled_first:
                unscale()
            optimizer.step()
            return value

        return step

    return make


def test_clipping_behind_the_scale_is_right_and_before_it_is_wrong() -> None:
    reference = side(step=clipped(1.0))
    assert found(reference, side(step=clipped(1024.0))) == []
    wrong = found(reference, side(step=clipped(1024.0, unscaled_first=False)))
    assert [one[:2] for one in wrong] == [("gradients", "step")]


def in_parts(count: int, *, mean: bool = True) -> Any:
    def make(model: Any, loss: Any, optimizer: Any) -> Any:
        def step(given: Any) -> None:
            optimizer.zero_grad()
            for start in range(0, SAMPLES, SAMPLES // count):
                part = slice(start, start + SAMPLES // count)
                (loss(model(given["x"][part]), given["label"][part]) / (count if mean else 1)).backward()
            optimizer.step()

        return step

    return make


def test_other_parts_of_a_batch_are_compared_by_what_the_optimizer_gets() -> None:
    whole = side(net(norm=False))
    candidate = side(net(norm=False), in_parts(2))
    assert found(whole, candidate) == []
    result = align.compare_training_step(side(net(norm=False), in_parts(4)), candidate, batch=batch(), steps=1)
    assert (result.culprits, [one.code for one in result.findings]) == ((), ["calls-unlike"])
    assert found(whole, side(net(norm=False), in_parts(2, mean=False))) == [("gradients", "step", "", "sum-over-parts")]


def test_what_the_loss_trains_is_left_as_it_was() -> None:
    import torch

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, outputs: Any, label: Any) -> Any:
            return torch.nn.functional.cross_entropy(outputs * self.scale, label)

    def made() -> align.Training:
        model, loss = net(), Scaled()
        return align.Training(model, loss, torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.1))

    reference = made()
    assert found(reference, made()) == []
    assert reference.loss.scale.item() == 1.0


def test_several_updates_in_a_step_are_no_fault_of_the_optimizer() -> None:
    def make(model: Any, loss: Any, optimizer: Any) -> Any:
        def step(given: Any) -> None:
            for _ in range(2):
                optimizer.zero_grad()
                loss(model(given["x"]), given["label"]).backward()
                optimizer.step()

        return step

    result = align.compare_training_step(side(step=make), side(step=make), batch=batch(), steps=1)
    assert result.culprits == ()
    assert "updates-repeated" in {one.code for one in result.findings}


def test_an_infinite_loss_is_not_aligned_with_itself() -> None:
    import torch

    def infinite() -> align.Training:
        model = net()
        return align.Training(model, lambda outputs, label: outputs.sum() * torch.inf, side(model).optimizer)

    result = align.compare_training_step(
        infinite(), infinite(), batch={"x": batch()["x"], "label": [0] * SAMPLES}, steps=1
    )
    assert (result.culprits, result.verdict.exit_code) == ((), 2)
    assert "the reference's loss is" in result.verdict.reason
