"""A torch model and its optimizers as a run finds them and must leave them, and models that cannot be run."""

from __future__ import annotations

import copy
import sys
import warnings
from collections import OrderedDict
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core import parameters
from align.core.parameters import OddTensor, StoredTensor, is_numeric, numpy_dtype
from align.core.protocols import (
    LayerSettings,
    LearningRates,
    ParameterGroup,
    group_paths,
    plain_settings,
    weights_as_setting,
)
from align.errors import CannotRunError, UnreadableModelError, UserCodeError
from align.models.adapter_parts.step_calls import scheduled_rates, scheduler_end, scheduler_parts
from align.models.live_calls import living_objects
from align.models.user_code import fixed_seed, restored_attributes, run_user_code, seed_of_runs
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Model, Setting

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
    with same_random_numbers(), kept, plain_transformer_layers(), eager:
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
def plain_transformer_layers() -> Iterator[None]:
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

    own = (parameter for parameter in model.parameters() if not getattr(type(parameter), "is_lent", False))
    parameters = [(parameter, parameter.data) for parameter in own]
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
    """Let Python, NumPy, the CPU and all accelerators in use draw the same numbers again."""
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


@cache
def dispatch_mode() -> Any:
    """The class of modes that see operators, without torch's compiler: to import that takes seconds.

    What is run under them is not compiled (`uncompiled`).
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    return Mode


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

RAW_DTYPES = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e8m0fnu": "uint8"}


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


def array_of(value: Any) -> Array | None:
    """View a tensor as an array; None for anything else."""
    torch = sys.modules.get("torch")
    return to_array(value) if torch is not None and torch.is_tensor(value) else None


def tensor_like(value: Array, like: Any) -> Any:
    """Copy an array into a tensor of the dtype of another one, and where that one is."""
    return to_tensor(value).to(like)


def to_tensor(array: Array) -> Any:
    """Copy an array into a torch tensor of the same dtype, on the CPU."""
    import torch

    name = parameters.dtype_name(array.dtype)
    if name in RAW_DTYPES:
        raw = np.array(array).view(RAW_DTYPES[name])
        return torch.from_numpy(raw).view(getattr(torch, name))
    return torch.from_numpy(np.array(array))


def real_numbers(tensor: Any) -> Any:
    """The numbers of an output as real ones, of at least float32: sums of less overflow."""
    import torch

    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def dtype_name(tensor: Any) -> str:
    """The dtype of a tensor as NumPy and `ml_dtypes` call it."""
    return str(tensor.dtype).removeprefix("torch.")


def fitted(tensor: Any, tensors: Iterable[Any], *, keeps: bool = False) -> Any:
    """Move an input to the device of what a model holds, and a floating one to the dtype that comes first there.

    With `keeps` it stays in a dtype that the model holds: what computes in that precision may be what takes the input.
    """
    tensors = list(tensors)
    floating = [held_tensor for held_tensor in tensors if held_tensor.is_floating_point()]
    like = next(iter(floating or tensors), None)
    if like is None:
        return tensor
    stays = (
        not tensor.is_floating_point()
        or not floating
        or (keeps and tensor.dtype in {held_tensor.dtype for held_tensor in floating})
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


# Optimizers of torch: their groups by name, and the learning rates that a scheduler gives them step by step.
#
# A factory may hand out the optimizer alone, whose parameters have no names: the model that holds them is kept alive
# while the factory runs, and found among all living objects.


CYCLED = ("momentum", "betas", "weight_decay")


class TorchOptimizers:
    """The part of the adapter that reads optimizers; see OptimizerReader."""

    def is_optimizer(self, model: Model) -> bool:
        """Tell whether it is a torch.optim.Optimizer."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(model, torch.optim.Optimizer)

    def optimizer_of(self, scheduler: object) -> Model | None:
        """Return the optimizer whose rates a scheduler changes, None for what is no scheduler."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
            return None
        return getattr(scheduler, "optimizer", None)

    @contextmanager
    def keep_alive(self) -> Iterator[list[object]]:
        """Keep all modules and schedulers that are made meanwhile, which the maker may not keep."""
        kept: list[object] = []
        if "torch" not in sys.modules:
            yield kept
            return
        from torch.nn.modules import module
        from torch.optim.lr_scheduler import LRScheduler

        initial_step = LRScheduler._initial_step  # noqa: SLF001 - called once by each scheduler, when it is made

        def noted(scheduler: Any) -> None:
            kept.append(scheduler)
            initial_step(scheduler)

        LRScheduler._initial_step = noted  # noqa: SLF001
        handle = module.register_module_parameter_registration_hook(lambda owner, *_: kept.append(owner))
        inner = module.register_module_module_registration_hook(lambda owner, *_: kept.append(owner))
        try:
            yield kept
        finally:
            handle.remove()
            inner.remove()
            LRScheduler._initial_step = initial_step  # noqa: SLF001

    def model_of(self, optimizer: Model, kept: Sequence[object]) -> Model | None:
        """Return the largest module that holds all parameters of an optimizer, None if there is none."""
        import torch

        wanted = {id(one) for group in optimizer.param_groups for one in group["params"]}
        return _largest(_distinct(kept), wanted) or _largest(living_objects(torch.nn.Module), wanted)

    def schedulers_of(self, optimizer: Model, kept: Sequence[object]) -> list[Any]:
        """Return the living schedulers of an optimizer, without those that others hold."""
        return _outermost(schedulers_of(optimizer, kept))

    def read_moments(self, optimizer: Model, model: Model) -> Iterator[tuple[str, str, Array]]:
        """Read the state of an optimizer; see MomentReader."""
        import torch

        names = _names(optimizer, model)
        for one in (one for group in optimizer.param_groups for one in group["params"] if id(one) in names):
            for moment, value in optimizer.state.get(one, {}).items():
                if moment != "step" and torch.is_tensor(value) and value.shape == one.shape:
                    yield names[id(one)], moment, to_array(value)

    def read_groups(
        self, optimizer: Model, model: Model | None, schedulers: Sequence[object], steps: int
    ) -> list[ParameterGroup]:
        """Read the groups of an optimizer; see OptimizerReader."""
        names = _names(optimizer, model)
        rates, changed = _sampled(optimizer, _outermost(schedulers), steps)
        settings = group_settings(optimizer)
        groups = []
        for of_group, group, rate in zip(settings, optimizer.param_groups, rates, strict=True):
            trained = [one for one in group["params"] if one.requires_grad]
            named = tuple(names[id(one)] for one in trained) if all(id(one) in names for one in trained) else None
            problems = tuple(sentence("optimizer_note.changed", name=name) for name in sorted(changed))
            groups.append(ParameterGroup(_without(of_group, changed), named, len(trained), rate, problems))
        return groups


def schedulers_of(optimizer: Model, kept: Sequence[object] = ()) -> list[Any]:
    """Return all living schedulers of an optimizer, those too that others hold."""
    from torch.optim.lr_scheduler import LRScheduler

    def own(objects: Iterable[object]) -> list[Any]:
        return [one for one in objects if isinstance(one, LRScheduler) and one.optimizer is optimizer]

    scheduled = any("initial_lr" in group for group in optimizer.param_groups)
    return own(_distinct(kept)) or (own(living_objects(LRScheduler)) if scheduled else [])


def step_schedulers(schedulers: Sequence[Any]) -> None:
    """Step schedulers once, but those that others hold, and what follows a metric."""
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    for one in _outermost(schedulers):
        if not isinstance(one, ReduceLROnPlateau):
            one.step()


def set_rates_zero(optimizer: Model) -> None:
    """Set the learning rates of all groups to 0, in the form in which each is held."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 0


