"""Hooks: layers that run past the hooks, more than once, never, in another order, or compiled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import mindspore
import numpy as np
import torch
from mindspore import nn

from ._nets import MINDSPORE, TORCH, TorchNet, fill, make, mlp, mlp_layers, one_batch, reference
from ._situation import ALIGNED, FAULTS_SEEN, REFUSED, Recipe, clean, faulty, twins


def past_hooks(factor: float = 1.0) -> Any:
    """All layers run by their own methods, so that no hook sees them."""

    def code(net: Any, x: Any, f: Any) -> Any:
        method = "forward" if f is TORCH else "construct"
        a, n, b = (getattr(getattr(net, name), method) for name in "anb")
        return b(f.relu(n(a(x))) * factor)

    return code


def functional(factor: float = 1.0, biased: bool = True) -> Any:
    """Dense layers by hand from their weights."""

    def dense(layer: Any, x: Any, f: Any) -> Any:
        y = f.matmul(x, f.swap(layer.weight, 0, 1))
        return y + layer.bias if biased else y

    return lambda net, x, f: dense(net.b, f.relu(net.n(dense(net.a, x, f))) * factor, f)


def repeated(times: int = 3, factor: float = 1.0, at: int = 1) -> Any:
    """One layer several times; one of the calls gets something else."""

    def code(net: Any, x: Any, f: Any) -> Any:
        for turn in range(times):
            x = f.tanh(net.a(x * factor if turn == at else x))
        return net.b(x)

    return code


def square_layers(f: Any) -> dict[str, Any]:
    """Two dense layers of 8."""
    return {"a": f.dense(8, 8), "b": f.dense(8, 8)}


def listed(count: int) -> Any:
    """A list of dense layers."""
    return lambda f: {"items": f.items([f.dense(8, 8) for _ in range(count)])}


def in_order(order: Any, factor: float = 1.0) -> Any:
    """The layers of a list in some order."""

    def code(net: Any, x: Any, f: Any) -> Any:
        for turn, place in enumerate(order):
            x = f.tanh(net.items[place](x) * (factor if turn == 1 else 1.0))
        return x

    return code


def sliced(factor: float = 1.0) -> Any:
    """Slices of the list: cells of a slice get other names."""

    def code(net: Any, x: Any, f: Any) -> Any:
        for part in (net.items[:2], net.items[2:]):
            for layer in part:
                x = f.tanh(layer(x) * factor)
        return x

    return code


def branches(swapped: bool = False, first_b: bool = False) -> Any:
    """Two layers side by side; which one runs first is of no consequence."""

    def code(net: Any, x: Any, f: Any) -> Any:
        if first_b:
            two = net.b(x)
            one = net.a(x)
        else:
            one, two = net.a(x), net.b(x)
        return f.tanh(two) * 2.0 + f.relu(one) if swapped else f.tanh(one) * 2.0 + f.relu(two)

    return code


def with_head(f: Any) -> dict[str, Any]:
    """A head that only training uses."""
    return {**mlp_layers(f), "head": f.dense(16, 4)}


def other_head() -> Any:
    """A port whose idle head has other values."""
    port = make(MINDSPORE, mlp, with_head)
    port.head.weight.set_data(port.head.weight * 2)
    return port


def hooked(scale: float) -> Any:
    """A hook of the user's own changes what a layer returns."""
    model = make(TORCH)
    model.b.register_forward_hook(lambda _module, _given, returned: returned * scale)
    return model


def hooked_port(scale: float) -> Any:
    """The same in the port."""
    port = make(MINDSPORE)
    port.b.register_forward_hook(lambda _cell, _given, returned: returned * scale)
    return port


def scaled(factor: float) -> Any:
    """The output times a factor."""
    return lambda net, x, f: mlp(net, x, f) * factor


class Jitted(nn.Cell):
    """A network that is compiled."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        for name, layer in mlp_layers(MINDSPORE).items():
            setattr(self, name, layer)

    @mindspore.jit
    def construct(self, x: Any) -> Any:
        """Dense, norm, dense."""
        return self.b(mindspore.ops.relu(self.n(self.a(x))) * self.factor)


class JittedWrong(Jitted):
    """Compiled, and off by 1 %."""

    factor = 1.01


class JittedTail(nn.Cell):
    """The part of a network that is compiled."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.n = nn.LayerNorm((16,), epsilon=epsilon)
        self.b = nn.Dense(16, 8)

    @mindspore.jit
    def construct(self, x: Any) -> Any:
        """Norm, dense."""
        return self.b(mindspore.ops.relu(self.n(x)))


