"""torch's part of watching a loop of the user's own: see LoopWatcher.

Optimizers and outermost modules are met by torch's global hooks, operators by a function mode, which shows what user
code calls (`torch.log`), not what one call does inside.
"""

from __future__ import annotations

import copy
import os
import sys
import traceback
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.operating_system import peak_memory
from align.errors import CannotRunError, UserCodeError
from align.models.adapter_parts.batches import loss_of_step
from align.models.adapter_parts.torch.state import array_of, dtype_name, is_scripted, to_array, to_tensor
from align.models.live_calls import around_apply, with_leaves
from align.models.loop_watcher import OptimizerState, ScaleFlow, array_distance, array_figures
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Model
    from align.models.loop_watcher import OperatorSink


class TorchLoopForms:
    """See LoopForms."""

    as_array = staticmethod(array_of)
    dtype_of = staticmethod(dtype_name)

    def recording(self) -> bool:
        """Unless gradients are switched off."""
        import torch

        return bool(torch.is_grad_enabled())

    def is_floating(self, value: Any) -> bool:
        """Complex ones do not count."""
        import torch

        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return False
        return not torch._C._functorch.is_functorch_wrapped_tensor(value)  # noqa: SLF001 - no public name

    def is_parameter(self, value: Any) -> bool:
        """Any leaf that is trained."""
        import torch

        return isinstance(value, torch.nn.Parameter)

    def differentiable(self, value: Any) -> bool:
        """Only what was computed: the gradients of parameters are seen where an optimizer gets them."""
        return self.is_floating(value) and value.requires_grad and value.grad_fn is not None

    def on_gradient(self, tensor: Any, arrived: Callable[[Any], None]) -> bool:
        """A hook of the tensor, which goes with it."""
        tensor.register_hook(arrived)
        return True

    def hooks_on(self, tensor: Any) -> int:
        """Count the hooks of `register_hook`."""
        return len(tensor._backward_hooks or ())  # noqa: SLF001 - no public name

    def going_back(self) -> bool:
        """Tell by the task of torch's engine."""
        import torch

        return int(torch._C._current_graph_task_id()) >= 0  # noqa: SLF001 - no public name

    def on_parameter(self, parameter: Any, arrived: Callable[[Any], None]) -> Callable[[], Any] | None:
        """A hook that sees what comes back before it is added to what the parameter holds."""
        if not parameter.requires_grad:
            return None
        ended: Callable[[], Any] = parameter.register_hook(arrived).remove
        return ended

    def begins_anew(self, parameter: Any) -> bool:
        """None, or zeros."""
        return parameter.grad is None or not bool(parameter.grad.any())

    def own_way_back(self, module: Any) -> bool:  # noqa: ARG002
        """No module has one: it calls functions that have."""
        return False

    def on_return(self, module: Any, returned: Callable[..., None]) -> Callable[[], Any]:
        """A forward hook."""
        ended: Callable[[], Any] = module.register_forward_hook(returned, with_kwargs=True).remove
        return ended

    @property
    def bytes_at_once(self) -> int:
        """One by one: on the processor each is there already."""
        return 0

    def bytes_of(self, tensor: Any) -> int:
        """Without gaps."""
        return int(tensor.nbytes)

    def norm(self, tensor: Any) -> Any:
        """Return the norm: on the processor by NumPy, at once; elsewhere the device is not waited for."""
        import torch

        with torch.no_grad(), torch._C.DisableTorchFunction():  # noqa: SLF001 - the public name hides modes only partly
            values = _strided(tensor)
            if values.device.type == "cpu":
                return array_figures(_as_array(values), full=False)[0]
            return torch.linalg.vector_norm(values, dtype=_wide(values))

    def norms(self, tensors: Iterable[Any]) -> list[float]:
        """One copy from each device."""
        import torch

        listed = list(tensors)
        waiting = [one for one in listed if isinstance(one, torch.Tensor)]
        found = iter(torch.stack([one.double().to(waiting[0].device) for one in waiting]).tolist() if waiting else ())
        return [next(found) if isinstance(one, torch.Tensor) else float(one) for one in listed]

    def joined(self, tensors: list[Any]) -> Array | None:
        """On the processor."""
        import torch

        with torch.no_grad(), torch._C.DisableTorchFunction():  # noqa: SLF001 - the public name hides modes only partly
            flat = [_strided(tensor).reshape(-1) for tensor in tensors]
            if any(one.device.type != "cpu" for one in flat):
                return None
            joined: Array = torch.cat(flat).double().numpy()
            return joined

    def figures(self, tensor: Any, *, full: bool) -> list[Any]:
        """On the processor by NumPy; elsewhere in the tensor's own dtype, but halves, whose sums are in float32."""
        import torch

        with torch.no_grad(), torch._C.DisableTorchFunction():  # noqa: SLF001 - the public name hides modes only partly
            values = _strided(tensor)
            if values.device.type == "cpu":
                return array_figures(_as_array(values), full=full)
            if not values.numel():
                return [0.0] * (5 if full else 2)
            least, largest = torch.aminmax(values)
            figures = [self.norm(values), values.isfinite().logical_not_().sum()]
            sums = (values.sum(dtype=_wide(values)), torch.maximum(-least, largest), (values == 0).sum())
            return [*figures, *sums] if full else figures

    def copied(self, tensor: Any, into: Any = None) -> Any:
        """Detached."""
        fits = into is not None and (into.shape, into.dtype) == (tensor.shape, tensor.dtype)
        return into.copy_(tensor.detach()) if fits else tensor.detach().clone()

    def distance(self, tensor: Any, before: Any) -> Any:
        """On the processor by NumPy; elsewhere the copy takes the difference."""
        values = tensor.detach()
        if values.device.type == "cpu":
            return array_distance(_as_array(before), _as_array(values))
        return self.norm(before.sub_(values))

    def address(self, tensor: Any) -> int:
        """Views that begin where it does have the same one."""
        return int(tensor.data_ptr())

    def kept(self, tensor: Any) -> Any:
        """Detached."""
        return tensor.detach()

    def own_tensors(self, module: Any) -> list[tuple[str, Any]]:
        """Without those of modules inside."""
        return [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]

    def is_whole(self, module: Any) -> bool:
        """Tell a layer that is judged as a whole by its class."""
        return type(module).__module__.startswith("torch.") and not [*module.children()]