def _distinct(objects: Sequence[object]) -> list[Any]:
    return list({id(one): one for one in objects}.values())


def _largest(objects: Sequence[Any], wanted: set[int]) -> Model | None:
    """The module of most modules that holds all parameters; what was not initialised has none yet."""
    modules = [one for one in objects if "_parameters" in vars(one)]
    found = [one for one in modules if wanted <= set(map(id, one.parameters()))]
    return max(found, key=lambda one: sum(1 for _ in one.modules()), default=None)


def _names(optimizer: Model, model: Model | None) -> dict[int, str]:
    """The names of parameters by identity: in the model, or else as they were given to the optimizer."""
    if model is not None:
        return {id(one): name for name, one in reversed(list(model.named_parameters(remove_duplicate=False)))}
    groups = [group for group in optimizer.param_groups if "param_names" in group]
    return {id(one): name for group in groups for name, one in zip(group["param_names"], group["params"], strict=True)}


def _without(settings: LayerSettings, names: set[str]) -> LayerSettings:
    values = {name: value for name, value in settings.values.items() if name not in names}
    return LayerSettings(settings.path, settings.classes, values)


def _outermost(schedulers: Sequence[Any]) -> list[Any]:
    """The schedulers that no other holds, as SequentialLR holds its parts."""
    held = {id(one) for each in schedulers for one in scheduler_parts(each)}
    return [one for one in schedulers if id(one) not in held]


