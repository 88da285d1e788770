"""A torch model as a run finds it and must leave it, and the models that cannot be run or read as they stand."""

from __future__ import annotations

import sys
from collections import OrderedDict
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core import dtypes
from align.core.checkpoints import OddTensor, StoredTensor
from align.core.dtypes import is_numeric, numpy_dtype
from align.errors import CannotRunError, UnreadableModelError, UserCodeError
from align.models.restore_state import fixed_seed, restored_attributes, seed_of_runs
from align.models.user_code import run_user_code
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from align.core.dtypes import Array
    from align.core.protocols import Model


_EXPORTED = "torch.export._unlift"  # where the class stands of which `ExportedProgram.module()` is one
_PROGRAM = ("torch.export.exported_program", "ExportedProgram")
_ACCELERATORS = ("cuda", "npu", "xpu")
# What nearly all attributes of modules are: asking torch takes three times as long.
_NO_TENSORS = frozenset({type(None), bool, int, float, str, tuple, list, set, dict, OrderedDict})


@contextmanager
def evaluated(model: Model, *, restores: bool = True, compiled: bool = False) -> Iterator[None]:
    """Run in evaluation mode on the same random numbers; leave modes and random states alone.

    Buffers and attributes too, unless it does not `restore` them: then they stay as calls left them. What
    `torch.compile` made runs layer by layer, so that hooks see its layers, unless it is to run `compiled`.
    """
    training = [module for module in model.modules() if module.training]
    kept = restored(model) if restores else nullcontext()
    eager = nullcontext() if compiled else uncompiled()
    with same_random_numbers(), kept, _plain_transformer_layers(), eager:
        model.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True


@contextmanager
def restored(model: Model) -> Iterator[None]:
    """Put buffers and attributes back at the end.

    Of parameters only those are put back that got other memory: they are not copied, for they may fill the device.
    """
    eager = (module for module in model.modules() if not is_scripted(module))
    with _tensors_kept(model), restored_attributes(eager):
        yield


def uncompiled() -> AbstractContextManager[Any]:
    """Pass `torch.compile` by, where it is in use: its tracer would run through the hooks too."""
    set_stance: Any = getattr(sys.modules["torch"].compiler, "set_stance", None)  # torch has it from 2.6 on
    in_use = "torch._dynamo" in sys.modules and set_stance is not None
    return set_stance("force_eager") if in_use else nullcontext()


@contextmanager
def _plain_transformer_layers() -> Iterator[None]:
    """Keep torch's transformer layers from their fast path, whose nested tensors have no shape to be read."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _tensors_kept(model: Model) -> Iterator[None]:
    import torch

    parameters = [(parameter, parameter.data) for parameter in model.parameters()]
    attributes = (value for module in model.modules() for value in vars(module).values())
    tensors = [value for value in attributes if type(value) not in _NO_TENSORS and torch.is_tensor(value)]
    others = [(one, one.detach().clone()) for one in (*model.buffers(), *tensors) if not one.is_inference()]
    try:
        yield
    finally:
        for tensor, value in parameters:
            if tensor.data_ptr() != value.data_ptr():
                tensor.data = value
        for tensor, value in others:
            _put_back(tensor, value)


def loads_other_names(model: Model, values: Mapping[str, Array]) -> bool:
    """Load values as `load_state_dict` does, and tell whether all of them and of the model were; else it is unchanged.

    torch's layers know the names that they had in older versions (`weight_g` of weight_norm, a BatchNorm without its
    count of batches), and so may a model's own.
    """
    before = {name: tensor.detach().clone() for name, tensor in model.state_dict().items() if hasattr(tensor, "clone")}
    given = {name: to_tensor(value) for name, value in values.items()}

    def load() -> bool:
        missing, unexpected = model.load_state_dict(given, strict=False)
        return not (missing or unexpected)

    try:
        loaded = run_user_code(load, partial(UserCodeError, "load_state_dict of the torch model"))
    except UserCodeError:  # of sizes that do not fit, in most cases
        loaded = False
    if not loaded:
        for name, tensor in model.state_dict().items():
            if name in before:
                _put_back(tensor, before[name])
    return loaded


def _put_back(tensor: Any, value: Any) -> None:
    """Give a tensor its value back, if it has another: autograd must not take what did not change for changed."""
    import torch

    if tensor.shape != value.shape:
        tensor.data = value
    elif tensor.layout != torch.strided or not torch.equal(tensor, value):
        with torch.no_grad():
            tensor.copy_(value)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """As of Python and NumPy, of the CPU and of all accelerators that are in use."""
    import torch

    with ExitStack() as stack:
        stack.enter_context(fixed_seed())
        stack.enter_context(torch.random.fork_rng(devices=()))
        torch.default_generator.manual_seed(seed_of_runs())
        for kind in _ACCELERATORS:
            device = getattr(torch, kind, None)
            if device is not None and device.is_initialized():
                stack.enter_context(torch.random.fork_rng(range(device.device_count()), device_type=kind))
                device.manual_seed_all(seed_of_runs())
        yield


def writes(tensor: Any) -> int | None:
    """How often a tensor was written to; None for those of inference mode, where torch does not count."""
    return None if tensor.is_inference() else int(tensor._version)  # noqa: SLF001 - what autograd goes by


def is_scripted(model: Model) -> bool:
    """Tell whether a module is compiled by TorchScript, so that it runs what is inside past all hooks."""
    return isinstance(model, sys.modules["torch"].jit.ScriptModule)


def refuse_unrunnable(model: Model) -> None:
    """Raise CannotRunError for a traced or scripted model, and for one that `torch.export` made, or that holds one."""
    exported = [path for path, module in model.named_modules() if _is_exported(module)]
    if exported:
        raise CannotRunError.of("torch_model.exported", module=exported[0] and repr(exported[0]))
    if is_scripted(model):
        raise CannotRunError.of("torch_model.script", name=model.original_name)


def refuse_program(model: object) -> None:
    """Raise CannotRunError for what `torch.export.export` returns, which is no module but holds one."""
    if (type(model).__module__, type(model).__name__) == _PROGRAM:
        raise CannotRunError.of("torch_model.program")


def _is_exported(module: Model) -> bool:
    return any(cls.__module__ == _EXPORTED for cls in type(module).__mro__)


def refuse_shapeless(tensors: Mapping[str, Any], label: str) -> None:
    """Raise UnreadableModelError for tensors that the first forward would make."""
    from torch.nn.parameter import is_lazy

    if lazy := [name for name, tensor in tensors.items() if is_lazy(tensor)]:
        raise UnreadableModelError(*texts("torch_model.lazy", label=label), lines=lazy)


def refuse_empty(tensors: Mapping[str, Any]) -> None:
    """Raise UnreadableModelError for tensors without a shape or without values."""
    label = "the torch model"
    refuse_shapeless(tensors, label)
    if meta := [name for name, tensor in tensors.items() if tensor.is_meta]:
        raise UnreadableModelError(*texts("torch_model.meta", label=label), lines=meta)


# Tensors of torch as NumPy arrays, and back; dtypes that NumPy lacks go through `ml_dtypes`.

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
