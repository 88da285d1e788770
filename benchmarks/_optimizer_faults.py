"""Faults of optimizers and schedules: how each is planted, and what may be said of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from _planted_fault import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _planted_fault import Make

    import align

    Made = Callable[[Any, Any], Any]  # of the framework's module and the parameters, or the model

WARM_UP = (0.25, 0.5, 0.75, 1.0, 1.0)
FALLING = (1.0, 0.9, 0.8, 0.7, 0.6)


def _optimizer(make: Made) -> Make:
    def side(nets: Any, net: str, _seed: int) -> align.Training:
        from mindspore import nn

        own = nets.mindspore_side(net)
        return replace(own, optimizer=make(nn, own.model.trainable_params()))

    return side


def _torch_optimizer(make: Made) -> Make:
    def side(nets: Any, net: str, seed: int) -> align.Training:
        import torch

        own = nets.torch_side(net, "sgd", seed)
        return replace(own, optimizer=make(torch.optim, own.model))

    return side


def _reference(optimizer: str) -> Make:
    return lambda nets, net, seed: nets.torch_side(net, optimizer, seed)


def _clean(optimizer: str) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, optimizer)


def _of_optimizer(name: str, make: Made, kind: str, *causes: str) -> Fault:
    return Fault(
        "optimizer", name, _optimizer(make), ("optimizer",), frozenset(causes),
        reference=_reference(kind), clean=_clean(kind),
    )  # fmt: skip


def _of_rule(name: str, sides: tuple[Made, Made, Made], *causes: str) -> Fault:
    """`sides` make torch's optimizer of the model, the right one and the faulty one of parameters."""
    return Fault(
        "optimizer", name, _optimizer(sides[2]), ("optimizer",), frozenset(causes),
        reference=_torch_optimizer(sides[0]), clean=_optimizer(sides[1]),
    )  # fmt: skip


def _decayed(name: str) -> bool:
    """As everybody decides it: matrices and kernels, no biases, no norms."""
    return name.endswith("weight") and "norm" not in name


def _torch_groups(optim: Any, model: Any) -> Any:
    named = list(model.named_parameters())
    groups = [
        {"params": [one for name, one in named if _decayed(name)], "weight_decay": 0.01},
        {"params": [one for name, one in named if not _decayed(name)], "weight_decay": 0.0},
    ]
    return optim.SGD([group for group in groups if group["params"]], 0.1)


def _groups(decays: tuple[float, float], nn: Any, own: Any) -> Any:
    groups = [
        {"params": [one for one in own if _decayed(one.name)], "weight_decay": decays[0]},
        {"params": [one for one in own if not _decayed(one.name)], "weight_decay": decays[1]},
    ]
    return nn.SGD([group for group in groups if group["params"]] + [{"order_params": own}], 0.1)


def _experimental(name: str, **settings: Any) -> Made:
    def make(_nn: Any, own: Any) -> Any:
        from mindspore.experimental import optim

        return getattr(optim, name)(own, **settings)

    return make


def _root_mean_square(*, inside: bool) -> Made:
    """RMSprop as somebody writes it."""

    def make(optim: Any, model: Any) -> Any:
        import torch

        class OwnRMSprop(optim.Optimizer):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__(model.parameters(), {"lr": 1e-3})

            @torch.no_grad()
            def step(self, closure: Any = None) -> None:  # noqa: ARG002 - as torch calls it
                for one in self.param_groups[0]["params"]:
                    kept = self.state[one].setdefault("square", torch.zeros_like(one))
                    kept.mul_(0.9).addcmul_(one.grad, one.grad, value=0.1)
                    root = torch.sqrt(kept + 1e-4) if inside else torch.sqrt(kept) + 1e-4
                    one.addcdiv_(one.grad, root, value=-1e-3)

        return OwnRMSprop()

    return make


