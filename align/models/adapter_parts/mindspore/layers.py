"""Copies of live MindSpore cells, as they are or built anew with other settings, and what they share with the original.

Changing an attribute of a cell does not change its operators. Two networks that share tensors are not two: where these
lie in memory shows it. Where, in which precision and which mode a network computes is decided here too.
"""

from __future__ import annotations

import copy
import os
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.parameters import TensorMemory
from align.errors import CannotRunError
from align.models.live_calls import leaves, with_leaves
from align.models.rebuild_from_settings import LayerBuilder, LayerTypes, build_named, rebuild_layer, with_attributes
from align.models.record_calls import answered, twin_class
from align.models.restore_state import checksum, refuse_captured, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.protocols import LayerSettings, Model, Setting


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


TARGETS = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "ascend": "Ascend", "npu": "Ascend"}
_JITTED = "staging_specialize"  # what `mindspore.jit` puts in the place of a function


def place_network(network: Model, device: str | None, dtype: str | None) -> None:
    """Choose the device of the process, and cast the floating parameters in place."""
    import mindspore

    if device is not None:
        _choose_device(device)
    if dtype is not None:
        for tensor in (*network.get_parameters(), *(buffer for _, buffer in network.named_buffers())):
            if tensor.is_floating_point():
                tensor.set_dtype(getattr(mindspore, dtype))


def placed_cell(cell: Model, device: str | None, dtype: str | None) -> Callable[..., Any]:
    """Let a copy of the cell answer in that precision; what it returns comes back as the cell's own would."""
    import mindspore

    if device is not None:
        raise CannotRunError.of("mindspore_model.lone_layer_elsewhere")
    copied = copied_cell(cell)
    place_network(copied, None, dtype)
    wanted = getattr(mindspore, str(dtype))

    def answer(*args: Any, **kwargs: Any) -> Any:
        found = [leaf for _, leaf in leaves((args, kwargs)) if _is_floating(leaf)]
        like = next(iter(found), next((one for one in cell.get_parameters() if one.is_floating_point()), None))
        there = with_leaves((args, kwargs), lambda _, leaf: leaf.astype(wanted) if _is_floating(leaf) else leaf)
        output = copied(*there[0], **there[1])
        if like is None:
            return output
        return with_leaves(output, lambda _, leaf: leaf.astype(like.dtype) if _is_floating(leaf) else leaf)

    return answer


def _is_floating(leaf: Any) -> bool:
    import mindspore

    return isinstance(leaf, mindspore.Tensor) and bool(leaf.is_floating_point())


def _choose_device(name: str) -> None:
    import mindspore

    kind, _, number = name.partition(":")
    target = TARGETS.get(kind.lower())
    if target is None or (number and not number.isdigit()):
        raise CannotRunError.of("mindspore_model.unknown_device", name=name, targets=[*TARGETS])
    if target == mindspore.get_context("device_target") and not number:
        return
    try:
        mindspore.set_device(target, int(number or 0))
    except (RuntimeError, ValueError) as error:
        said = str(error).strip().partition(". ")[0]
        raise CannotRunError.of("mindspore_model.no_device", name=name, said=said) from error


@contextmanager
def layer_by_layer(*, graph: bool) -> Iterator[None]:
    """Let what `mindspore.jit` compiles run uncompiled for a while, unless all of it is to be a graph.

    Hooks inside compiled code fail, or are passed by. MindSpore asks for this variable at every call.
    """
    before = os.environ.get("MS_JIT")
    if not graph:
        os.environ["MS_JIT"] = "0"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("MS_JIT", None)
        else:
            os.environ["MS_JIT"] = before


@contextmanager
def in_mode(*, graph: bool) -> Iterator[None]:
    """Compute in GRAPH or PYNATIVE mode for a while."""
    import mindspore

    mode = mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)
    try:
        yield
    finally:
        mindspore.set_context(mode=mode)


