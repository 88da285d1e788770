"""Steps of the user's own: whatever they return the loss in, and what they keep from one taking to the next."""

from __future__ import annotations

import itertools
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks


def batch() -> dict[str, Any]:
    values = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    return {"x": values, "label": np.arange(6) % 3}


def torch_side(returned: Callable[[Any, Any], Any]) -> align.Training:
    """A side whose step returns what `returned` makes of the loss and the outputs."""
    import torch

    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(given: Any) -> Any:
        optimizer.zero_grad()
        outputs = model(given["x"])
        value = loss(outputs, given["label"])
        value.backward()
        optimizer.step()
        return returned(value, outputs)

    return align.Training(model, loss, optimizer, step)


RETURNED = {
    "alone": lambda loss, _: loss,
    "with metrics": lambda loss, _: (loss, {"accuracy": 0.5}),
    "with numbers": lambda loss, _: (loss, 0.5, 6),
    "behind outputs": lambda loss, outputs: (outputs, loss),
    "behind a count": lambda loss, _: [6, loss],
    "in a dict": lambda loss, outputs: {"logits": outputs, "loss": loss},
    "of an object": lambda loss, outputs: types.SimpleNamespace(loss=loss, logits=outputs),
}


def test_a_loss_is_found_in_what_a_step_returns() -> None:
    losses = {
        how: align.check_parameters(torch_side(returned), batch=batch()).sides[0].loss
        for how, returned in RETURNED.items()
    }
    assert losses["alone"] is not None
    assert losses == dict.fromkeys(RETURNED, losses["alone"])


def test_mindspore_steps_may_return_outputs_beside_the_loss() -> None:
    import mindspore
    from mindspore import nn

    model, loss = nn.Dense(4, 3), nn.CrossEntropyLoss()
    optimizer = nn.SGD(model.trainable_params(), 0.1)

    def forward(x: Any, label: Any) -> Any:
        outputs = model(x)
        return loss(outputs, label), outputs

    grad = mindspore.value_and_grad(forward, None, optimizer.parameters, has_aux=True)

    def step(given: Any) -> Any:
        (value, outputs), gradients = grad(given["x"], given["label"])
        optimizer(gradients)
        return value, outputs

    plain = align.check_parameters(align.Training(model, loss, optimizer), batch=batch()).sides[0].loss
    own = align.check_parameters(align.Training(model, loss, optimizer, step), batch=batch()).sides[0].loss
    assert own == plain is not None


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (lambda loss, _: {"total": loss, "accuracy": 0.5}, "a dict of total, accuracy, and no `loss` in it"),
        (lambda loss, outputs: (outputs, 0.5, loss), "several single numbers, and nothing shows which one"),
        (lambda _, outputs: (outputs, "done"), r"\(array of \[6, 3\], str\): no single number"),
        (lambda _, outputs: outputs, r"got: array of \[6, 3\]"),
    ],
)
def test_what_may_not_be_the_loss_is_refused(returned: Callable[[Any, Any], Any], told: str) -> None:
    with pytest.raises(CannotRunError, match=told) as error:
        align.check_parameters(torch_side(returned), batch=batch())
    assert "loss" in error.value.hint


def counting(how: str) -> align.Training:
    """A side that updates at every second call; `how` says where it counts, "not" if it updates at each."""
    import torch

    torch.manual_seed(0)
    model, loss = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def take(given: Any, number: int) -> Any:
        value = loss(model(given["x"]), given["label"]) / 2
        value.backward()
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value

    calls, table, numbers = 0, {"calls": 0}, itertools.count(1)

    class Loop:
        calls = 0

        def __call__(self, given: Any) -> Any:
            self.calls += 1
            return take(given, self.calls)

    def closure(given: Any) -> Any:
        nonlocal calls
        calls += 1
        return take(given, calls)

    def in_a_table(given: Any) -> Any:
        table["calls"] += 1
        return take(given, table["calls"])

    def in_an_iterator(given: Any) -> Any:
        return take(given, next(numbers))

    steps = {"closure": closure, "table": in_a_table, "object": Loop(), "iterator": in_an_iterator}
    return align.Training(model, loss, optimizer, steps.get(how, lambda given: take(given, 2)))


@pytest.mark.parametrize("pair", [("closure", "table"), ("object", "closure")])
def test_what_a_step_counts_is_put_back_each_time(pair: tuple[str, str]) -> None:
    result = align.compare_training_step(*map(counting, pair), batch=batch(), steps=2)
    assert (result.verdict.exit_code, result.culprits) == (0, ())


def test_a_port_that_updates_at_every_call_is_at_fault() -> None:
    result = align.compare_training_step(counting("closure"), counting("not"), batch=batch(), steps=2)
    assert result.verdict.exit_code == 1


@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_that_is_another_one_each_time_is_refused(steps: int) -> None:
    """However far the counter has come: behind two steps it is where it began."""
    with pytest.raises(CannotRunError, match="it updates 0 parameters the first time, 2 another time") as error:
        align.compare_training_step(counting("iterator"), counting("not"), batch=batch(), steps=steps)
    assert "attribute of the model" in error.value.hint


def test_check_determinism_still_sees_what_a_step_keeps() -> None:
    (side,) = align.check_determinism(counting("closure"), batch=batch()).sides
    assert side.first is not None
    (clean,) = align.check_determinism(counting("not"), batch=batch()).sides
    assert clean.first is None
