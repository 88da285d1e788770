"""Copies of live torch layers, as they are or built anew with other settings, and what they share with the original.

Two models that share tensors are not two: where these lie in memory shows it.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.parameters import TensorMemory
from align.models.live.copy_changed_setting import LayerTypes
from align.models.live.tensor_memory import checksum, refuse_captured, sample
from align.models.rebuild_from_settings import LayerBuilder, build_named, rebuild_layer, with_attributes

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
    if changed is None and type(layer) is not cls and changes.keys() <= vars(layer).keys():
        changed = with_attributes(copy.deepcopy(layer), changes)
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
