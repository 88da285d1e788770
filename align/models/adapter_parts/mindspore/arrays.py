"""MindSpore tensors as arrays and back, and the tensors of a network by name. MindSpore is imported in functions."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.core.dtypes import dtype_name, in_numpy

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.protocols import Model


def to_array(tensor: Any) -> Array:
    """Copy a MindSpore tensor out, bfloat16 as `ml_dtypes.bfloat16`."""
    mindspore = sys.modules["mindspore"]
    if tensor.dtype == mindspore.bfloat16:
        return np.asarray(tensor.astype(mindspore.float32).asnumpy().astype(ml_dtypes.bfloat16))
    return np.asarray(tensor.asnumpy())


@cache
def launched() -> Any:
    """Import MindSpore and make it report errors where they happen: by default a failing operator surfaces late."""
    import mindspore

    mindspore.runtime.launch_blocking()
    return mindspore


def to_tensor(array: Array) -> Any:
    """Copy an array in; float8, of which MindSpore makes no tensors, as float32, which holds the same numbers."""
    mindspore = launched()
    if not in_numpy(dtype_name(array.dtype)):
        wide = mindspore.Tensor(array.astype(np.float32))
        return wide.astype(mindspore.bfloat16) if array.dtype == ml_dtypes.bfloat16 else wide
    return mindspore.Tensor(np.ascontiguousarray(array).reshape(array.shape))


def fill(tensor: Any, value: Array) -> None:
    """Give a parameter or tensor other values, in its own dtype."""
    new = to_tensor(value).astype(tensor.dtype)
    (tensor.set_data if hasattr(tensor, "set_data") else tensor.assign_value)(new)


def floating_dtype(model: Model) -> Any:
    """Return the dtype of the model's first floating parameter, None if it has none."""
    return next((tensor.dtype for tensor in named_tensors(model).values() if tensor.is_floating_point()), None)


def fitted(tensor: Any, model: Model, *, keeps: bool = False) -> Any:
    """Cast a floating input to the model's first floating dtype; with `keeps`, unless it is in another one of them."""
    dtypes = [one.dtype for one in named_tensors(model).values() if one.is_floating_point()]
    stays = not dtypes or not tensor.is_floating_point() or (keeps and tensor.dtype in dtypes)
    return tensor if stays else tensor.astype(dtypes[0])


def named_tensors(model: Model) -> dict[str, Any]:
    """Parameters and buffers by the names that a checkpoint has."""
    tensors = {parameter.name: parameter for parameter in model.get_parameters()}
    return tensors | {name: buffer for name, buffer in model.named_buffers() if name not in tensors}
