"""Reasons that lie close together: cut off or without influence, lost below a precision or cut, NaN or still."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
BATCH = {"x": X, "label": np.arange(8) % 2}


def states(given: align.Training) -> dict[str, tuple[str, str]]:
    side = align.check_parameters(given, batch=BATCH).sides[0]
    return {one.name: (one.state, one.reason) for one in side.parameters}


def trained(model: Any, loss: Any = None, step: Any = None) -> align.Training:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return align.Training(model, loss or torch.nn.CrossEntropyLoss(), optimizer, step and step(model, optimizer))


def torch_net(*, cut: bool) -> align.Training:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.head = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
            self.aside, self.aside_norm = nn.Linear(4, 6), nn.BatchNorm1d(6)

        def forward(self, x: Any) -> Any:
            self.aside_norm(self.aside(x))
            hidden = self.stem(x)
            return self.head(self.norm(hidden.detach() if cut else hidden))

    torch.manual_seed(0)
    return trained(Net())


def mindspore_net(*, cut: bool) -> align.Training:
    import mindspore
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm, self.head = nn.Dense(4, 6), nn.BatchNorm1d(6), nn.Dense(6, 2)
            self.aside, self.aside_norm = nn.Dense(4, 6), nn.BatchNorm1d(6)

        def construct(self, x: Any) -> Any:
            self.aside_norm(self.aside(x))
            hidden = self.stem(x)
            return self.head(self.norm(ops.stop_gradient(hidden) if cut else hidden))

    mindspore.set_seed(0)
    model = Net()
    return align.Training(model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1))


@pytest.mark.parametrize("build", [torch_net, mindspore_net])
def test_a_bias_in_front_of_a_normalisation_has_no_influence_cut_off_or_not(build: Any) -> None:
    """What is used nowhere is at fault all the same, a normalisation behind it or not."""
    found, clean = states(build(cut=True)), states(build(cut=False))
    assert found["stem.bias"][0] == "without influence"
    assert "no gradient comes back" in found["stem.bias"][1]
    assert "the backward pass is cut" in found["stem.weight"][1]
    assert (clean["stem.weight"][0], clean["stem.bias"][0] in ("trained", "without influence")) == ("trained", True)
    for one in (found, clean):
        assert all("the result is not used" in one[f"aside.{name}"][1] for name in ("weight", "bias"))


def test_gradients_that_are_not_finite_are_told_as_that() -> None:
    import torch

    def root(outputs: Any, _: Any) -> Any:
        return ((outputs * 0) ** 0.5).mean()  # the derivative of a root at 0, times 0

    found = states(trained(torch.nn.Sequential(torch.nn.Linear(4, 2)), root))
    assert found["0.weight"] == ("not finite", "its gradient is NaN, and so are its values after the update")

    def skips(model: Any, _: Any) -> Any:
        def step(given: Any) -> Any:
            loss = root(model(given["x"]), None)
            loss.backward()
            return loss

        return step

    left = states(trained(torch.nn.Sequential(torch.nn.Linear(4, 2)), root, skips))
    assert left["0.weight"] == ("not finite", "its gradient is NaN, and the step did not update it")


def half_net(factor: float, *, mixed: bool = False, cut: bool = False) -> Any:
    """A net that computes in float16, `mixed` on parameters in float32, whose gradients are `factor` times as large."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", torch.float16, enabled=mixed):
                hidden = self.stem(x)
                return self.head(hidden.detach() if cut else hidden) * factor

    torch.manual_seed(0)
    return Net() if mixed else Net().half()


def mean(outputs: Any, _: Any) -> Any:
    return (outputs.float() * 1.0).mean()


def test_a_gradient_that_half_precision_loses_is_told_in_every_form_of_it() -> None:
    lost = "too small for its precision"
    for mixed in (False, True):
        assert lost in states(trained(half_net(1e-7, mixed=mixed), mean))["stem.weight"][1]
        assert (
            "the backward pass is cut" in states(trained(half_net(1.0, mixed=mixed, cut=True), mean))["stem.weight"][1]
        )
        assert states(trained(half_net(1.0, mixed=mixed), mean))["stem.weight"][0] == "trained"
    short = states(trained(half_net(1e-6), lambda outputs, _: outputs.mean()))["stem.weight"]  # a loss in float16
    assert "with the loss x 1024" in short[1]


def test_a_step_of_the_users_own_is_not_scaled_and_the_reason_says_so() -> None:
    def own(model: Any, optimizer: Any) -> Any:
        def step(given: Any) -> Any:
            loss = mean(model(given["x"].to(next(model.parameters()).dtype)), None) * 1e3
            (loss * 1e-10).backward()
            optimizer.step()
            return loss

        return step

    found = states(trained(half_net(1.0), None, own))["stem.weight"]
    assert "is cut, or the gradient is too small for half precision" in found[1]
