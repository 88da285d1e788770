"""Copies of live MindSpore cells, as they are or built anew with other settings, and what they share with the original.

Changing an attribute of a cell does not change its operators. Two networks that share tensors are not two: where these
lie in memory shows it. Where, in which precision and which mode a network computes is decided here too.
"""

from __future__ import annotations

import copy
import os
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.core.parameters import TensorMemory, dtype_name, in_numpy
from align.errors import CannotRunError
from align.models.live_calls import leaves, with_leaves
from align.models.rebuild_from_settings import LayerBuilder, LayerTypes, build_named, rebuild_layer, with_attributes
from align.models.record_calls import answered, twin_class
from align.models.user_code import checksum, fixed_seed, refuse_captured, restored_attributes, sample, seed_of_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.parameters import Array
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
    with random_numbers_kept():
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


def mindspore_memory(network: Model) -> dict[str, TensorMemory]:
    """Find all parameters and buffers by their places in the network: names may be given twice."""
    import mindspore

    target = mindspore.get_context("device_target").lower()
    places = [(f"{path}.{name}", one) for path, cell in network.cells_and_names() for name, one in _own(cell)]
    return {place.removeprefix("."): _memory(tensor, target) for place, tensor in places}


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


def _memory(tensor: Any, device: str) -> TensorMemory:
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