def _scheduled(nets: Any, net: str, seed: int, *, factors: Sequence[float]) -> align.Training:
    """A torch loop that steps its schedule after the optimizer."""
    import torch

    side = nets.torch_side(net, "sgd", seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(side.optimizer, lambda step: factors[min(step, len(factors) - 1)])

    def step(given: Any) -> Any:
        side.optimizer.zero_grad()
        loss = side.loss(side.model(given["x"]), given["label"])
        loss.backward()
        side.optimizer.step()
        schedule.step()
        return loss.detach()

    return replace(side, step=step)


def _rated(factors: Sequence[float]) -> Make:
    """A port whose SGD takes a rate for each step."""
    return _optimizer(lambda nn, own: nn.SGD(own, [0.1 * one for one in factors]))


def _of_schedule(name: str, factors: Sequence[float], others: Sequence[float], *causes: str) -> Fault:
    return Fault(
        "schedule", name, _rated(others), ("optimizer",), frozenset(causes),
        reference=partial(_scheduled, factors=factors), clean=_rated(factors),
    )  # fmt: skip


# Right pairs of optimizers: the reference's, and the port's.
CLEAN_PAIRS: dict[str, tuple[Make, Make]] = {
    **{name: (_reference(name), _clean(name)) for name in ("sgd", "momentum", "adam")},
    "adamw": (_reference("adamw"), _optimizer(_experimental("AdamW", lr=1e-3, weight_decay=0.01))),
    "schedule": (partial(_scheduled, factors=FALLING), _rated(FALLING)),
}
OPTIMIZER_FAULTS = (
    _of_optimizer("twice the rate", lambda nn, own: nn.SGD(own, 0.2), "sgd", "learning-rate"),
    _of_optimizer("weight decay", lambda nn, own: nn.SGD(own, 0.1, weight_decay=0.01), "sgd", "weight-decay"),
    _of_optimizer("less momentum", lambda nn, own: nn.Momentum(own, 0.1, 0.8), "momentum", "momentum"),
    _of_optimizer(
        "dampening",
        lambda nn, own: nn.SGD(own, 0.1, momentum=0.9, dampening=0.5),
        "momentum",
        "dampening",
        "first-dampening",
    ),
    _of_optimizer("nesterov", lambda nn, own: nn.SGD(own, 0.1, momentum=0.9, nesterov=True), "momentum", "nesterov"),
    _of_optimizer("epsilon", lambda nn, own: nn.Adam(own, 1e-3, eps=1e-4), "adam", "epsilon"),
    _of_optimizer("beta2", lambda nn, own: nn.Adam(own, 1e-3, beta2=0.9), "adam", "beta2"),
    _of_optimizer(
        "no bias correction", lambda nn, own: nn.AdamWeightDecay(own, 1e-3, eps=1e-8), "adam", "no-bias-correction"
    ),
    _of_optimizer(
        "a falling rate",
        lambda nn, own: nn.SGD(own, [0.1, 0.09, 0.08, 0.07]),
        "sgd",
        "schedule",
        "rate-decay",
        "schedule-shifted",
        "learning-rate",
    ),
    _of_rule(
        "decay on biases and norms",
        (_torch_groups, partial(_groups, (0.01, 0.0)), lambda nn, own: nn.SGD(own, 0.1, weight_decay=0.01)),
        "weight-decay",
    ),
    _of_rule(
        "decay on the other group",
        (_torch_groups, partial(_groups, (0.01, 0.0)), partial(_groups, (0.0, 0.01))),
        "weight-decay",
    ),
    _of_rule(
        "coupled decay",
        (
            lambda optim, model: optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1),
            _experimental("AdamW", lr=1e-3, weight_decay=0.1),
            lambda nn, own: nn.Adam(own, 1e-3, weight_decay=0.1),
        ),
        "decay-coupled",
    ),
    _of_rule(
        "decoupled decay",
        (
            lambda optim, model: optim.Adam(model.parameters(), 1e-3, weight_decay=0.1),
            lambda nn, own: nn.Adam(own, 1e-3, weight_decay=0.1),
            _experimental("AdamW", lr=1e-3, weight_decay=0.1),
        ),
        "decay-decoupled",
    ),
    _of_rule(
        "AdamWeightDecay for AdamW",
        (
            lambda optim, model: optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01),
            _experimental("AdamW", lr=1e-3, weight_decay=0.01),
            lambda nn, own: nn.AdamWeightDecay(own, 1e-3, eps=1e-8, weight_decay=0.01),
        ),
        "no-bias-correction",
    ),
    Fault(
        "optimizer",
        "epsilon inside the root",
        _torch_optimizer(_root_mean_square(inside=True)),
        ("optimizer",),
        frozenset({"epsilon-inside-root"}),
        reference=_torch_optimizer(lambda optim, model: optim.RMSprop(model.parameters(), 1e-3, alpha=0.9, eps=1e-4)),
        clean=_torch_optimizer(_root_mean_square(inside=False)),
    ),
    _of_schedule("a step late", FALLING, (1.0, *FALLING), "schedule-shifted"),
    _of_schedule("a step early", FALLING, FALLING[1:], "schedule-shifted"),
    _of_schedule("warm-up off by one", WARM_UP, (0.0, *WARM_UP), "schedule-shifted"),
    _of_schedule("no warm-up", WARM_UP, (1.0, 1.0, 1.0, 1.0), "schedule", "rate-decay"),
)
