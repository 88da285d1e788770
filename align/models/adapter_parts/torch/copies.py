"""Copies of live torch layers, as they are or built anew with other settings, and what they share with the original.

Two models that share tensors are not two: where these lie in memory shows it. Where and in which precision a model
computes is decided here too: nothing else knows of devices other than the CPU.
"""

from __future__ import annotations

import copy
import importlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.parameters import TensorMemory
from align.errors import CannotRunError
from align.models.adapter_parts.torch.state import is_scripted
from align.models.live.tensor_memory import checksum, refuse_captured, sample
from align.models.nested_values import leaves, with_leaves
from align.models.rebuild_from_settings import LayerBuilder, LayerTypes, build_named, rebuild_layer, with_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array
    from align.core.layer_settings import LayerSettings, Setting
    from align.core.protocols import Model

TRANSFORMER = {
    "d_model": "self_attn.embed_dim",
    "nhead": "self_attn.num_heads",
    "dim_feedforward": "linear1.out_features",
    "dropout": "dropout.p",
    "activation": "activation",
    "layer_norm_eps": "norm1.eps",
    "batch_first": "self_attn.batch_first",
}
WEIGHTS = ("weight", "pos_weight")  # of classes, which a loss takes as a tensor
KEPT_AT = {"TransformerEncoderLayer": TRANSFORMER, "TransformerDecoderLayer": TRANSFORMER}


def rebuilt_module(layer: Model, settings: LayerSettings, changes: Mapping[str, Setting]) -> Model | None:
    """Rebuild a module whose class is torch's own or made from one; in evaluation mode.

    Of a user's own class the attributes are changed on a copy, if it keeps such.
    """
    import torch

    cls = next((base for base in type(layer).__mro__ if base.__module__.startswith("torch.nn.modules.")), None)
    if cls in (None, torch.nn.Module):
        return with_attributes(copy.deepcopy(layer).eval(), changes) if changes.keys() <= vars(layer).keys() else None
    like = next((tensor for tensor in layer.parameters() if tensor.is_floating_point()), torch.empty(0))
    types = LayerTypes(torch.nn.Module, torch.nn.Parameter, torch.Tensor, torch.equal)
    builder = LayerBuilder(cls, partial(_build, cls, like), copy.deepcopy, _fill, types, KEPT_AT.get(cls.__name__, {}))
    with torch.random.fork_rng(devices=[]):
        changed = rebuild_layer(layer, settings, changes, builder)
    return None if changed is None else changed.eval()