def placed_cell(model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
    """Let a copy of the cell answer in that precision; what it returns comes back as the cell's own would."""
    cell, wanted = _cell(model, path), _dtype_here(device, dtype)
    copied = copied_cell(cell)
    place_network(copied, None, dtype)
    return partial(_called_in, copied, cell, wanted)


def _dtype_here(device: str | None, dtype: str | None) -> Any:
    import mindspore

    if device is not None:
        raise CannotRunError.of("mindspore_model.lone_layer_elsewhere")
    return getattr(mindspore, str(dtype))


def _called_in(call: Callable[..., Any], cell: Model, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    """Call on tensors that are cast; what is returned is cast back to the dtype in which the cell would return it."""
    floating = [leaf for _, leaf in leaves((args, kwargs)) if _is_floating(leaf)]
    like = next(iter(floating), next((one for one in cell.get_parameters() if one.is_floating_point()), None))
    args, kwargs = with_leaves((args, kwargs), partial(_cast, dtype))
    output = call(*args, **kwargs)
    return output if like is None else with_leaves(output, partial(_cast, like.dtype))


def _cast(dtype: Any, _name: str, leaf: Any) -> Any:
    return leaf.astype(dtype) if _is_floating(leaf) else leaf


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
    names: dict[str, None] = {}
    for _, cell in model.cells_and_names():
        names |= dict.fromkeys(_jitted_in_cell(cell))
        for cls in type(cell).__mro__:
            if cls.__module__.partition(".")[0] != "mindspore":
                names |= dict.fromkeys(_jitted_in_class(cls))
    return tuple(names)


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
        return _Recast(self.bare_layer(model, path), _dtype_here(device, dtype))

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
        def construct(*args: Any, **kwargs: Any) -> Any:
            with self._cast_parameters():
                return self._cell.construct(*args, **kwargs)

        return _called_in(construct, self._cell, self._dtype, *args, **kwargs)

    @contextmanager
    def _cast_parameters(self) -> Iterator[None]:
        """Statistics stay as they are: the kernel that normalises writes into them."""
        cells = [cell for _, cell in self._cell.cells_and_names()]
        tables = [cell._params for cell in cells]  # noqa: SLF001 - MindSpore lets nothing else take a parameter's place
        kept = [
            (table, name, parameter) for table in tables for name, parameter in table.items() if _is_trained(parameter)
        ]
        for table, name, parameter in kept:
            table[name] = parameter.astype(self._dtype)
        try:
            yield
        finally:
            for table, name, parameter in kept:
                table[name] = parameter


def _is_trained(one: Any) -> bool:
    return _is_floating(one) and bool(one.requires_grad)


# A MindSpore network as a run finds it and must leave it: values, attributes, modes, names, random numbers.


# What operators call the seed of the network, and their own.
SEED_NAMES = (("Seed0", "Seed1"), ("seed", "seed2"))


@contextmanager
def restored(model: Model) -> Iterator[None]:
    """Put values and attributes back at the end.

    Of parameters only those that are not trained: a counter or a statistic is a Parameter here. What begins with an
    underscore is MindSpore's own.
    """
    cells = [cell for _, cell in model.cells_and_names()]
    with _untrained_kept(model), restored_attributes(cells, lambda name: not name.startswith("_")):
        yield


@contextmanager
def evaluated(model: Model, *, restores: bool = True) -> Iterator[None]:
    """Run in evaluation mode on the same random numbers; leave modes, random states, names and the rest alone."""
    modes = [(cell, cell.training) for _, cell in model.cells_and_names()]
    with same_random_numbers(), _names_kept(model), restored(model) if restores else nullcontext():
        model.set_train(False)
        try:
            yield
        finally:
            for cell, training in modes:  # parents come before their children, and set_train reaches down
                cell.set_train(training)


@contextmanager
def _untrained_kept(model: Model) -> Iterator[None]:
    tensor_type = launched().Tensor
    tensors = [tensor for tensor in named_tensors(model).values() if not getattr(tensor, "requires_grad", False)]
    attributes = (value for _, cell in model.cells_and_names() for value in vars(cell).values())
    tensors += [value for value in attributes if isinstance(value, tensor_type)]
    kept = [(tensor, to_array(tensor).copy()) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, value in kept:
            if to_array(tensor).tobytes() != value.tobytes():
                fill(tensor, value)


@contextmanager
def operators_restarted(model: Model) -> Iterator[None]:
    """Let operators that draw with seeds of their own, as that of `nn.Dropout`, begin anew, from the seed of runs.

    Their kernels go on drawing from call to call, and no seed that is set later reaches them: copies take their place.
    """
    kept = []
    for number, (cell, name, operator) in enumerate(_drawing_operators(model), 1):
        fresh = copy.deepcopy(operator)
        for attribute, seed in zip(_seed_names(operator), (seed_of_runs() + 1, number), strict=True):
            fresh.add_prim_attr(attribute, seed)
        kept.append((cell, name, operator))
        setattr(cell, name, fresh)
    try:
        yield
    finally:
        for cell, name, operator in kept:
            setattr(cell, name, operator)


def _drawing_operators(model: Model) -> Iterator[tuple[Any, str, Any]]:
    for _, cell in model.cells_and_names():
        operators = [(name, one) for name, one in vars(cell).items() if isinstance(one, launched().ops.Primitive)]
        yield from ((cell, name, one) for name, one in operators if _seed_names(one))


def _seed_names(operator: Any) -> tuple[str, ...]:
    """What an operator calls its two seeds; () for one that has none."""
    return next((names for names in SEED_NAMES if all(name in vars(operator) for name in names)), ())


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Start all random numbers at the seed of runs, and put their states back at the end."""
    with random_numbers_kept():
        mindspore = launched()
        mindspore.set_seed(seed_of_runs())
        mindspore.manual_seed(seed_of_runs())
        yield


@contextmanager
def way_back_forgotten() -> Iterator[None]:
    """Let MindSpore forget a way back that an exception of Python leaves begun: what runs later would be part of it.

    It forgets one by itself only where an operator of its own raises.
    """
    try:
        yield
    except BaseException:
        from mindspore.common.api import _pynative_executor  # MindSpore has no other way

        _pynative_executor.clear_res()
        raise


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Keep those of Python, NumPy, MindSpore's generator, its seeds of operators and its data pipeline.

    `set_seed` cannot take a seed away again, so the module that keeps them gets back what it held.
    """
    mindspore = launched()
    seeds, pipeline = vars(sys.modules["mindspore.common.seed"]), mindspore.dataset.config
    kept_seeds: dict[str, Any] = {
        name: copy.copy(seeds[name]) for name in ("_GLOBAL_SEED", "_KERNEL_SEED") if name in seeds
    }
    state, of_pipeline = mindspore.get_rng_state(), pipeline.get_seed()
    with fixed_seed():
        try:
            yield
        finally:
            mindspore.set_rng_state(state)
            pipeline.set_seed(of_pipeline)
            seeds.update(kept_seeds)


@contextmanager
def _names_kept(network: Model) -> Iterator[None]:
    """Give all parameters back the names that they had: two of them may have one name by then."""
    names = [(parameter, parameter.name) for parameter in network.get_parameters()]
    try:
        yield
    finally:
        for parameter, name in names:
            if parameter.name != name:
                parameter.name = name


# MindSpore tensors as arrays and back, and the tensors of a network by name. MindSpore is imported in functions.


def to_array(tensor: Any) -> Array:
    """Copy a MindSpore tensor out, bfloat16 as `ml_dtypes.bfloat16`."""
    mindspore = sys.modules["mindspore"]
    if tensor.dtype == mindspore.bfloat16:
        return np.asarray(tensor.astype(mindspore.float32).asnumpy().astype(ml_dtypes.bfloat16))
    return np.asarray(tensor.asnumpy())


def array_of(value: Any) -> Array | None:
    """Copy out a tensor; None for anything else."""
    mindspore = sys.modules.get("mindspore")
    return to_array(value) if mindspore is not None and isinstance(value, mindspore.Tensor) else None


def tensor_like(value: Array, like: Any) -> Any:
    """Copy an array into a tensor of the dtype of another one."""
    return to_tensor(value).astype(like.dtype)


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
