"""A MindSpore network as a run finds it and must leave it: values, attributes, modes, names, random numbers."""

from __future__ import annotations

import copy
import sys
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.core.dtypes import dtype_name, in_numpy
from align.models.restore_state import fixed_seed, restored_attributes, seed_of_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.dtypes import Array
    from align.core.protocols import Model


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
    """Those of Python, NumPy, MindSpore's generator, its seeds of operators and that of its data pipeline.

    `set_seed` cannot take a seed away again, so the module that keeps them gets back what it held.
    """
    mindspore = launched()
    seeds, pipeline = vars(sys.modules["mindspore.common.seed"]), mindspore.dataset.config
    held: dict[str, Any] = {name: copy.copy(seeds[name]) for name in ("_GLOBAL_SEED", "_KERNEL_SEED") if name in seeds}
    state, of_pipeline = mindspore.get_rng_state(), pipeline.get_seed()
    with fixed_seed():
        try:
            yield
        finally:
            mindspore.set_rng_state(state)
            pipeline.set_seed(of_pipeline)
            seeds.update(held)


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