def built_module(class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
    """Build a module of a public class; in evaluation mode."""
    import torch

    with torch.random.fork_rng(devices=[]):
        module = build_named(class_name, arguments)
    return None if module is None else module.eval()


def _build(cls: Any, like: Any, **arguments: Setting) -> Model:
    import torch

    found: dict[str, Any] = dict(arguments)
    weights = {
        name: torch.tensor(value) for name, value in found.items() if name in WEIGHTS and isinstance(value, tuple)
    }
    return cls(**{**found, **weights}).to(device=like.device, dtype=like.dtype)


def _fill(built: Model, layer: Model) -> None:
    import torch

    live = dict(layer.named_parameters())
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if name in live and live[name].shape == parameter.shape:
                parameter.copy_(live[name])


def torch_memory(model: Model, to_array: Callable[[Any], Array]) -> dict[str, TensorMemory]:
    """Find all parameters and buffers, those too that no state_dict has: all of them are cast and moved."""
    from torch.nn.parameter import is_lazy

    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    return {
        name: _memory(tensor, to_array) for name, tensor in tensors.items() if not (tensor.is_meta or is_lazy(tensor))
    }


def copied_model(model: Model) -> Model:
    """Copy a model whole; raises what cannot be copied raises, and TypeError where a function keeps the original."""
    import torch

    copied = copy.deepcopy(model)
    tensors = (*copied.parameters(), *copied.buffers())
    refuse_captured([*copied.modules()], tensors, (torch.nn.Module, torch.Tensor))
    return copied


def _memory(tensor: Any, to_array: Callable[[Any], Array]) -> TensorMemory:
    import torch

    start = stop = 0
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    if tensor.layout == torch.strided:
        with suppress(RuntimeError, NotImplementedError):  # of subclasses that only wrap others
            storage = tensor.untyped_storage()
            start, stop = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    flat = dense.reshape(-1)
    content = checksum(to_array(flat if flat.is_quantized else flat[sample(flat.numel())]))
    return TensorMemory(str(tensor.dtype), str(tensor.device), start, stop, content)


# Packages that bring a device to torch when they are imported.
BROUGHT_BY = {"npu": "torch_npu"}


def place_model(model: Model, device: str | None, dtype: str | None) -> None:
    """Move a model, and cast its floating tensors, in place."""
    import torch

    if device is not None:
        model.to(device=checked_device(device))
    if dtype is not None:
        model.to(dtype=getattr(torch, dtype))


def placed_layer(layer: Model, device: str | None, dtype: str | None) -> Callable[..., Any]:
    """Let a copy of the layer answer there, in that precision; what it returns comes back as the layer's own would."""
    import torch

    copied = copy.deepcopy(layer)
    place_model(copied, device, dtype)
    wanted = None if dtype is None else getattr(torch, dtype)

    def answer(*args: Any, **kwargs: Any) -> Any:
        given = [leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf)]
        like = next((leaf for leaf in given if leaf.is_floating_point()), next(iter(layer.parameters()), None))
        there = with_leaves((args, kwargs), lambda _, leaf: moved(leaf, device, wanted))
        output = copied(*there[0], **there[1])
        return output if like is None else with_leaves(output, lambda _, leaf: moved(leaf, like.device, like.dtype))

    return answer


def widened_model(model: Model, width: str) -> Model:
    """Copy a model in another precision; whatever its code casts, layers with tensors of their own are given it."""
    wide = getattr(copy.deepcopy(model), width)()
    for module in wide.modules():
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        dtype = next((tensor.dtype for tensor in own if tensor.is_floating_point()), None)
        if dtype is not None and not is_scripted(module):
            module.register_forward_pre_hook(partial(_cast_inputs, dtype), with_kwargs=True)
    return wide


def _cast_inputs(dtype: Any, _module: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    tensors = (leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf))
    if all(tensor.dtype == dtype or not tensor.is_floating_point() for tensor in tensors):
        return None  # containers stay the same ones: a module may write into them
    return with_leaves((args, kwargs), lambda _, leaf: moved(leaf, None, dtype))


def moved(leaf: Any, device: Any, dtype: Any) -> Any:
    """Move a tensor, and cast a floating one; anything else stays."""
    import torch

    if not torch.is_tensor(leaf):
        return leaf
    return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() else None)


def checked_device(name: str) -> Any:
    """Return a device that is there; raises CannotRunError otherwise."""
    import torch

    kind = name.partition(":")[0]
    if kind in BROUGHT_BY:
        try:
            importlib.import_module(BROUGHT_BY[kind])
        except ImportError as error:
            raise CannotRunError.of(
                "torch_model.no_device_for", name=name, error=error, package=BROUGHT_BY[kind], version=torch.__version__
            ) from error
    there = ["cpu", *(one for one in ("cuda", "npu", "xpu", "mps") if _is_there(one))]
    with suppress(RuntimeError):  # of a name that torch does not know
        device = torch.device(name)
        if kind in there and (device.index or 0) < (getattr(torch, kind).device_count() if kind != "cpu" else 1):
            return device
    raise CannotRunError.of("torch_model.no_device", name=name, known=there)


def _is_there(kind: str) -> bool:
    import torch

    module = getattr(torch, kind, None)
    return module is not None and bool(module.is_available())
