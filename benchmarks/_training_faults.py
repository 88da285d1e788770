"""The faults of training_mutations.py: how each is planted, where it stands, and what may be said of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import align

    Make = Callable[[Any, str, int], align.Training]

ALL = ("mlp", "resnet", "encoder", "lstm")
MOVED_SHARE = 1e-5


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: how both sides are made (of the nets, the net's name, a seed), and where it is to be found.

    `parts` and `kinds` are those of a culprit that names it, `module` the beginning of its path; `causes` hold one
    that it must be given, none if any will do.
    """

    group: str
    name: str
    faulty: Make
    parts: tuple[str, ...]
    causes: frozenset[str] = frozenset()
    module: Mapping[str, str] = field(default_factory=dict)
    nets: tuple[str, ...] = ALL
    reference: Make = field(default=lambda nets, net, seed: nets.torch_side(net, "sgd", seed))
    clean: Make = field(default=lambda nets, net, _seed: nets.mindspore_side(net, "sgd"))

    def is_at(self, net: str, part: str, candidate: str) -> bool:
        """Tell whether a culprit stands where the fault is."""
        return part in self.parts and candidate.startswith(self.module.get(net, ""))


def moves(clean: align.Training, faulty: align.Training, batch: Mapping[str, Any], steps: int) -> bool:
    """Tell whether a faulty side ends elsewhere than the clean one, from the same values."""
    _fill(faulty, _values(clean))
    ends = []
    for side in (clean, faulty):
        for _ in range(steps):
            _step(side, batch)
        ends.append(_values(side))
    return any(
        np.abs(ends[1][name] - own).max(initial=0.0) > MOVED_SHARE * max(np.abs(own).max(initial=0.0), MOVED_SHARE)
        for name, own in ends[0].items()
        if name in ends[1]
    )


def _is_torch(side: align.Training) -> bool:
    return hasattr(side.model, "register_buffer") and not hasattr(side.model, "construct")


def _values(side: align.Training) -> dict[str, Any]:
    if _is_torch(side):
        return {name: one.detach().numpy().astype(np.float64) for name, one in side.model.state_dict().items()}
    return {one.name: one.asnumpy().astype(np.float64) for one in side.model.get_parameters()}


def _fill(side: align.Training, values: Mapping[str, Any]) -> None:
    if _is_torch(side):
        import torch

        held = side.model.state_dict()
        side.model.load_state_dict({name: torch.tensor(values[name]).to(held[name].dtype) for name in held})
        return
    import mindspore

    for one in side.model.get_parameters():
        if one.name in values:
            one.set_data(mindspore.Tensor(values[one.name].astype(np.float32)).astype(one.dtype))


def _step(side: align.Training, batch: Mapping[str, Any]) -> None:
    """One step as everybody writes it, without the tool."""
    if _is_torch(side):
        import torch

        side.model.train()
        given = {name: torch.tensor(value) for name, value in batch.items()}
        if side.step is not None:
            side.step(given)
            return
        side.optimizer.zero_grad()
        side.loss(side.model(given["x"]), given["label"]).backward()
        side.optimizer.step()
        return
    import mindspore

    side.model.set_train(True)
    given = {"x": mindspore.Tensor(batch["x"]), "label": mindspore.Tensor(batch["label"].astype(np.int32))}
    if side.step is not None:
        side.step(given)
        return
    weights = side.model.trainable_params()
    grad = mindspore.value_and_grad(lambda x, y: side.loss(side.model(x), y), None, weights)
    _, gradients = grad(given["x"], given["label"])
    by_name = dict(zip((one.name for one in weights), gradients, strict=True))
    side.optimizer(tuple(by_name.get(one.name, one * 0) for one in side.optimizer.parameters))


def _loss(make: Callable[[], Any]) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, "sgd", loss=make())


def _cross_entropy(**settings: Any) -> Any:
    from mindspore import nn

    return nn.CrossEntropyLoss(**settings)


def _own_loss(change: Callable[[Any, Any, Any], Any]) -> Any:
    whole = _cross_entropy()
    return lambda logits, label: change(whole, logits, label)


def _double_softmax(whole: Any, logits: Any, label: Any) -> Any:
    from mindspore import ops

    return whole(ops.softmax(logits), label)


def _shifted(whole: Any, logits: Any, label: Any) -> Any:
    return whole(logits, (label + 1) % 10)


def _between(change: Callable[[Any], Any]) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, "sgd", between=lambda _, value: change(value))


def _stopped(value: Any) -> Any:
    from mindspore import ops

    return ops.stop_gradient(value)


def _scaled_back(factor: float, value: Any) -> Any:
    from mindspore import ops

    return factor * value + ops.stop_gradient((1 - factor) * value)


def _with_bprop(change: Callable[[Any], Any], value: Any) -> Any:
    from mindspore import nn

    class Passed(nn.Cell):
        def construct(self, tensor: Any) -> Any:
            return tensor * 1

        def bprop(self, _tensor: Any, _out: Any, gradient: Any) -> Any:
            return (change(gradient),)

    return Passed()(value)


def _changed(change: Callable[[Any], object]) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, "sgd", change=change)


def _frozen(name: str, model: Any) -> None:
    for one in getattr(model, name).get_parameters():
        one.requires_grad = False


def _held_norm(model: Any) -> None:
    for _, cell in model.cells_and_names():
        if "BatchNorm" in type(cell).__name__:
            cell.use_batch_statistics = False
            return


def _other_momentum(model: Any) -> None:
    from mindspore import nn

    holder, prefix, width = (model, "norm", 24) if hasattr(model, "norm") else (model.block1, "norm1", 8)
    names = [one.name for one in getattr(holder, prefix).get_parameters()]
    made = (nn.BatchNorm1d if width == 24 else nn.BatchNorm2d)(width, momentum=0.1)
    setattr(holder, prefix, made)
    for one, name in zip(made.get_parameters(), names, strict=True):
        one.name = name


