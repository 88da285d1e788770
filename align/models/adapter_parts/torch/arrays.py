"""Tensors of torch as NumPy arrays, and back; dtypes that NumPy lacks go through `ml_dtypes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from align.core import dtypes
from align.core.checkpoints import OddTensor, StoredTensor
from align.core.dtypes import is_numeric, numpy_dtype
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.dtypes import Array

RAW_DTYPES = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def to_array(tensor: Any) -> Array:
    """View a torch tensor as an array, bfloat16 as `ml_dtypes.bfloat16`; copies only across devices."""
    import torch

    dense = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
    host = (dense if dense.layout == torch.strided else dense.to_dense()).cpu().resolve_conj().resolve_neg()
    name = dtype_name(host)
    if name in RAW_DTYPES:  # NumPy knows them through ml_dtypes only
        raw = host.contiguous().view(getattr(torch, RAW_DTYPES[name])).numpy()
        return np.asarray(raw.view(numpy_dtype(name)))
    return np.asarray(host.numpy())


def to_tensor(array: Array) -> Any:
    """Copy an array into a torch tensor of the same dtype, on the CPU."""
    import torch

    name = dtypes.dtype_name(array.dtype)
    if name in RAW_DTYPES:
        raw = np.array(array).view(RAW_DTYPES[name])
        return torch.from_numpy(raw).view(getattr(torch, name))
    return torch.from_numpy(np.array(array))


def dtype_name(tensor: Any) -> str:
    """The dtype of a tensor as NumPy and `ml_dtypes` call it."""
    return str(tensor.dtype).removeprefix("torch.")


def fitted(tensor: Any, held: Iterable[Any], *, keeps: bool = False) -> Any:
    """Move an input to the device of what a model holds, and a floating one to the dtype that comes first there.

    With `keeps` it stays in a dtype that the model holds: what computes in that precision may be what takes the input.
    """
    held = list(held)
    floating = [one for one in held if one.is_floating_point()]
    like = next(iter(floating or held), None)
    if like is None:
        return tensor
    stays = (
        not tensor.is_floating_point() or not floating or (keeps and tensor.dtype in {one.dtype for one in floating})
    )
    return tensor.to(device=like.device, dtype=tensor.dtype if stays else like.dtype)


def plain_tree(value: Any, name: str, known: dict[int, tuple[Any, Any]]) -> Any:
    """Return a live tree as plain data, with each tensor as StoredTensor or OddTensor.

    `name` is where the tree stands; `known` keeps alive what was seen, by id.
    """
    import torch

    if id(value) in known:
        return known[id(value)][1]
    if torch.is_tensor(value):
        return _stored(name, value)
    if isinstance(value, torch.nn.Module):
        known[id(value)] = value, plain_tree(value.state_dict(), name, known)
        return known[id(value)][1]
    if isinstance(value, dict):
        items: dict[Any, Any] = {}
        known[id(value)] = value, items
        items.update((key, plain_tree(item, str(key), known)) for key, item in value.items())
        return items
    if isinstance(value, (list, tuple)):
        elements: list[Any] = []
        known[id(value)] = value, elements
        elements.extend(plain_tree(item, name, known) for item in value)
        return elements
    return value


def _stored(name: str, tensor: Any) -> StoredTensor | OddTensor:
    if odd := _odd_fault(tensor):
        return OddTensor(*texts("pickle_file.not_plain", name=name, kind=odd, subclass=""))
    value = to_array(tensor).view()
    value.flags.writeable = False
    place = f"{tensor.untyped_storage().data_ptr()}+{tensor.storage_offset()}:{tuple(tensor.shape)}:{tensor.stride()}"
    storage = f"{place}:{tensor.dtype}" if tensor.numel() else None
    return StoredTensor(name, value.shape, value.dtype.name, lambda: value, storage=storage)


def _odd_fault(tensor: Any) -> str:
    """What keeps a tensor from being plain values, "" if nothing does."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    if tensor.is_quantized or tensor.is_nested or tensor.layout != torch.strided:
        return "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout)
    if tensor.is_meta:
        return say("torch_model.on_meta")
    return "" if is_numeric(dtype_name(tensor)) else str(tensor.dtype)
