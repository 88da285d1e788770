"""Faults of the loss, of what layers send back, of layers and of loops: how each is planted, and where it stands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from _optimizer_faults import OPTIMIZER_FAULTS
from _planted_fault import ALL, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _planted_fault import Make

    import align


def _loss(make: Callable[[], Any]) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, "sgd", loss=make())


def _cross_entropy(**settings: Any) -> Any:
    from mindspore import nn

    return nn.CrossEntropyLoss(**settings)


def _own_loss(change: Callable[[Any, Any, Any], Any]) -> Any:
    whole = _cross_entropy()
    return lambda logits, label: change(whole, logits, label)


def _counts_ignored(_whole: Any, logits: Any, label: Any) -> Any:
    """Labels that are left out count in the mean."""
    return _cross_entropy(ignore_index=3, reduction="sum")(logits, label) / len(label)


def _ignoring(nets: Any, net: str, seed: int) -> align.Training:
    import torch

    return replace(nets.torch_side(net, "sgd", seed), loss=torch.nn.CrossEntropyLoss(ignore_index=3))


def _double_softmax(whole: Any, logits: Any, label: Any) -> Any:
    from mindspore import ops

    return whole(ops.softmax(logits), label)


def _shifted(whole: Any, logits: Any, label: Any) -> Any:
    return whole(logits, (label + 1) % 10)


def _between(change: Callable[[Any], Any]) -> Make:
    return lambda nets, net, _seed: nets.mindspore_side(net, "sgd", between=lambda _, value: change(value))


def _between_in_torch(change: Callable[[Any], Any]) -> Make:
    return lambda nets, net, seed: nets.torch_side(net, "sgd", seed, between=lambda _, value: change(value))


def _stopped(value: Any) -> Any:
    from mindspore import ops

    return ops.stop_gradient(value)


def _scaled_back(factor: float, value: Any) -> Any:
    from mindspore import ops

    return factor * value + ops.stop_gradient((1 - factor) * value)


def _torch_through(value: Any) -> Any:
    """Steps of 1/16 whose gradient goes through as it is."""
    return value + ((value * LEVELS).round() / LEVELS - value).detach()


def _through(value: Any) -> Any:
    from mindspore import ops

    return value + ops.stop_gradient(_stepped(value) - value)


def _stepped(value: Any) -> Any:
    """MindSpore's and torch's tensors alike."""
    return (value * LEVELS).round() / LEVELS


def _plus_tanh(value: Any) -> Any:
    return value + value.tanh()


def _with_branch(value: Any) -> Any:
    from mindspore import ops

    return value + ops.stop_gradient(ops.tanh(value))


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


def _loop(kind: str, nets: Any, net: str, seed: int) -> align.Training:
    """A torch port with a loop of its own, right or not."""
    side = nets.torch_side(net, "sgd", seed)
    scale = 1024.0 if "scale" in kind else 1.0

    def step(given: Any) -> Any:
        if kind != "gradients not cleared":
            side.optimizer.zero_grad()
        parts = (slice(0, 8), slice(8, 16)) if "parts" in kind else (slice(None),)
        for part in parts:
            label = (given["label"][part] + 1) % 10 if kind == "labels shifted" else given["label"][part]
            value = side.loss(side.model(given["x"][part]), label)
            (value * scale / (1 if kind == "parts without mean" else len(parts))).backward()
        _change_gradients(kind, [*side.model.parameters()], scale)
        side.optimizer.step()
        return value.detach()

    return replace(side, step=step)


def _change_gradients(kind: str, own: Sequence[Any], scale: float) -> None:
    """What the loop does between the way back and the update."""
    from torch.nn import utils

    if kind == "clipped before the scale is off":
        utils.clip_grad_norm_(own, 1.0)
    factor = 4.0 if kind == "summed over 4 machines" else 1.0 if kind == "scale kept" else 1 / scale
    for one in own:
        one.grad *= factor
    if kind == "clipped by norm":
        utils.clip_grad_norm_(own, 0.05)
    if kind == "clipped by value":
        utils.clip_grad_value_(own, 1e-3)
    for one in own if kind == "each clipped by its norm" else ():
        utils.clip_grad_norm_(one, 0.01)


def _of_loop(kind: str, right: str, parts: tuple[str, ...], *causes: str) -> Fault:
    return Fault(
        "loop", kind, partial(_loop, kind), parts, frozenset(causes),
        reference=partial(_loop, right), clean=partial(_loop, right),
    )  # fmt: skip


LEVELS = 16
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
    Fault(
        "loss",
        "ignored labels counted",
        _loss(lambda: _own_loss(_counts_ignored)),
        ("loss",),
        FACTOR,
        reference=_ignoring,
        clean=_loss(lambda: _cross_entropy(ignore_index=3)),
    ),
    Fault(
        "loss",
        "mean over the classes too",
        _loss(lambda: _own_loss(lambda whole, x, y: whole(x, y) / 10)),
        ("loss",),
        FACTOR,
    ),
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
        "backward",
        "not stopped",
        _between(lambda value: value * 1),
        ("code",),
        frozenset({"gradient-not-stopped"}),
        CODE,
        reference=_between_in_torch(lambda value: value.detach()),
        clean=_between(_stopped),
    ),
    Fault(
        "backward",
        "a branch not stopped",
        _between(_plus_tanh),
        ("code",),
        frozenset(),
        CODE,
        reference=_between_in_torch(lambda value: value + value.tanh().detach()),
        clean=_between(_with_branch),
    ),
    Fault(
        "backward",
        "rounded, and no gradient through",
        _between(_stepped),
        ("code",),
        frozenset({"no-gradient"}),
        CODE,
        reference=_between_in_torch(_torch_through),
        clean=_between(_through),
    ),
    Fault(
        "backward",
        "gradient through a rounding",
        _between(_through),
        ("code",),
        frozenset({"gradient-not-stopped"}),
        CODE,
        reference=_between_in_torch(_stepped),
        clean=_between(_stepped),
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
    _of_loop("gradients not cleared", "plain", ("step",), "gradients-not-cleared"),
    _of_loop("labels shifted", "plain", ("loss",)),
    _of_loop("parts without mean", "parts", ("step",), "sum-over-parts"),
    _of_loop("scale kept", "plain", ("step",), "loss-scale-kept"),
    _of_loop(
        "clipped before the scale is off", "plain", ("step", "loss"), "gradient-factor", "gradients-clipped-by-norm"
    ),
    _of_loop("clipped by norm", "plain", ("step",), "gradients-clipped-by-norm", "gradient-factor"),
    _of_loop("clipped by value", "plain", ("step",), "gradient-clipped"),
    _of_loop("each clipped by its norm", "plain", ("step",), "gradients-clipped-by-own-norm"),
    _of_loop("summed over 4 machines", "plain", ("step",), "gradient-factor"),
    *OPTIMIZER_FAULTS,
)