def _optimizer(make: Callable[[Any, Any], Any], kind: str = "sgd") -> Make:
    def side(nets: Any, net: str, _seed: int) -> align.Training:
        from mindspore import nn

        own = nets.mindspore_side(net, kind)
        return replace(own, optimizer=make(nn, own.model.trainable_params()))

    return side


def _reference(optimizer: str) -> Make:
    return lambda nets, net, seed: nets.torch_side(net, optimizer, seed)


def _clean(optimizer: str) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, optimizer)


def _loop(kind: str, nets: Any, net: str, seed: int) -> align.Training:
    """A torch port with a loop of its own, right or not."""
    import torch

    side = nets.torch_side(net, "sgd", seed)
    model, loss, optimizer = side.model, side.loss, side.optimizer
    scale = 1024.0 if "scale" in kind else 1.0

    def step(given: Any) -> Any:
        if kind != "gradients not cleared":
            optimizer.zero_grad()
        parts = (slice(0, 8), slice(8, 16)) if "parts" in kind else (slice(None),)
        for part in parts:
            label = (given["label"][part] + 1) % 10 if kind == "labels shifted" else given["label"][part]
            value = loss(model(given["x"][part]), label)
            (value * scale / (1 if kind == "parts without mean" else len(parts))).backward()
        if kind == "clipped before the scale is off":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if "scale" in kind and kind != "scale kept":
            for one in model.parameters():
                one.grad /= scale
        if kind == "clipped by norm":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        if kind == "clipped by value":
            torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        optimizer.step()
        return value.detach()

    return replace(side, step=step)


def _of_loop(kind: str, right: str, parts: tuple[str, ...], *causes: str) -> Fault:
    return Fault(
        "loop", kind, partial(_loop, kind), parts, frozenset(causes),
        reference=partial(_loop, right), clean=partial(_loop, right),
    )  # fmt: skip


def _of_optimizer(name: str, make: Callable[[Any, Any], Any], kind: str, *causes: str) -> Fault:
    return Fault(
        "optimizer", name, _optimizer(make, kind), ("optimizer",), frozenset(causes),
        reference=_reference(kind), clean=_clean(kind),
    )  # fmt: skip


CODE = {"mlp": "", "resnet": "block2", "encoder": "", "lstm": ""}
NORMS = {"mlp": "norm", "resnet": "block1.norm1"}
WITH_NORM = ("mlp", "resnet")
FACTOR = frozenset({"gradient-factor"})
FAULTS = (
    Fault(
        "loss", "sum for mean", _loss(lambda: _cross_entropy(reduction="sum")), ("loss",), frozenset({"loss-reduction"})
    ),
    Fault(
        "loss",
        "label smoothing",
        _loss(lambda: _cross_entropy(label_smoothing=0.1)),
        ("loss",),
        frozenset({"cross-entropy-smoothing"}),
    ),
    Fault(
        "loss",
        "a class left out",
        _loss(lambda: _cross_entropy(ignore_index=3)),
        ("loss",),
        frozenset({"cross-entropy-ignored-index"}),
    ),
    Fault("loss", "softmax twice", _loss(lambda: _own_loss(_double_softmax)), ("loss",)),
    Fault("loss", "labels shifted", _loss(lambda: _own_loss(_shifted)), ("loss",)),
    Fault("loss", "twice the loss", _loss(lambda: _own_loss(lambda whole, x, y: 2.0 * whole(x, y))), ("loss",), FACTOR),
    Fault("backward", "detached", _between(_stopped), ("code",), frozenset({"no-gradient"}), CODE),
    Fault("backward", "half stopped", _between(partial(_scaled_back, 0.5)), ("code",), FACTOR, CODE),
    Fault(
        "backward", "own bprop, doubled", _between(partial(_with_bprop, lambda one: 2 * one)), ("code",), FACTOR, CODE
    ),
    Fault("backward", "own bprop, reversed", _between(partial(_with_bprop, lambda one: -one)), ("code",), FACTOR, CODE),
    Fault(
        "backward",
        "own bprop, clipped",
        _between(partial(_with_bprop, lambda one: one.clip(-1e-4, 1e-4))),
        ("code",),
        frozenset(),
        CODE,
    ),
    Fault(
        "layer",
        "head frozen",
        _changed(partial(_frozen, "head")),
        ("layer",),
        frozenset({"no-gradient"}),
        dict.fromkeys(ALL, "head"),
    ),
    Fault("layer", "norm in evaluation mode", _changed(_held_norm), ("layer",), frozenset(), NORMS, WITH_NORM),
    Fault(
        "layer",
        "momentum of the other framework",
        _changed(_other_momentum),
        ("layer",),
        frozenset({"statistics-momentum-swapped"}),
        NORMS,
        WITH_NORM,
    ),
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
    _of_loop("gradients not cleared", "plain", ("step",), "gradients-not-cleared"),
    _of_loop("labels shifted", "plain", ("loss",)),
    _of_loop("parts without mean", "parts", ("loss",), "gradient-factor", "mean-against-sum"),
    _of_loop("scale kept", "plain", ("loss",), "gradient-factor"),
    _of_loop(
        "clipped before the scale is off", "plain", ("step", "loss"), "gradient-factor", "gradients-clipped-by-norm"
    ),
    _of_loop("clipped by norm", "plain", ("step",), "gradients-clipped-by-norm", "gradient-factor"),
    _of_loop("clipped by value", "plain", ("step",), "gradient-clipped"),
)
