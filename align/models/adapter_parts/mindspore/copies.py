"""Copies of live MindSpore cells, as they are or built anew with other settings, and what they share with the original.

Changing an attribute of a cell does not change its operators. Two networks that share tensors are not two: where these
lie in memory shows it.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

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
    "dim_feedforward": "dense1.out_channels",
    "dropout": "dropout.p",
    "activation": "activation1",
    "layer_norm_eps": "norm1.epsilon",
    "batch_first": "self_attn.batch_first",
}
RECURRENT = {"input_size": "w_ih_list.0.shape.1"}
KEPT_AT = {
    "TransformerEncoderLayer": TRANSFORMER,
    "TransformerDecoderLayer": TRANSFORMER,
    "LSTM": RECURRENT,
    "GRU": RECURRENT,
    "RNN": RECURRENT,
}
WEIGHTS = ("weight", "pos_weight")  # of classes, which a loss takes as a tensor
FORMAT = {"data_format": "format"}  # an operator's may be another, of one axis more
BUILT_WHEN = frozenset({"_cell_init_args", "Seed0", "Seed1"})  # an operator's seeds tell when it was built
PUBLIC = ("mindspore.nn.", "mindspore.mint.")


def rebuilt_cell(cell: Model, settings: LayerSettings, changes: Mapping[str, Setting]) -> Model | None:
    """Rebuild a cell whose class is MindSpore's own or made from one; in evaluation mode.

    Of a user's own class the attributes are changed on a copy, if it keeps such.
    """
    import mindspore

    cls = next((base for base in type(cell).__mro__ if base.__module__.startswith(PUBLIC)), None)
    if cls in (None, mindspore.nn.Cell):
        own = changes.keys() <= vars(cell).keys()
        return with_attributes(copied_cell(cell).set_train(False), changes) if own else None
    dtype = next((one.dtype for one in cell.get_parameters() if one.is_floating_point()), mindspore.float32)
    types = LayerTypes(mindspore.nn.Cell, mindspore.Parameter, mindspore.Tensor, _equal, BUILT_WHEN)
    builder = LayerBuilder(
        cls, partial(_build, cls, dtype), copied_cell, _fill, types, FORMAT | KEPT_AT.get(cls.__name__, {})
    )
    changed = rebuild_layer(cell, settings, changes, builder)
    if changed is None and type(cell) is not cls and changes.keys() <= vars(cell).keys():
        changed = with_attributes(copied_cell(cell), changes)
    return None if changed is None else changed.set_train(False)


def built_cell(class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
    """Build a cell of a public class; in evaluation mode."""
    cell = build_named(class_name, arguments)
    return None if cell is None else cell.set_train(False)


def _build(cls: Any, dtype: Any, **arguments: Setting) -> Model:
    import mindspore

    found: dict[str, Any] = dict(arguments)
    weights = {name: value for name, value in found.items() if name in WEIGHTS and isinstance(value, tuple)}
    cell = cls(**{**found, **{name: mindspore.Tensor(value, mindspore.float32) for name, value in weights.items()}})
    for parameter in cell.get_parameters():
        if parameter.is_floating_point() and parameter.dtype != dtype:
            parameter.set_dtype(dtype)
    return cell


def copied_cell(cell: Model) -> Model:
    """Copy a cell but not its operators: not all can be copied, and copies keep less than the originals."""
    import mindspore

    kept = (value for _, one in cell.cells_and_names() for value in vars(one).values())
    known = {id(value): value for value in kept if isinstance(value, mindspore.ops.Primitive)}
    known |= {id(buffer): buffer.copy() for _, buffer in cell.named_buffers()}  # MindSpore's own shares their memory
    return copy.deepcopy(cell, known)


def _equal(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one.asnumpy(), other.asnumpy()))


def _fill(built: Model, cell: Model) -> None:
    live = dict(cell.parameters_and_names())
    for name, parameter in built.parameters_and_names():
        if name in live and live[name].shape == parameter.shape:
            parameter.set_data(live[name])


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
    content = checksum(flat[sample(flat.size)])
    if start == 0:  # releases that tell no address: one Parameter object is still known
        return TensorMemory(str(tensor.dtype).lower(), "object", id(tensor), id(tensor) + 1, content)
    return TensorMemory(str(tensor.dtype).lower(), device, start, stop, content)


def _span(tensor: Any) -> tuple[int, int]:
    """Addresses of the storage, which views share; of the tensor alone where the release knows no storages."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return int(storage.data_ptr()), int(storage.data_ptr() + storage.nbytes())
    start = int(tensor.data_ptr()) if hasattr(tensor, "data_ptr") else 0
    return start, start + tensor.nbytes