def _sampled(optimizer: Any, schedulers: Sequence[Any], steps: int) -> tuple[list[LearningRates], set[str]]:
    """The rates of each group, step by step, on a copy; and which other settings the schedulers change."""
    groups = optimizer.param_groups
    if problem := _problem(optimizer, schedulers):
        return [LearningRates(problem=problem) for _ in groups], set()
    if not schedulers:
        return [LearningRates((float(group["lr"]),)) for group in groups], set()
    length = min([steps, *(scheduler_end(one) for one in schedulers if _stops(one))])
    changed: set[str] = set()
    return scheduled_rates(schedulers, lambda: _stepped(_copies(optimizer, schedulers), length, changed)), changed


def _stops(scheduler: Any) -> bool:
    """Tell whether a scheduler, or the last of its parts, cannot be stepped behind its end."""
    parts = scheduler_parts(scheduler)
    return _stops(parts[-1]) if parts else type(scheduler).__name__ == "OneCycleLR"


def _problem(optimizer: Any, schedulers: Sequence[Any]) -> str:
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    if any(isinstance(one, ReduceLROnPlateau) for one in schedulers):
        return sentence("optimizer_note.follows_metric", name="ReduceLROnPlateau")
    if not schedulers and any("initial_lr" in group for group in optimizer.param_groups):
        return sentence("optimizer_note.scheduler_not_given")
    return ""


def _copies(optimizer: Any, schedulers: Sequence[Any]) -> list[Any]:
    """Copies of the schedulers, with an optimizer of their own that shares parameters and state."""
    shared = [one for group in optimizer.param_groups for one in group["params"]]
    memo: dict[int, object] = {id(one): one for one in (*shared, optimizer.state)}
    return [copy.deepcopy(one, memo) for one in schedulers]


def _stepped(schedulers: Sequence[Any], steps: int, changed: set[str]) -> list[list[float]]:
    groups = schedulers[0].optimizer.param_groups
    first = [{name: group.get(name) for name in CYCLED} for group in groups]
    values: list[list[float]] = [[] for _ in groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no step of the optimizer stands between those of its schedulers
        for step in range(steps):
            for own, group, start in zip(values, groups, first, strict=True):
                own.append(float(group["lr"]))
                changed.update(name for name in CYCLED if group.get(name) != start[name])
            if step + 1 < steps:
                for one in schedulers:
                    one.step()
    return values


# Settings of live torch modules and optimizers.


def module_settings(module: Model) -> dict[str, Setting]:
    """Settings of one module; a registered parameter is True if it is there and None if it is not."""
    parameters = vars(module).get("_parameters", {})
    present = {name: None if value is None else True for name, value in parameters.items()}
    return plain_settings({**vars(module), **present, **_weights(module)})


def public_classes(cls: type) -> tuple[str, ...]:
    """Names of the class and its bases below torch.nn.Module, as `torch.nn.X` where that is the class."""
    from torch import nn

    bases = [base for base in cls.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]
    return tuple(
        f"torch.nn.{base.__name__}"
        if getattr(nn, base.__name__, None) is base
        else f"{base.__module__}.{base.__qualname__}"
        for base in bases
    )


def group_settings(optimizer: Model) -> list[LayerSettings]:
    """Settings of each group of parameters of an optimizer."""
    classes = tuple(_optimizer_name(cls) for cls in type(optimizer).__mro__ if _is_optimizer(cls))
    groups = [{key: _number(value) for key, value in group.items()} for group in optimizer.param_groups]
    paths = group_paths(len(groups))
    return [LayerSettings(path, classes, plain_settings(group)) for path, group in zip(paths, groups, strict=True)]


def _weights(module: Model) -> dict[str, Setting]:
    from torch.nn.modules.loss import _Loss

    buffers = vars(module).get("_buffers", {}) if isinstance(module, _Loss) else {}
    values = {name: None if value is None else to_array(value) for name, value in buffers.items()}
    return {name: weights_as_setting(value) for name, value in values.items()}


def _is_optimizer(cls: type) -> bool:
    import torch

    return issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer


def _optimizer_name(cls: type) -> str:
    import torch

    public = getattr(torch.optim, cls.__name__, None) is cls
    return f"torch.optim.{cls.__name__}" if public else f"{cls.__module__}.{cls.__qualname__}"


def _number(value: Any) -> object:
    """A learning rate may be a tensor of one number."""
    import torch

    return value.item() if torch.is_tensor(value) and value.numel() == 1 else value