def part_jitted(epsilon: float) -> Any:
    """A port with a compiled part, filled by hand."""
    source = make(TORCH)
    port = make(MINDSPORE, lambda net, x, f: net.tail(net.a(x)), lambda f: {"a": f.dense(8, 16)})
    port.tail = JittedTail(epsilon)
    fill(port.tail, source)
    return port


class OwnCall(nn.Cell):
    """A cell with a `__call__` of its own, which no hook is part of."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        for name, layer in mlp_layers(MINDSPORE).items():
            setattr(self, name, layer)

    def __call__(self, x: Any) -> Any:
        """Past all hooks."""
        return self.construct(x)

    def construct(self, x: Any) -> Any:
        """Dense, norm, dense."""
        return mlp(self, x, MINDSPORE) * self.factor


class OwnCallWrong(OwnCall):
    """The same, off by 1 %."""

    factor = 1.01


def filled(cell: Any) -> Any:
    """A factory of a cell of this module."""
    return lambda: fill(cell(), make(TORCH))


def unregistered(factor: float = 1.0) -> Any:
    """A port that keeps its cells in a plain list, where nobody sees them."""
    source = make(TORCH, in_order(range(3)), listed(3))
    cells = [nn.Dense(8, 8) for _ in range(3)]
    for cell, layer in zip(cells, source.items, strict=True):
        fill(cell, layer)
    port = make(MINDSPORE, in_order(range(3), factor), lambda _f: {})
    port.items = cells
    return port


def compiled(factor: float) -> Any:
    """A PyTorch port through torch.compile, without a compiler behind it."""
    return torch.compile(make(TORCH, scaled(factor)), backend="eager")


def traced(factor: float) -> Any:
    """A PyTorch port through torch.jit.trace."""
    return torch.jit.trace(make(TORCH, scaled(factor)), torch.zeros(4, 6, 8))


def patched(factor: float) -> Any:
    """A PyTorch port with another forward put into one of its layers, as libraries for placing models do."""
    port = make(TORCH)
    usual = port.b.forward
    port.b.forward = lambda x: usual(x) * factor
    return port


def checkpointed(factor: float) -> Any:
    """Activation checkpointing around the middle."""

    def code(net: Any, x: Any, f: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        return net.b(checkpoint(lambda y: f.relu(net.n(net.a(y))), x, use_reentrant=False) * factor)

    return code


def weight_normed(factor: float) -> Any:
    """A PyTorch port with a parametrised weight of the same value."""
    port = make(TORCH, scaled(factor))
    torch.nn.utils.parametrizations.weight_norm(port.b)
    return port


def sometimes(limit: float) -> Any:
    """A layer that only some inputs reach."""
    return lambda net, x, f: mlp(net, x, f) if float(f.array(f.abs(x)).max()) < limit else mlp(net, x, f) * 1.02


def nested(depth: int, factor: float = 1.0) -> Any:
    """Modules in modules, each with a layer."""

    def build(f: Any) -> Any:
        made: Any = None
        for level in range(depth):
            layers = {"a": f.dense(8, 8)} | ({"inner": made} if made is not None else {})
            made = (TorchNet if f is TORCH else type(make(MINDSPORE)))(layers, partial(level_code, factor, level))
        return {"inner": made}

    return build


def level_code(factor: float, level: int, net: Any, x: Any, f: Any) -> Any:
    """One level: its layer, then what is inside; the tenth may be wrong."""
    y = x + f.relu(net.a(x)) * (factor if level == 10 else 1.0)
    return net.inner(y) if hasattr(net, "inner") else y


def to_inner(net: Any, x: Any, f: Any) -> Any:
    """Into the first level."""
    return net.inner(x)


def unseen_twins(name: str, right: Any, wrong: Any, rewritten: Any = None) -> list[Any]:
    """Most parameters are in modules that no hook saw: outputs that agree are told, and are no agreement by layer."""
    same, different = twins(name, right, wrong, rewritten=rewritten)
    return [replace(same, expected=(REFUSED,), named=("no call was seen",)), different]


SQUARE, LISTED, HEAD = Recipe(square_layers), Recipe(listed(3)), Recipe(with_head)
TORCH_PAIR = Recipe(port=TORCH)
SITUATIONS = [
    *unseen_twins("layers past the hooks", past_hooks(), past_hooks(1.001)),
    *unseen_twins("port past the hooks", mlp, past_hooks(1.001), rewritten=past_hooks()),
    *unseen_twins("functional port", mlp, functional(1.001), rewritten=functional()),
    *unseen_twins("functional, bias forgotten", functional(), functional(biased=False)),
    *twins("one layer three times", repeated(), repeated(2), SQUARE),
    *twins("second of three calls is wrong", repeated(), repeated(factor=1.002), SQUARE),
    *twins("list in another order", in_order((0, 1, 2)), in_order((0, 2, 1)), LISTED),
    *twins("list in slices", in_order((0, 1, 2)), sliced(1.001), LISTED, rewritten=sliced()),
    *twins("branches run in another order", branches(), branches(swapped=True, first_b=True), SQUARE,
           rewritten=branches(first_b=True)),
    clean("cells in a plain list", reference(TORCH, in_order(range(3)), listed(3)), unregistered,
          expected=(ALIGNED, REFUSED)),
    faulty("cells in a plain list", reference(TORCH, in_order(range(3)), listed(3)), partial(unregistered, 1.001),
           expected=FAULTS_SEEN),
    clean("idle head", HEAD.original(), HEAD.other()),
    faulty("idle head with other values", HEAD.original(), other_head, named=("head",)),
    clean("hook of the user's", partial(hooked, 2.0), partial(hooked_port, 2.0)),
    faulty("hook of the user's", partial(hooked, 2.0), reference(MINDSPORE)),
    clean("hook that does nothing", partial(hooked, 1.0), reference(MINDSPORE)),
    clean("cell with its own call", reference(TORCH), filled(OwnCall), expected=(ALIGNED, REFUSED)),
    faulty("cell with its own call", reference(TORCH), filled(OwnCallWrong), expected=FAULTS_SEEN),
    clean("torch.compile", reference(TORCH), partial(compiled, 1.0)),
    faulty("torch.compile", reference(TORCH), partial(compiled, 1.001)),
    clean("torch.jit.trace", reference(TORCH), partial(traced, 1.0), expected=(ALIGNED, REFUSED)),
    faulty("torch.jit.trace", reference(TORCH), partial(traced, 1.001), expected=FAULTS_SEEN),
    clean("forward put into a layer", reference(TORCH), partial(patched, 1.0)),
    faulty("forward put into a layer", reference(TORCH), partial(patched, 1.001)),
    *twins("activation checkpointing", checkpointed(1.0), checkpointed(1.001), TORCH_PAIR),
    clean("weight norm", reference(TORCH), partial(weight_normed, 1.0), expected=(ALIGNED, REFUSED)),
    faulty("weight norm", reference(TORCH), partial(weight_normed, 1.001), expected=FAULTS_SEEN),
    *twins("a way that the inputs do not take", mlp, sometimes(2.0), rewritten=sometimes(1e6)),
    clean("thirty levels", reference(TORCH, to_inner, nested(30)), reference(MINDSPORE, to_inner, nested(30))),
    faulty("thirty levels", reference(TORCH, to_inner, nested(30)), reference(MINDSPORE, to_inner, nested(30, 1.01))),
    *twins("inputs by another name", mlp, scaled(1.001), inputs=lambda: {"pixels": one_batch()["x"]}),
    *twins("inputs of float64", mlp, scaled(1.001), inputs=lambda: {"x": one_batch()["x"].astype(np.float64)}),
    # Last: what MindSpore cannot compile has been seen to end the process a while later.
    clean("jitted cell", reference(TORCH), filled(Jitted), expected=(ALIGNED, REFUSED), named=("jit",)),
    faulty("jitted cell", reference(TORCH), filled(JittedWrong), expected=FAULTS_SEEN),
    clean("jitted part", reference(TORCH), partial(part_jitted, 1e-5), expected=(ALIGNED, REFUSED), named=("jit",)),
    faulty("jitted part", reference(TORCH), partial(part_jitted, 1e-3), expected=FAULTS_SEEN),
]  # fmt: skip
