"""Kinds of clean pairs: what a model is made of, by sizes that are drawn, and the code that both sides run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ._nets import MINDSPORE, TORCH, make

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._nets import Code, Layers

BATCHES = (1, 2, 3, 4, 8, 17)
WIDTHS = (3, 8, 16, 24, 33, 64)


@dataclass(frozen=True, slots=True)
class Body:
    """One kind: the sizes to choose from, its layers and code by them, and the shape of its input."""

    sizes: dict[str, tuple[int, ...]]
    layers: Callable[[dict[str, int]], Layers]
    code: Callable[[dict[str, int]], Code]
    shape: Callable[[dict[str, int]], tuple[int, ...]]


def sides_of(name: str, sizes: dict[str, int], seed: int, precision: tuple[str, str, str, str]) -> tuple[Any, Any]:
    """Factories of both sides of a pair."""
    body, (mine, theirs, framework, weights) = BODIES[name], precision
    layers, code = body.layers(sizes), body.code(sizes)
    kit = TORCH if framework == "torch" else MINDSPORE
    finished = in_other_order if kit is TORCH else _as_it_is
    return (
        lambda: make(TORCH, code, layers, dtype=mine, weights=weights, seed=seed),
        lambda: finished(make(kit, code, layers, dtype=theirs, weights=weights, seed=seed)),
    )


def inputs_of(name: str, sizes: dict[str, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Standard normal numbers of the kind's shape."""
    return {"x": generator.standard_normal(BODIES[name].shape(sizes)).astype(np.float32)}


def _as_it_is(model: Any) -> Any:
    return model


def in_other_order(model: Any) -> Any:
    """Have the layers of a PyTorch model add in another order, as those of another library do; returns it."""
    forwards = {torch.nn.Linear: _dense, torch.nn.Conv2d: _conv, torch.nn.LayerNorm: _norm}
    for module in model.modules():
        if type(module) in forwards:
            module.forward = partial(forwards[type(module)], module)
    return model


def _dense(layer: Any, x: Any) -> Any:
    return torch.nn.functional.linear(x.flip(-1), layer.weight.flip(-1), layer.bias)


def _conv(layer: Any, x: Any) -> Any:
    return torch.nn.functional.conv2d(x.flip(1), layer.weight.flip(1), layer.bias, padding=layer.padding)


def _norm(layer: Any, x: Any) -> Any:
    """In float32, as most norms of large models are written."""
    wide = x.float()
    wide = wide - wide.mean(-1, keepdim=True)
    normal = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + layer.eps)
    return normal.to(x.dtype) * layer.weight + layer.bias


def mlp_layers(sizes: dict[str, int]) -> Layers:
    """Dense layers with norms."""

    def layers(f: Any) -> dict[str, Any]:
        width, made = sizes["width"], {"first": f.dense(sizes["inputs"], sizes["width"])}
        for level in range(sizes["depth"]):
            made |= {f"n{level}": f.norm(width), f"d{level}": f.dense(width, width)}
        return {**made, "last": f.dense(width, sizes["outputs"])}

    return layers


def mlp_code(sizes: dict[str, int]) -> Code:
    """Through all of them, with one of the usual activations."""

    def code(net: Any, x: Any, f: Any) -> Any:
        act = (f.relu, f.gelu, f.silu)[sizes["activation"]]
        x = net.first(x)
        for level in range(sizes["depth"]):
            x = getattr(net, f"d{level}")(act(getattr(net, f"n{level}")(x)))
        return net.last(x)

    return code


def chain_code(sizes: dict[str, int]) -> Code:
    """The same, where each level is added to what it was given."""

    def code(net: Any, x: Any, f: Any) -> Any:
        x = net.first(x)
        for level in range(sizes["depth"]):
            x = x + getattr(net, f"d{level}")(f.relu(getattr(net, f"n{level}")(x)))
        return net.last(x)

    return code