def _strided(tensor: Any) -> Any:
    """The values of a tensor, of a sparse one those that it holds."""
    import torch

    values = tensor.detach()
    return values if values.layout is torch.strided else values.coalesce().values()


def _wide(values: Any) -> Any:
    import torch

    return torch.float32 if values.dtype in (torch.float16, torch.bfloat16) else values.dtype


def _as_array(values: Any) -> Array:
    """The same memory on the processor; bfloat16, which NumPy lacks, as float32."""
    import torch

    array: Array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return array


class TorchLoops:
    """The part of the adapter that watches loops; see LoopWatcher."""

    loop_forms = TorchLoopForms()

    def loaded(self) -> bool:
        """Tell by the modules that are imported."""
        return "torch" in sys.modules

    def loop_modules(self, model: Model) -> list[tuple[str, Any]]:
        """Without scripted ones, which take no hooks."""
        return [(path, one) for path, one in model.named_modules() if not is_scripted(one)]

    def loop_parameters(self, model: Model) -> list[tuple[str, Any]]:
        """Tied ones once."""
        return [*model.named_parameters()]

    def loop_buffers(self, model: Model) -> list[tuple[str, Any]]:
        """Without counts."""
        return [(name, one) for name, one in model.named_buffers() if one.is_floating_point()]

    def loop_memory(self) -> float:
        """Of the current CUDA device, where one is in use."""
        import torch

        on_device = torch.cuda.is_available() and torch.cuda.is_initialized()
        return float(torch.cuda.max_memory_allocated()) if on_device else peak_memory()

    def rates_now(self, optimizer: Any) -> dict[int, float]:
        """Of the groups."""
        return dict(enumerate(float(group["lr"]) for group in optimizer.param_groups for _ in group["params"]))

    def optimizer_state(self, optimizer: Any) -> OptimizerState:
        """Return the state of the groups."""
        epsilons, rates, place = {}, {}, 0
        for group in optimizer.param_groups:
            for one in group["params"]:
                if "eps" in group:
                    epsilons[place] = float(one.new_full((), group["eps"], requires_grad=False))
                rates[place] = float(group["lr"])
                place += 1
        return OptimizerState(type(optimizer).__name__, epsilons, rates)

    @contextmanager
    def outermost_calls(self, before: Callable[[Any], None]) -> Iterator[None]:
        """Watch by a hook on all modules."""
        from torch.nn.modules import module as modules

        depth = [0]

        def entered(module: Any, args: Any) -> None:
            depth[0] += 1
            if depth[0] == 1:
                known = {*module._forward_pre_hooks}  # noqa: SLF001 - torch has listed those of this call already
                before(module)
                for number, hook in [*module._forward_pre_hooks.items()]:  # noqa: SLF001
                    if number not in known:
                        hook(module, args, {})

        def returned(_module: Any, _args: Any, _output: Any) -> None:
            depth[0] = max(0, depth[0] - 1)

        with ExitStack() as stack:
            stack.callback(modules.register_module_forward_pre_hook(entered).remove)
            stack.callback(modules.register_module_forward_hook(returned, always_call=True).remove)
            yield

    @contextmanager
    def optimizer_calls(self, before: Callable[[Any, Any], None], after: Callable[[Any], None]) -> Iterator[None]:
        """Watch by hooks on all optimizers; a class that calls the step of the one it is derived from is one call."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        running: list[Any] = []
        depths: list[int] = []

        def entered(optimizer: Any, *_: Any) -> None:
            depth = sum(1 for _ in traceback.walk_stack(None))
            while depths and depths[-1] >= depth:  # of a step that raised, and was caught
                running.pop()
                depths.pop()
            running.append(optimizer)
            depths.append(depth)
            if not any(one is optimizer for one in running[:-1]):
                before(optimizer, [one.grad for one in self.held_by(optimizer)])

        def returned(optimizer: Any, *_: Any) -> None:
            while running:
                depths.pop()
                if running.pop() is optimizer:
                    break
            if not any(one is optimizer for one in running):
                after(optimizer)

        with ExitStack() as stack:
            stack.callback(register_optimizer_step_pre_hook(entered).remove)
            stack.callback(register_optimizer_step_post_hook(returned).remove)
            yield

    def held_by(self, optimizer: Any) -> list[Any]:
        """List the parameters of all groups."""
        return [one for group in optimizer.param_groups for one in group["params"]]

    @contextmanager
    def operators(self, sink: OperatorSink) -> Iterator[None]:
        """Watch by a function mode, and the user's own `autograd.Function`, which no mode sees, by its `apply`."""
        import torch
        from torch.autograd.function import _SingleLevelFunction
        from torch.overrides import TorchFunctionMode

        class Operators(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
                output = func(*args, **(kwargs or {}))
                name = getattr(func, "__name__", "")
                if torch.is_grad_enabled() and name not in NO_COMPUTATION:
                    sink.computed(name.strip("_"), args, kwargs or {}, output)
                return output

        def applied(function: Any, args: Any, kwargs: Any, output: Any) -> None:
            if torch.is_grad_enabled():
                sink.applied(function.__name__, args, kwargs, output)

        with around_apply(_SingleLevelFunction, applied), Operators():
            yield


# Reading an attribute, and what returns its own argument or asks about it.
NO_COMPUTATION = frozenset({
    "__get__", "__set__", "__len__", "__repr__", "__format__", "__bool__", "__hash__", "__float__", "__int__",
    "requires_grad_", "backward", "register_hook", "retain_grad", "detach", "detach_", "data_ptr", "dim", "size",
    "stride", "numel", "item", "tolist", "numpy", "type_as", "element_size", "get_device", "untyped_storage",
    "is_floating_point", "is_complex", "is_contiguous", "has_torch_function",
})  # fmt: skip


# torch's part of dumping out of a loop: ranks, the callback of Hugging Face's Trainer, layers computed again.


class TorchLoopHost:
    """See LoopHost."""

    def rank(self) -> tuple[int, int]:
        """Tell by the process group, else by what torchrun says."""
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def refuse_unseen(self) -> None:
        """Nothing: hooks are always called."""

    def step_callback(
        self,
        ended: Callable[[Any, Any], None],
        closed: Callable[[], None],
        begun: Callable[[Any], Any] = lambda _: None,
    ) -> Any:
        """That of transformers' Trainer, whose step is one of the optimizer."""
        try:
            from transformers import TrainerCallback
        except ImportError as error:
            raise CannotRunError.of("torch_model.no_transformers") from error

        class StepCallback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **named: Any) -> None:
                begun(named.get("train_dataloader"))

            def on_step_end(self, *_: Any, **__: Any) -> None:
                ended(None, None)

            def on_train_end(self, *_: Any, **__: Any) -> None:
                closed()

        return StepCallback()

    def random_state(self) -> bytes:
        """That of the processor, and of the current CUDA device."""
        import torch

        states = [torch.get_rng_state()]
        states += [torch.cuda.get_rng_state()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
        return b"".join(one.numpy().tobytes() for one in states)

    def own_values(self, module: Any) -> dict[str, Array]:
        """Return values by their names in the module."""
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return {name: to_array(one).copy() for name, one in own.items()}

    def recomputed(self, module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
        """Run a deep copy without hooks; see LoopHost."""
        failed = partial(UserCodeError, say("loop_dump_reason.in_float64"))
        return run_user_code(partial(_recomputed, module, values, given), failed)


def _recomputed(module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        wide = copy.deepcopy(module).cpu().double()
        for name, one in (*wide.named_parameters(), *wide.named_buffers()):
            if name in values:
                one.copy_(to_tensor(values[name]))
        args, kwargs = with_leaves(given, _wide_tensor)
        return with_leaves(wide(*args, **kwargs), lambda _, leaf: to_array(leaf) if torch.is_tensor(leaf) else leaf)


def _wide_tensor(_name: str, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    tensor = to_tensor(leaf)
    return tensor.double() if tensor.is_floating_point() else tensor


# torch's loss scale: that of GradScaler, on any device.


class TorchLossScales:
    """See LossScaleReader."""

    def scale_flow(self, scaler: Any) -> ScaleFlow | None:
        """None given is a scale of 1, which drops nothing; so does a scaler that is not enabled."""
        from torch.amp import GradScaler

        if scaler is None:
            return ScaleFlow("unscaled", dynamic=False, drops=False)
        if not isinstance(scaler, GradScaler):
            return None
        enabled = bool(scaler.is_enabled())
        return ScaleFlow("GradScaler" if enabled else "GradScaler(enabled=False)", dynamic=enabled, drops=enabled)

    def loss_scale(self, scaler: Any) -> float:
        """Return the scale; this waits for the device."""
        return 1.0 if scaler is None else float(scaler.get_scale())

    def scale_by_which(self, optimizer: Any) -> float:
        """GradScaler divides, not the optimizer, but for fused ones, to which it hands its scale."""
        scale = getattr(optimizer, "grad_scale", None)
        return 1.0 if scale is None else float(scale)

    def read_step(self, output: Any) -> tuple[float | None, str, bool | None]:
        """A loss, alone or first of several."""
        import torch

        loss = output[0] if isinstance(output, (tuple, list)) and output else output
        if not torch.is_tensor(loss):
            return loss_of_step(output, lambda value: value), "", None
        return float(to_array(loss.detach().float()).sum()), dtype_name(loss), None

    def kept_gradients(self, model: Model) -> list[tuple[str, Any]]:
        """Until the user sets them to zero."""
        return [(name, one.grad) for name, one in model.named_parameters() if one.grad is not None]

    def kernels_faked(self, _scaler: Any) -> AbstractContextManager[None]:
        """None is missing."""
        return nullcontext()
