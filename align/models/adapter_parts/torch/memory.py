"""Where the tensors of a torch model lie in memory, so that two models that share some are told apart."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from align.core.parameters import TensorMemory
from align.models.live.captured_originals import refuse_captured
from align.models.live.sample_memory import checksum, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.dtypes import Array
    from align.core.protocols import Model


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
