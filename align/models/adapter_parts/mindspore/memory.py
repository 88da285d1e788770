"""Where the tensors of a MindSpore network lie in memory, so that two networks that share some are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.parameters import TensorMemory
from align.models.adapter_parts.mindspore.rebuild import copied_cell
from align.models.live.captured_originals import refuse_captured
from align.models.live.sample_memory import checksum, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.dtypes import Array
    from align.core.protocols import Model


def mindspore_memory(network: Model, to_array: Callable[[Any], Array]) -> dict[str, TensorMemory]:
    """Find all parameters and buffers by their places in the network: names may be given twice."""
    import mindspore

    target = mindspore.get_context("device_target").lower()
    places = [(f"{path}.{name}", one) for path, cell in network.cells_and_names() for name, one in _own(cell)]
    return {place.removeprefix("."): _memory(tensor, target, to_array) for place, tensor in places}


def copied_network(network: Model) -> Model:
    """Copy a network but not its operators; raises TypeError where a function keeps the original."""
    import mindspore

    copied = copied_cell(network)
    cells = [cell for _, cell in copied.cells_and_names()]
    tensors = (tensor for cell in cells for _, tensor in _own(cell))
    refuse_captured(cells, tensors, (mindspore.nn.Cell, mindspore.Tensor))
    return copied


def _own(cell: Model) -> list[tuple[str, Any]]:
    own = [(name.rpartition(".")[2], one) for name, one in cell.parameters_and_names(expand=False)]
    return own + list(cell.named_buffers(recurse=False))


def _memory(tensor: Any, device: str, to_array: Callable[[Any], Array]) -> TensorMemory:
    flat = to_array(tensor).reshape(-1)
    start, stop = _span(tensor)
    told = checksum(flat[sample(flat.size)])
    if start == 0:  # releases that tell no address: one Parameter object is still known
        return TensorMemory(str(tensor.dtype).lower(), "object", id(tensor), id(tensor) + 1, told)
    return TensorMemory(str(tensor.dtype).lower(), device, start, stop, told)


def _span(tensor: Any) -> tuple[int, int]:
    """Addresses of the storage, which views share; of the tensor alone where the release knows no storages."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return int(storage.data_ptr()), int(storage.data_ptr() + storage.nbytes())
    start = int(tensor.data_ptr()) if hasattr(tensor, "data_ptr") else 0
    return start, start + tensor.nbytes
