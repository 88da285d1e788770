"""Tensors of torch as NumPy arrays, and back; dtypes that NumPy lacks go through `ml_dtypes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from align.core import dtypes
from align.core.dtypes import numpy_dtype

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
