"""The layer or code is named that was given sound values and made of them what is not finite, or far too large.

Each case is a training in which one thing goes wrong from a step on. Its neighbours are innocent: what they are given
is bad already.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import align

if TYPE_CHECKING:
    from collections.abc import Callable

AT, STEPS = 6, 8
HUGE, NAN, INF = 1e7, float("nan"), float("inf")

pytestmark = pytest.mark.frameworks


def found(run: Callable[[], Any]) -> tuple[Any, ...]:
    """Step, way, layer and kind of what is found in a training."""
    with align.watch_nonfinite() as watch:
        run()
    event = watch.result.event
    assert event is not None
    return event.step, event.direction, event.layer, event.kind


def nothing_found(run: Callable[[], Any]) -> bool:
    """Tell whether a training is said to be sound."""
    with align.watch_nonfinite() as watch:
        run()
    return watch.result.event is None


def kind_of(bad: float) -> str:
    return "explosion" if bad == HUGE else "NaN" if bad != bad else "Inf"


# torch


def train(model: Any, *, bad: Any = None, change: Any = None, start: int = AT, scale: float = 1.0) -> None:
    """Train a torch model on three numbers: `bad(model)` is called at a step, `change` for the gradients from then."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 1e-3 / scale)
    for step in range(STEPS):
        if step == start and bad is not None:
            bad(model)
        optimizer.zero_grad()
        (model(torch.randn(4, 3)).square().mean() * scale).backward()
        if step >= start and change is not None:
            change([*model.parameters()])
        optimizer.step()


def back(gain: list[float]) -> Any:
    """A function whose gradient is multiplied by what the list holds, forward as it is."""
    import torch

    class Back(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, gradient: Any) -> Any:
            return gradient * gain[0]

    return Back.apply


def weighed(gain: list[float]) -> Any:
    """A linear layer whose weight gets a gradient multiplied by what the list holds; its input a right one."""
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, weight = ctx.saved_tensors
            return gradient @ weight.T, x.T @ gradient * gain[0]

    class Weighed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 3))

        def forward(self, x: Any) -> Any:
            return Product.apply(x, self.weight)

    return Weighed()


def torch_back(place: str, gain: list[float]) -> tuple[Any, str]:
    """A model with the function in a place, and the layer to be named."""
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    function = back(gain)

    def hooked(x: Any) -> Any:
        x.register_hook(lambda gradient: gradient * gain[0])
        return x

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return function(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.own, self.last = nn.Linear(3, 3), Own(), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return ways[place](self, self.first(x))

    ways = {
        "code": lambda net, x: net.last(function(x)),
        "residual": lambda net, x: net.last(x + net.own(x)),
        "branches": lambda net, x: net.last(x) + net.own(x) * torch.tanh(x),
        "after in place": lambda net, x: net.last(net.own(torch.relu_(x * 2))),
        "hook": lambda net, x: net.last(hooked(torch.tanh(x))),
        "checkpoint": lambda net, x: net.last(checkpoint(lambda y: function(net.own.fc(y)), x, use_reentrant=False)),
    }

    if place == "nested":
        inner = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(inplace=True), Own()), nn.Tanh())
        return nn.Sequential(nn.Linear(3, 3), inner, nn.Linear(3, 3)), "1.1.1"
    if place == "weight":
        return nn.Sequential(nn.Linear(3, 3), weighed(gain), nn.Linear(3, 3)), "1"
    if place == "first weight":
        return nn.Sequential(weighed(gain), nn.Linear(3, 3)), "0"
    return Net(), "own" if place in ("residual", "branches", "after in place") else ""


TORCH_PLACES = (
    "code",
    "residual",
    "branches",
    "after in place",
    "hook",
    "checkpoint",
    "nested",
    "weight",
    "first weight",
)


@pytest.mark.parametrize("place", TORCH_PLACES)
@pytest.mark.parametrize("bad", [HUGE, NAN, INF])
def test_torch_names_the_way_back_that_sends_what_is_bad(place: str, bad: float) -> None:
    gain = [1.0]
    model, layer = torch_back(place, gain)
    assert found(lambda: train(model, bad=lambda _: gain.__setitem__(0, bad))) == (AT, "backward", layer, kind_of(bad))


def test_torch_names_where_gradients_explode_that_overflow_further_on() -> None:
    gain = [1.0]
    import torch

    model, _ = torch_back("nested", gain)
    square = back([1e30])
    model.insert(0, torch.nn.Linear(3, 3))
    for layer in (model[0], model[1]):
        layer.register_forward_hook(lambda *given: square(given[2]) if gain[0] != 1.0 else None)
    assert found(lambda: train(model, bad=lambda _: gain.__setitem__(0, 1e20))) == (
        AT,
        "backward",
        "2.1.1",
        "explosion",
    )