def jitted_code(model: Model) -> tuple[str, ...]:
    """Name the compiled functions of a network's cells, their methods and what these call of their own module.

    Functions of other modules, and what is compiled while the network runs, are not found.
    """
    found: dict[str, None] = {}
    for _, cell in model.cells_and_names():
        found |= dict.fromkeys(_jitted_in_cell(cell))
        for cls in type(cell).__mro__:
            if cls.__module__.partition(".")[0] != "mindspore":
                found |= dict.fromkeys(_jitted_in_class(cls))
    return tuple(found)


def _jitted_in_cell(cell: Any) -> Iterator[str]:
    """What was put into the cell itself: `net.construct = mindspore.jit(net.construct)`."""
    for name, value in vars(cell).items():
        if _is_jitted(value):
            yield f"{type(cell).__qualname__}.{name}"


def _jitted_in_class(cls: type) -> Iterator[str]:
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    for name, value in vars(cls).items():
        if _is_jitted(value):
            yield f"{cls.__qualname__}.{name}"
        elif isinstance(value, FunctionType):
            yield from (used for used in value.__code__.co_names if _is_jitted(module.get(used)))


def _is_jitted(value: Any) -> bool:
    function = value.__func__ if isinstance(value, MethodType) else value
    return isinstance(function, FunctionType) and function.__code__.co_name == _JITTED


# Cells of a MindSpore network that compute in another precision while the network trains (PYNATIVE).
#
# While a cell runs, its parameters give way to cast ones, so that gradients come back to the network's own.


class MindSporeSubstituter:
    """The part of the adapter that lets others answer for cells; see LayerSubstituter."""

    def recast_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Call the cell on cast tensors; see LayerSubstituter."""
        import mindspore

        if device is not None:
            raise CannotRunError.of("mindspore_model.lone_layer_elsewhere")
        return _Recast(self.bare_layer(model, path), getattr(mindspore, str(dtype)))

    def bare_layer(self, model: Model, path: str) -> Model:
        """A twin whose tables are the cell's, but for what answers in its place; see LayerSubstituter.

        A shallow copy of a cell would be the same object under another name: both have one table of attributes.
        """
        cell = _cell(model, path)
        twin: Any = twin_class(cell)
        bare = twin.__new__(twin)
        object.__setattr__(bare, "__dict__", {name: one for name, one in vars(cell).items() if name != "construct"})
        return bare

    @contextmanager
    def substituted(self, model: Model, stand_ins: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
        """Put them in the place of `construct`; see LayerSubstituter."""
        with ExitStack() as stack:
            for path, stand_in in stand_ins.items():
                stack.enter_context(answered(_cell(model, path), "construct", stand_in))
            yield


def _cell(model: Model, path: str) -> Model:
    return dict(model.cells_and_names())[path]


class _Recast:
    """Computes as a cell does, on its parameters cast at each call."""

    def __init__(self, cell: Any, dtype: Any) -> None:
        self._cell, self._dtype = cell, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = [leaf for _, leaf in leaves((args, kwargs)) if _is_floating(leaf)]
        like = next(iter(found), next((one for one in self._cell.get_parameters() if one.is_floating_point()), None))
        args, kwargs = with_leaves((args, kwargs), lambda _, leaf: self._cast(leaf, self._dtype))
        with self._cast_parameters():
            output = self._cell.construct(*args, **kwargs)
        if like is None:
            return output
        return with_leaves(output, lambda _, leaf: self._cast(leaf, like.dtype))

    @contextmanager
    def _cast_parameters(self) -> Iterator[None]:
        """Statistics stay as they are: the kernel that normalises writes into them."""
        cells = [cell for _, cell in self._cell.cells_and_names()]
        tables = [cell._params for cell in cells]  # noqa: SLF001 - MindSpore lets nothing else take a parameter's place
        kept = [(table, name, one) for table in tables for name, one in table.items() if _is_trained(one)]
        for table, name, one in kept:
            table[name] = one.astype(self._dtype)
        try:
            yield
        finally:
            for table, name, one in kept:
                table[name] = one

    @staticmethod
    def _cast(leaf: Any, dtype: Any) -> Any:
        return leaf.astype(dtype) if _is_floating(leaf) else leaf


def _is_trained(one: Any) -> bool:
    return _is_floating(one) and bool(one.requires_grad)
