"""Tiny models written once for PyTorch and MindSpore: a table of layers, and the code that runs them.

`code(net, x, f)` is the forward of both sides: `f` is the kit of one framework, TORCH or MINDSPORE, and calls one
thing by one name. A port is filled from the PyTorch model of the same seed.
"""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
import torch
from mindspore import nn, ops

if TYPE_CHECKING:
    from collections.abc import Callable

    Code = Callable[..., Any]
    Layers = Callable[[Any], dict[str, Any]]

RENAMED = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "embedding_table": "weight",
}


class Kit(SimpleNamespace):
    """What one framework calls the things that the codes use."""

    __hash__ = object.__hash__


class TorchNet(torch.nn.Module):
    """Layers by name, and code that runs them."""

    def __init__(self, layers: dict[str, Any], code: Code) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.code = code

    def forward(self, x: Any) -> Any:
        """Run the code."""
        return self.code(self, x, TORCH)


class TorchMaskedNet(TorchNet):
    """The same with a mask as second input."""

    def forward(self, x: Any, attention_mask: Any) -> Any:
        """Run the code."""
        return self.code(self, x, TORCH, attention_mask)


class PortNet(nn.Cell):
    """Cells by name, and code that runs them."""

    def __init__(self, layers: dict[str, Any], code: Code) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.code = code

    def construct(self, x: Any) -> Any:
        """Run the code."""
        return self.code(self, x, MINDSPORE)


class PortMaskedNet(PortNet):
    """The same with a mask as second input."""

    def construct(self, x: Any, attention_mask: Any) -> Any:
        """Run the code."""
        return self.code(self, x, MINDSPORE, attention_mask)


def mlp_layers(f: Any) -> dict[str, Any]:
    """A dense layer to 16, a norm, a dense layer back to 8."""
    return {"a": f.dense(8, 16), "n": f.norm(16), "b": f.dense(16, 8)}


def mlp(net: Any, x: Any, f: Any) -> Any:
    """The usual way through them."""
    return net.b(f.relu(net.n(net.a(x))))


def make(  # noqa: PLR0913 - one keyword a property
    f: Any,
    code: Code = mlp,
    layers: Layers = mlp_layers,
    *,
    dtype: str = "float32",
    weights: str = "float32",
    masked: bool = False,
    seed: int = 0,
) -> Any:
    """Build a model of one framework in `dtype`; its values, of a seed, were rounded to `weights` before."""
    torch.manual_seed(seed)
    original = _torch_net(layers, code, masked).to(getattr(torch, weights))
    if f is TORCH:
        return original.to(getattr(torch, dtype))
    port = (PortMaskedNet if masked else PortNet)(layers(MINDSPORE), code)
    fill(port, original)
    if dtype != "float32":
        for parameter in port.get_parameters():
            parameter.set_dtype(getattr(mindspore, dtype))
    return port


def _torch_net(layers: Layers, code: Code, masked: bool) -> Any:
    model = (TorchMaskedNet if masked else TorchNet)(layers(TORCH), code)
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the base of all of them
            torch.nn.init.normal_(module.running_mean, std=0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model.eval()


def fill(port: Any, original: Any) -> Any:
    """Give a port the values of the original, by name; returns it."""
    values = original.state_dict()
    for path, parameter in port.parameters_and_names():
        owner, _, own = path.rpartition(".")
        name = f"{owner}.{RENAMED.get(own, own)}" if owner else own
        if name in values:
            value = values[name].detach().to(torch.float32).numpy()
            parameter.set_data(mindspore.Tensor(np.ascontiguousarray(value.reshape(parameter.shape))))
    return port


reference = partial(partial, make)  # reference(TORCH, code, ...) is a factory


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal numbers as float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one_batch(*shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The usual input `x`, [4, 6, 8] unless told."""
    return {"x": numbers(*(shape or (4, 6, 8)), seed=seed)}


def dtype_of(x: Any) -> str:
    """The name of a tensor's dtype in either framework."""
    return str(x.dtype).rpartition(".")[2].lower()


def _torch_const(value: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(value))


def _lstm(inputs: int, width: int) -> Any:
    return torch.nn.LSTM(inputs, width, batch_first=True)


TORCH = Kit(
    name="torch",
    relu=torch.relu,
    gelu=torch.nn.functional.gelu,
    tanh=torch.tanh,
    sigmoid=torch.sigmoid,
    silu=torch.nn.functional.silu,
    exp=torch.exp,
    log=torch.log,
    sin=torch.sin,
    cos=torch.cos,
    abs=torch.abs,
    matmul=torch.matmul,
    softmax=lambda x: torch.softmax(x, -1),
    cat=lambda parts, axis=-1: torch.cat(list(parts), axis),
    stack=lambda parts, axis=0: torch.stack(list(parts), axis),
    mean=lambda x, axis, keep=False: x.mean(axis, keepdim=keep),
    swap=lambda x, a, b: x.transpose(a, b),
    unsqueeze=torch.unsqueeze,
    const=_torch_const,
    cast=lambda x, dtype: x.to(getattr(torch, dtype)),
    array=lambda x: x.detach().float().numpy(),
    dense=torch.nn.Linear,
    norm=torch.nn.LayerNorm,
    conv=lambda i, o, k, padding=0: torch.nn.Conv2d(i, o, k, padding=padding),
    batch_norm=torch.nn.BatchNorm2d,
    embedding=torch.nn.Embedding,
    lstm=_lstm,
    gru=lambda i, w: torch.nn.GRU(i, w, batch_first=True),
    items=torch.nn.ModuleList,
)
MINDSPORE = Kit(
    name="mindspore",
    relu=ops.relu,
    gelu=lambda x: ops.gelu(x, approximate="none"),
    tanh=ops.tanh,
    sigmoid=ops.sigmoid,
    silu=ops.silu,
    exp=ops.exp,
    log=ops.log,
    sin=ops.sin,
    cos=ops.cos,
    abs=ops.abs,
    matmul=ops.matmul,
    softmax=lambda x: ops.softmax(x, -1),
    cat=lambda parts, axis=-1: ops.cat(tuple(parts), axis),
    stack=lambda parts, axis=0: ops.stack(tuple(parts), axis),
    mean=lambda x, axis, keep=False: x.mean(axis, keep_dims=keep),
    swap=lambda x, a, b: x.swapaxes(a, b),
    unsqueeze=ops.expand_dims,
    const=lambda value: mindspore.Tensor(np.ascontiguousarray(value)),
    cast=lambda x, dtype: x.astype(getattr(mindspore, dtype)),
    array=lambda x: x.astype(mindspore.float32).asnumpy(),
    dense=nn.Dense,
    norm=lambda n: nn.LayerNorm((n,), epsilon=1e-5),
    conv=lambda i, o, k, padding=0: nn.Conv2d(i, o, k, pad_mode="pad", padding=padding, has_bias=True),
    batch_norm=lambda n: nn.BatchNorm2d(n, eps=1e-5),
    embedding=nn.Embedding,
    lstm=lambda i, w: nn.LSTM(i, w, batch_first=True),
    gru=lambda i, w: nn.GRU(i, w, batch_first=True),
    items=nn.CellList,
)


def deep_copy(model: Any) -> Any:
    """An own copy of a PyTorch model."""
    return copy.deepcopy(model)