def late_branch(place: str, gain: float) -> Any:
    """A model with a branch that runs when `late` is set, the weights of its second layer multiplied."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 3)
            self.aux = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.ReLU())
            self.late = False
            with torch.no_grad():
                self.aux[2].weight.mul_(gain)

        def forward(self, x: Any) -> Any:
            return ways[place](self, self.body(x)) if self.late else self.head(self.body(x)) * 1.0

    ways = {
        "loss": lambda net, x: net.head(x) * 1.0 + net.aux(x).square().mean(),
        "logits": lambda net, x: net.head(x) * 1.0 + net.aux(x),
        "aside": lambda net, x: net.head(x) * 1.0 + net.aux(x.detach()).square().mean(),
        "code": lambda net, x: net.head(x + torch.exp(x * 0.1) * 3 * gain) * 1.0,
    }
    return Net()


@pytest.mark.parametrize("start", [1, 3, AT])
@pytest.mark.parametrize("place", ["loss", "logits", "aside", "code"])
def test_torch_names_a_branch_that_explodes_when_it_first_runs(place: str, start: int) -> None:
    event = found(lambda: train(late_branch(place, 1e6), bad=lambda model: setattr(model, "late", True), start=start))
    assert event == (start, "forward", "" if place == "code" else "aux.2", "explosion")


def test_torch_names_nothing_where_nothing_is_wrong() -> None:
    for place in TORCH_PLACES:
        assert nothing_found(partial(train, torch_back(place, [1.0])[0])), place
    for place in ("loss", "logits", "aside", "code"):
        late = partial(train, late_branch(place, 1.0), bad=lambda model: setattr(model, "late", True))
        assert nothing_found(late), place


def halved(parameters: Any) -> None:
    for one in parameters:
        one.grad = one.grad.half().float()


def divided(parameters: Any) -> None:
    import torch

    with torch.no_grad():
        parameters[1].grad /= 0.0 * parameters[1].grad.norm()


def emptied(parameters: Any) -> None:
    for one in parameters:
        one.grad.mul_(INF).mul_(0.0)


def enlarged(parameters: Any) -> None:
    for one in parameters:
        one.grad.mul_(HUGE)


@pytest.mark.parametrize(
    ("change", "scale", "kind"),
    [(halved, 1e9, "Inf"), (divided, 1.0, "Inf"), (emptied, 1.0, "NaN"), (enlarged, 1.0, "explosion")],
)
def test_torch_names_the_step_where_it_changes_gradients(change: Any, scale: float, kind: str) -> None:
    import torch

    for start in (0, AT) if kind != "explosion" else (AT,):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
        event = found(partial(train, model, change=change, start=start, scale=scale))
        assert event == (start, "step", "", kind)


def test_torch_names_the_step_where_the_optimizer_holds_copies() -> None:
    import torch

    model = torch.nn.Linear(3, 3)
    copies = [one.detach().clone().requires_grad_() for one in model.parameters()]
    optimizer = torch.optim.SGD(copies, 1e-3)

    def run() -> None:
        (model(torch.ones(4, 3)).square().sum() * 1e9).backward()
        for one, copy in zip(model.parameters(), copies, strict=True):
            copy.grad = one.grad.half().float()
        optimizer.step()

    assert found(run) == (0, "step", "", "Inf")


@pytest.mark.parametrize("cleared", [True, False])
def test_torch_names_the_pass_whose_gradients_were_added_to_those_of_the_next(cleared: bool) -> None:
    import torch

    gain = [NAN]
    model, layer = torch_back("residual", gain)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def run() -> None:
        for step in range(4):
            gain[0] = NAN if step == 2 else 1.0
            model(torch.ones(4, 3)).square().sum().backward()
            if step == 2 and cleared:
                optimizer.zero_grad()
            elif step == 3:
                for one in model.parameters():
                    one.grad = None if one.grad is None else one.grad * INF
            if step != 2:
                optimizer.step()
                optimizer.zero_grad()

    event = found(run)
    assert event[:3] == ((3, "step", "") if cleared else (2, "backward", layer))


# MindSpore


def mindspore_train(model: Any, *, bad: Any = None, change: Any = None, start: int = AT, scale: float = 1.0) -> None:
    """The same for MindSpore."""
    import mindspore
    import numpy as np
    from mindspore import Tensor, nn

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    model.set_train()
    random, optimizer = np.random.default_rng(0), nn.SGD(model.trainable_params(), 1e-3 / scale)
    gradients = mindspore.value_and_grad(lambda x: model(x).square().mean() * scale, None, model.trainable_params())
    for step in range(STEPS):
        if step == start and bad is not None:
            bad(model)
        _, given = gradients(Tensor(random.standard_normal((4, 3)).astype(np.float32)))
        optimizer(change(given) if step >= start and change is not None else given)


def weighed_cell(gain: list[float]) -> Any:
    """A cell that multiplies by a weight, whose gradient is multiplied by what the list holds."""
    import mindspore
    from mindspore import Parameter, Tensor, nn
    from mindspore.common._grad_function import _Function

    class Weighed(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Parameter(Tensor([[1.0, 2.0, 3.0]], mindspore.float32), name="weight")

        def construct(self, x: Any) -> Any:
            return Product.apply(x, self.weight)

    class Product(_Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return x * weight

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, weight = ctx.saved_tensors
            return gradient * weight, (gradient * x).sum(0, keepdims=True) * gain[0]

    return Weighed()


def mindspore_back(place: str, gain: list[float]) -> tuple[Any, str]:
    """A network with a way back of its own in a place, and the layer to be named."""
    import mindspore
    from mindspore import nn, ops
    from mindspore.common._grad_function import _Function

    mindspore.set_seed(0)

    class Own(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 1.0

        def bprop(self, _x: Any, _out: Any, gradient: Any) -> Any:
            return (gradient * gain[0],)

    class Function(_Function):
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(_ctx: Any, gradient: Any) -> Any:
            return gradient * gain[0]

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.own, self.last = nn.Dense(3, 3), Own(), nn.Dense(3, 3)

        def construct(self, x: Any) -> Any:
            return ways[place](self, self.first(x))

    ways = {
        "code": lambda net, x: net.last(Function.apply(x)),
        "residual": lambda net, x: net.last(x + net.own(x)),
        "branches": lambda net, x: net.last(x) + net.own(x) * ops.tanh(x),
        "after operators": lambda net, x: net.last(net.own(ops.relu(x * 2)) * 2),
    }

    if place == "nested":
        inner = nn.SequentialCell(nn.Dense(3, 3), nn.SequentialCell(nn.ReLU(), Own()), nn.Tanh())
        return nn.SequentialCell(nn.Dense(3, 3), inner, nn.Dense(3, 3)), "1.1.1"
    if place == "weight":
        return nn.SequentialCell(nn.Dense(3, 3), weighed_cell(gain), nn.Dense(3, 3)), "1"
    if place == "first weight":
        return nn.SequentialCell(weighed_cell(gain), nn.Dense(3, 3)), "0"
    return Net(), "" if place == "code" else "own"


MINDSPORE_PLACES = ("code", "residual", "branches", "after operators", "nested", "weight", "first weight")


@pytest.mark.parametrize("place", MINDSPORE_PLACES)
@pytest.mark.parametrize("bad", [HUGE, NAN])
def test_mindspore_names_the_way_back_that_sends_what_is_bad(place: str, bad: float) -> None:
    gain = [1.0]
    model, layer = mindspore_back(place, gain)
    event = found(lambda: mindspore_train(model, bad=lambda _: gain.__setitem__(0, bad)))
    assert event == (AT, "backward", layer, kind_of(bad))


def test_mindspore_names_nothing_where_nothing_is_wrong() -> None:
    for place in MINDSPORE_PLACES:
        assert nothing_found(partial(mindspore_train, mindspore_back(place, [1.0])[0])), place


@pytest.mark.parametrize("start", [3, AT])
@pytest.mark.parametrize("place", ["loss", "logits", "code"])
def test_mindspore_names_a_branch_that_explodes_when_it_first_runs(place: str, start: int) -> None:
    import mindspore
    from mindspore import nn, ops

    mindspore.set_seed(0)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Dense(3, 3), nn.Dense(3, 3)
            self.aux = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh(), nn.Dense(3, 3), nn.ReLU())
            self.aux[2].weight.set_data(self.aux[2].weight * 1e6)
            self.late = False

        def construct(self, x: Any) -> Any:
            x = self.body(x)
            if self.late and place == "code":
                x = x + ops.exp(x * 0.1 + 15)
            y = self.head(x) * 1.0
            if self.late and place == "logits":
                return y + self.aux(x)
            return y + self.aux(x).square().mean() if self.late and place == "loss" else y

    event = found(lambda: mindspore_train(Net(), bad=lambda model: setattr(model, "late", True), start=start))
    assert event == (start, "forward", "" if place == "code" else "aux.2", "explosion")


@pytest.mark.parametrize("way", ["cast", "divided", "enlarged"])
def test_mindspore_names_the_step_where_it_changes_gradients(way: str) -> None:
    import mindspore
    from mindspore import nn

    mindspore.set_seed(0)
    ways = {
        "cast": lambda one: one.astype(mindspore.float16).astype(mindspore.float32),
        "divided": lambda one: one / 0.0,
        "enlarged": lambda one: one * HUGE,
    }
    model = nn.SequentialCell(nn.Dense(3, 3), nn.Tanh(), nn.Dense(3, 3))
    scale = 1e9 if way == "cast" else 1.0
    event = found(lambda: mindspore_train(model, change=lambda given: tuple(map(ways[way], given)), scale=scale))
    assert event == (AT, "step", "", "explosion" if way == "enlarged" else "Inf")