def conv_layers(sizes: dict[str, int]) -> Layers:
    """Convolutions with BatchNorm, and a dense layer."""

    def layers(f: Any) -> dict[str, Any]:
        width, made = sizes["width"], {}
        for level in range(sizes["depth"]):
            made[f"c{level}"] = f.conv(width if level else 3, width, sizes["kernel"], sizes["kernel"] // 2)
            made[f"n{level}"] = f.batch_norm(width)
        return {**made, "last": f.dense(width, sizes["outputs"])}

    return layers


def conv_code(sizes: dict[str, int]) -> Code:
    """Through all of them; the mean of each channel ends it."""

    def code(net: Any, x: Any, f: Any) -> Any:
        for level in range(sizes["depth"]):
            x = f.relu(getattr(net, f"n{level}")(getattr(net, f"c{level}")(x)))
        return net.last(f.mean(f.mean(x, 3), 2))

    return code


def attention_layers(sizes: dict[str, int]) -> Layers:
    """Blocks of attention and of dense layers, with norms in front."""

    def layers(f: Any) -> dict[str, Any]:
        width, made = 8 * sizes["heads"], {}
        for level in range(sizes["depth"]):
            made |= {f"{name}{level}": f.dense(width, width) for name in "qkvo"}
            made |= {f"n{level}": f.norm(width), f"m{level}": f.norm(width)}
            made |= {f"up{level}": f.dense(width, 2 * width), f"down{level}": f.dense(2 * width, width)}
        return {**made, "last": f.norm(width)}

    return layers


def attention_code(sizes: dict[str, int]) -> Code:
    """Through all blocks."""

    def code(net: Any, x: Any, f: Any) -> Any:
        for level in range(sizes["depth"]):
            own = {name: getattr(net, f"{name}{level}") for name in ("q", "k", "v", "o", "n", "m", "up", "down")}
            x = x + own["o"](_attended(own, own["n"](x), f, sizes["heads"]))
            x = x + own["down"](f.gelu(own["up"](own["m"](x))))
        return net.last(x)

    return code


def _attended(own: dict[str, Any], x: Any, f: Any, heads: int) -> Any:
    """Attention of several heads over [batch, length, width]."""
    batch, length, width = x.shape
    q, k, v = (f.swap(own[name](x).reshape(batch, length, heads, -1), 1, 2) for name in "qkv")
    weight = f.softmax(f.matmul(q, f.swap(k, -1, -2)) * (heads / width) ** 0.5)
    return f.swap(f.matmul(weight, v), 1, 2).reshape(batch, length, width)


def recurrent_layers(kind: str) -> Callable[[dict[str, int]], Layers]:
    """A recurrent layer, or a chain of them, and a dense one."""

    def layers_of(sizes: dict[str, int]) -> Layers:
        def layers(f: Any) -> dict[str, Any]:
            made = {
                f"r{level}": getattr(f, kind)(sizes["width"] if level else sizes["inputs"], sizes["width"])
                for level in range(sizes["depth"])
            }
            return {**made, "last": f.dense(sizes["width"], sizes["outputs"])}

        return layers

    return layers_of


def recurrent_code(sizes: dict[str, int]) -> Code:
    """Through all places of all layers."""

    def code(net: Any, x: Any, f: Any) -> Any:
        for level in range(sizes["depth"]):
            x = getattr(net, f"r{level}")(x)[0]
        return net.last(x)

    return code


FLAT = {"batch": BATCHES, "inputs": WIDTHS, "width": WIDTHS, "outputs": (1, 2, 5, 10, 33)}
RECURRENT = FLAT | {"depth": (1, 2), "length": (1, 4, 9, 16), "width": (8, 16, 33)}
BODIES = {
    "MLP": Body(
        FLAT | {"depth": (1, 2, 4, 7), "activation": (0, 1, 2)},
        mlp_layers,
        mlp_code,
        lambda sizes: (sizes["batch"], sizes["inputs"]),
    ),
    "deep chain": Body(
        FLAT | {"depth": (40, 48, 60), "width": (8, 16, 24)},
        mlp_layers,
        chain_code,
        lambda sizes: (sizes["batch"], sizes["inputs"]),
    ),
    "convolutions": Body(
        {"batch": BATCHES[:5], "side": (5, 8, 12), "width": (4, 8, 13), "depth": (1, 2, 4), "kernel": (1, 3, 5)}
        | {"outputs": (1, 5, 10)},
        conv_layers,
        conv_code,
        lambda sizes: (sizes["batch"], 3, sizes["side"], sizes["side"] + 1),
    ),
    "attention": Body(
        {"batch": BATCHES[:5], "length": (1, 5, 12, 20), "heads": (1, 2, 4), "depth": (1, 2, 3)},
        attention_layers,
        attention_code,
        lambda sizes: (sizes["batch"], sizes["length"], 8 * sizes["heads"]),
    ),
    "LSTM": Body(
        RECURRENT,
        recurrent_layers("lstm"),
        recurrent_code,
        lambda sizes: (sizes["batch"], sizes["length"], sizes["inputs"]),
    ),
    "GRU": Body(
        RECURRENT,
        recurrent_layers("gru"),
        recurrent_code,
        lambda sizes: (sizes["batch"], sizes["length"], sizes["inputs"]),
    ),
}
