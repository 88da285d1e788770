"""One training step of a torch model, watched: gradients where the optimizer is called, and what moved.

Activation checkpointing and wrappers for several devices are passed by: each layer runs once, and the model is called
by itself.
"""

from __future__ import annotations

import copy
import os
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from align.core.training import Training
from align.errors import UserCodeError
from align.models.adapter_parts.batches import (
    LabelCheck,
    call_arguments,
    call_loss,
    class_count,
    looked_at,
    loss_of_step,
    own_loss,
    replaced,
    scalar,
    split_batch,
    tensors_of,
)
from align.models.adapter_parts.step_calls import (
    DropoutForm,
    GradientRecorder,
    StepCalls,
    dropping,
    find_dropout_layers,
    masked_outputs,
    random_weighted_sum,
)
from align.models.adapter_parts.torch.emulation import gradients_met
from align.models.adapter_parts.torch.functions import captured_functions
from align.models.adapter_parts.torch.state import (
    array_of,
    evaluated,
    fitted,
    is_scripted,
    real_numbers,
    restored,
    same_random_numbers,
    schedulers_of,
    set_rates_zero,
    step_schedulers,
    tensor_like,
    to_array,
    to_tensor,
    uncompiled,
)
from align.models.inputs import SpilledArrays
from align.models.live_calls import leaves
from align.models.loop_watcher import layers_run_once, note_recompute
from align.models.record_calls import answered, bind_inputs
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.parameters import Array, Emulation, GradientsMet
    from align.core.protocols import Batch, Model
    from align.core.traces import CaptureSink
    from align.core.training import BatchParts, DropoutLayer, DropoutSink, StepSink

    Schedules = Sequence[tuple[Any, Sequence[Any]]]  # optimizers, with the schedulers of each

# What `torch.utils.checkpoint.checkpoint` calls, and finds in its module at each call.
REENTRANT, NOT_REENTRANT = "CheckpointFunction", "_checkpoint_without_reentrant_generator"
LABELS = "int64"  # what torch's losses take
COMPILED = "_orig_mod"  # what `torch.compile` calls the model in its module; to import its class takes seconds


class TorchTrainer:
    """The part of the adapter that trains; see Trainer."""

    as_tensor: Callable[..., Any]

    def take_steps(
        self,
        training: Training,
        batches: Sequence[Batch],
        sink: StepSink,
        *,
        loss_scale: float = 1.0,
        rate_zero: bool = False,
        in_own_mode: bool = False,
    ) -> None:
        """Take one step after another; see Trainer."""
        model = training.model
        parameters = dict(model.named_parameters())
        tensors = parameters | dict(model.named_buffers())
        further = dict(model.named_parameters(remove_duplicate=False))
        schedules = [(optimizer, schedulers_of(optimizer)) for optimizer in training.optimizers]
        with _left_alone(training, schedules), same_random_numbers(), uncompiled(), _run_undistributed(model):
            if not (model.training or in_own_mode):  # else parts of it may be held in evaluation mode on purpose
                model.train()
            for number, batch in enumerate(batches):
                _fill(further, tensors, sink.begin(number, _held(training.optimizers, parameters)))
                once = _recompute_passed_by() if layers_run_once() else nullcontext()
                parts = self.split_batch(training, batch)
                as_tensor = partial(self.as_tensor, model=model)
                given = tensors_of(batch, parts, as_tensor, LABELS, widened=training.step is not None)
                labels = LabelCheck(parts.targets or batch)
                with (
                    _watched(training, parameters, sink, rate_zero=rate_zero) as calls,
                    once,
                    _labels_looked_at(labels),
                ):
                    own_step = partial(_step, training, parts, given, loss_scale, schedules)
                    step = partial(training.step, given) if training.step else own_step
                    loss = labels.checked(step, calls.output_shapes, "torch")
                sink.end(
                    number, loss_of_step(loss, _array), ((name, to_array(tensor)) for name, tensor in tensors.items())
                )

    @contextmanager
    def bare_steps(self, training: Training, batch: Batch) -> Iterator[tuple[Callable[[], Any], Mapping[str, Any]]]:
        """Yield what takes a step on a batch, seen by nothing of ours, and the tensors that it is given.

        Layers that are checkpointed are computed again. All is put back at the end, as by `take_steps`. A model on the
        meta device takes its steps by shapes alone.
        """
        model = training.model
        schedules = [(optimizer, schedulers_of(optimizer)) for optimizer in training.optimizers]
        by_shapes = any(tensor.is_meta for tensor in model.parameters())
        kept = _forgotten(training) if by_shapes else _left_alone(training, schedules)
        with kept, same_random_numbers(), uncompiled(), _run_undistributed(model):
            if not model.training:
                model.train()
            parts = self.split_batch(training, batch)
            as_tensor = partial(_on_meta if by_shapes else self.as_tensor, model=model)
            given = tensors_of(batch, parts, as_tensor, LABELS, widened=training.step is not None)
            own_step = partial(_step, training, parts, given, 1.0, schedules)
            step = partial(training.step, given) if training.step else own_step
            yield partial(LabelCheck(parts.targets or batch).checked, step, (), "torch"), given

    def gradients_met(self, training: Training, emulation: Emulation, batch: Batch) -> tuple[GradientsMet, ...]:
        """Differentiate a copy in evaluation mode; see GradientReader."""
        copying = partial(UserCodeError, "copying the torch model")
        model, loss = run_user_code(partial(copy.deepcopy, training.model), copying), training.loss or sum_of_outputs
        parts = self.split_batch(Training(model, training.loss), batch)
        given = tensors_of(batch, parts, partial(self.as_tensor, model=model), LABELS)
        args, kwargs = bind_inputs(model.forward, call_arguments(parts, given))

        def call() -> Any:
            return call_loss(loss, model(*args, **kwargs), given, parts)

        failed = partial(UserCodeError, "the backward pass of the torch model")
        with evaluated(model):
            return run_user_code(partial(gradients_met, model, emulation, call), failed)

    def split_batch(self, training: Training, batch: Batch) -> BatchParts:
        """Split a batch by the names of what the model takes; see Trainer."""
        return split_batch(training, batch, _inner_model(training.model).forward)

    def batch_norms(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Keep each in evaluation mode; see ModelFreezer."""
        from torch.nn.modules.batchnorm import _BatchNorm

        for path, module in model.named_modules():
            if isinstance(module, _BatchNorm):
                yield path, module, {"training": False, "train": partial(_stay, module)}

    def dropouts(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Set the share of each to 0; see ModelFreezer."""
        return dropping(model.named_modules(), {"p": 0.0})

    def dropout_layers(self, model: Model) -> list[DropoutLayer]:
        """List those of torch.nn; see DropoutReader."""
        from torch import nn

        channels = (DropoutForm(getattr(nn, f"Dropout{number}d"), "p", spatial=number) for number in (1, 2, 3))
        forms = (DropoutForm(nn.Dropout, "p"), *channels)
        return [*find_dropout_layers(model.named_modules(), forms, "forward")]

    def masked(self, layers: Iterable[DropoutLayer], model: Model, sink: DropoutSink) -> AbstractContextManager[None]:
        """In place too, where the layer is; see DropoutReader."""
        return masked_outputs(layers, model, sink, _multiplied)

    def set_seed(self, seed: int, threads: int | None) -> list[str]:
        """Seed torch on all devices; see SeedSetter."""
        import torch

        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        _seed_devices(seed)
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        deterministic, benchmark = True, False
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = deterministic, benchmark
        settings = [f"manual_seed({seed})", "use_deterministic_algorithms(True, warn_only=True)"]
        settings += [f"backends.cudnn.deterministic = {deterministic}, benchmark = {benchmark}"]
        if threads is not None:
            torch.set_num_threads(threads)
            settings.append(f"set_num_threads({threads})")
        return settings


def _seed_devices(seed: int) -> None:
    """Seed all devices; only the processor where there is no other one: for those that may come, torch notes stacks."""
    import torch

    accelerator = getattr(torch, "accelerator", None)  # torch has it from 2.6 on
    if accelerator is None or accelerator.is_available() or hasattr(torch, "npu"):
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _multiplied(output: Any, mask: Array, inplace: bool) -> Any:
    factor = tensor_like(mask, output)
    return output.mul_(factor) if inplace else output * factor


def _stay(module: Model, mode: bool = True) -> Model:  # noqa: ARG001 - as Module.train is called
    """Take the place of `Module.train`: the module stays in evaluation mode."""
    return module


def _step(training: Training, batch: BatchParts, tensors: Mapping[str, Any], scale: float, schedules: Schedules) -> Any:
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    args, kwargs = bind_inputs(_inner_model(training.model).forward, call_arguments(batch, tensors))
    outputs = training.model(*args, **kwargs)
    loss = own_loss(outputs) if training.loss is None else call_loss(training.loss, outputs, tensors, batch)
    if not getattr(loss, "is_meta", False):  # of a model without values
        scalar(_array(loss))
    if loss.requires_grad:
        (loss * scale).backward()
    for optimizer, schedulers in schedules:
        optimizer.step()
        step_schedulers(schedulers)
    return loss


def _held(optimizers: Sequence[Any], own: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    names = {id(one): name for name, one in own.items()}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return [(names.get(id(one), ""), float(group["lr"])) for group in groups for one in group["params"]]


@contextmanager
def _watched(
    training: Training, parameters: Mapping[str, Any], sink: StepSink, *, rate_zero: bool
) -> Iterator[StepCalls]:
    """Let the sink see calls of modules, gradients of parameters, and what optimizers get; rates are put back later."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    calls = StepCalls(sink, TorchGradients(next(iter(parameters.values()), None)))
    running: list[Any] = []

    def updated(optimizer: Any, *_: Any) -> None:
        running.append(optimizer)
        if optimizer in running[:-1]:  # a class of the user's own calls the step of the class it is derived from
            return
        held = _held_by(optimizer, names)
        sink.rated(_held([optimizer], parameters))
        _give_gradients(sink, held)
        calls.updated.update(held)
        if rate_zero:
            set_rates_zero(optimizer)

    def ended(optimizer: Any, *_: Any) -> None:
        running.pop()
        if optimizer not in running:
            _fill(parameters, parameters, sink.updated(_held_by(optimizer, names).keys(), _arrays(parameters)))

    modules = ((path, module) for path, module in training.model.named_modules() if not is_scripted(module))
    with ExitStack() as stack:
        for name, parameter in parameters.items():
            if parameter.requires_grad:
                stack.callback(parameter.register_hook(partial(calls.computed, name)).remove)
        for optimizer in training.optimizers:
            stack.callback(optimizer.register_step_pre_hook(updated).remove)
            stack.callback(optimizer.register_step_post_hook(ended).remove)
        stack.enter_context(calls.seen(modules))
        stack.enter_context(calls.functions_seen(partial(captured_functions, training.model), tensor_like))
        yield calls


def _held_by(optimizer: Any, names: Mapping[int, str]) -> dict[str, Any]:
    return {names[id(one)]: one for group in optimizer.param_groups for one in group["params"] if id(one) in names}


def _give_gradients(sink: StepSink, parameters: Mapping[str, Any]) -> None:
    """Let the sink see the gradients that an optimizer is called with, and give it others."""
    given = {name: None if one.grad is None else to_array(one.grad) for name, one in parameters.items()}
    for name, value in sink.update(given).items():
        parameters[name].grad = tensor_like(value, parameters[name])


def _arrays(own: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    return ((name, to_array(one)) for name, one in own.items())


def _labels_looked_at(check: LabelCheck) -> AbstractContextManager[None]:
    """Look at labels before torch's losses take them, whatever they are called by."""
    import torch
    from torch._C._functorch import is_functorch_wrapped_tensor

    def look(
        outputs: Any, labels: Any, _weight: Any = None, _reduction: Any = None, ignored: int = -100, *_: Any
    ) -> None:
        if not labels.is_floating_point() and not is_functorch_wrapped_tensor(labels):
            check.look(class_count(outputs.shape), to_array(labels), ignored)

    names = ("cross_entropy_loss", "nll_loss_nd")
    return replaced((torch._C._nn, name, partial(looked_at, look=look)) for name in names)  # noqa: SLF001 - F calls them


@contextmanager
def _left_alone(training: Training, schedules: Schedules) -> Iterator[None]:
    """Put values, gradients, modes, buffers and the states of optimizers and schedules back at the end."""
    model, tensors = training.model, dict(training.model.named_parameters())
    known = {id(tensor) for tensor in tensors.values()}
    held_parameters = (
        tensor for optimizer in training.optimizers for group in optimizer.param_groups for tensor in group["params"]
    )
    # Parameters of the loss, or of another model.
    tensors |= {f" {id(tensor)}": tensor for tensor in held_parameters if id(tensor) not in known}
    values = SpilledArrays({name: to_array(tensor) for name, tensor in tensors.items()})
    gradients = {name: tensor.grad for name, tensor in tensors.items()}
    kept = (part for optimizer, schedulers in schedules for part in (optimizer, *schedulers))
    states = [(part, copy.deepcopy(part.state_dict())) for part in kept]
    modes = [(module, module.training) for module in model.modules()]
    for tensor in tensors.values():
        tensor.grad = None
    with restored(model):
        try:
            yield
        finally:
            _fill({}, tensors, values)
            for name, tensor in tensors.items():
                tensor.grad = gradients[name]
            for each, state in states:
                each.load_state_dict(state)
            for module, mode in modes:
                module.training = mode


def _on_meta(value: Array, model: Model) -> Any:
    return fitted(to_tensor(value), model.parameters())


@contextmanager
def _forgotten(training: Training) -> Iterator[None]:
    """Take away what steps leave in a model on the meta device, whose tensors have shapes and no values."""
    try:
        yield
    finally:
        for parameter in training.model.parameters():
            parameter.grad = None
        for optimizer in training.optimizers:
            optimizer.state.clear()


def _fill(further: Mapping[str, Any], tensors: Mapping[str, Any], values: Mapping[str, Array]) -> None:
    """Fill tensors by name; of one with `further` names the value of its first name counts."""
    import torch

    with torch.no_grad():
        for name in (*(one for one in values if one not in tensors), *(one for one in values if one in tensors)):
            (tensors if name in tensors else further)[name].copy_(to_tensor(values[name]))


def _array(value: Any) -> Array | None:
    import torch

    return to_array(value.detach()) if torch.is_tensor(value) else value


def _recompute_passed_by() -> AbstractContextManager[None]:
    """Let `torch.utils.checkpoint` call what it is given, and keep what the way back needs.

    Each layer then runs once, so that its tensors and the gradients of these are seen as of any other.
    """
    from torch.utils import checkpoint

    class Once:
        @staticmethod
        def apply(function: Callable[..., Any], _keeps_random_state: bool, *args: Any) -> Any:
            note_recompute()
            return function(*args)

    def prepare_and_end_call(*_args: Any, **_settings: Any) -> Iterator[None]:
        note_recompute()
        yield

    plain = {REENTRANT: Once, NOT_REENTRANT: prepare_and_end_call}
    return replaced((checkpoint, name, partial(dict.get, plain, name)) for name in plain)


def _inner_model(model: Model) -> Model:
    """The model in all wrappers around it, whose `forward` names its inputs."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        children = dict(model.named_children())
        if isinstance(model, (DataParallel, DistributedDataParallel)):
            model = model.module
        elif children.keys() == {COMPILED}:
            model = children[COMPILED]
        else:
            return model


@contextmanager
def _run_undistributed(model: Model) -> Iterator[None]:
    """Let wrappers call what they hold, where no gradient of another process is to be awaited.

    DistributedDataParallel counts the gradients that come back, and refuses the next step where one did not come, or
    where one comes another way; copies of a model on several devices have no hooks of their own.
    """
    with ExitStack() as stack:
        for wrapper in [one for one in model.modules() if _is_alone(one)]:
            stack.enter_context(answered(wrapper, "forward", wrapper.module))
        yield


def _is_alone(module: Any) -> bool:
    """Tell whether it is a wrapper that no other process waits for, and that casts nothing."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    if not isinstance(module, DistributedDataParallel):
        return isinstance(module, DataParallel)
    return module.process_group.size() == 1 and module.mixed_precision is None


# Gradients of a torch model: how they are watched, and how others take their place; see GradientForms.


class TorchGradients:
    """The forms of one step; `like` is any parameter of the model, None for a model without one."""

    to_array = staticmethod(array_of)

    def __init__(self, like: Any) -> None:
        import torch

        device = "cpu" if like is None else like.device
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def has_gradient(self, value: Any) -> bool:
        """Tell whether autograd runs, and takes such tensors."""
        import torch

        return bool(torch.is_grad_enabled() and value.is_floating_point())

    def awaits(self, tensor: Any) -> bool:
        """Tell whether it requires one."""
        return bool(tensor.requires_grad)

    def watched(self, tensor: Any, arrived: Callable[[Array], None]) -> Any:
        """Return the tensor under another name: the same memory, and a place of its own on the way back."""
        return _gradient_functions().watched.apply(tensor, arrived) if tensor.requires_grad else tensor

    def copy_back(self, tensor: Any, given: Any, returned: Any) -> None:
        """After an in-place operation let the caller's tensor follow, for whoever uses it later."""
        if given is not tensor and given._version and not (tensor.is_leaf and tensor.requires_grad):  # noqa: SLF001
            tensor.copy_(returned)

    def cut(self, tensor: Any, value: Array, arrived: Callable[[Array], None]) -> Any:
        """Return a new tensor, which requires a gradient whatever the old one did."""
        return _gradient_functions().cut.apply(self._anchor, to_tensor(value).to(tensor), arrived)

    def tied(self, tensor: Any, given: Callable[[], Array | None]) -> Any:
        """Return a scalar 0."""
        return _gradient_functions().tied.apply(tensor, given) if tensor.requires_grad else tensor.new_zeros(())

    def joined(self, tensor: Any, ties: Sequence[Any]) -> Any:
        """Add zeros, which leave the dtype as it is."""
        return tensor + sum(ties) if ties else tensor


@cache
def _gradient_functions() -> Any:
    """The operations, which can be made only where torch is imported."""
    import torch

    class Watched(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, tensor: Any, arrived: Any) -> Any:
            ctx.arrived = arrived
            return tensor.data  # no view: what is done in place to a view loses its place on the way back

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.arrived(to_array(gradient))
            return gradient, None

    class Cut(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, _anchor: Any, value: Any, arrived: Any) -> Any:
            ctx.arrived = arrived
            return value.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.arrived(to_array(gradient))
            return None, None, None

    class Tied(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, tensor: Any, given: Any) -> Any:
            ctx.given, ctx.like = given, tensor.new_empty(())
            ctx.shape, ctx.asked = tensor.shape, tensor.is_leaf
            return tensor.new_zeros(())

        @staticmethod
        def backward(ctx: Any, _gradient: Any) -> Any:
            value = ctx.given()
            if value is None and ctx.asked:  # the user's own step may ask for it, as a gradient penalty does
                return ctx.like.new_zeros(ctx.shape), None
            return (None if value is None else to_tensor(value).to(ctx.like).reshape(ctx.shape)), None

    class Functions:
        watched, cut, tied = Watched, Cut, Tied

    return Functions


def differentiate(model: Model, call: Callable[[], Any], given: Sequence[Any], sink: CaptureSink) -> None:
    """Run `call`, then back to the parameters and to the floating ones of the tensors `given` to it."""
    import torch

    def has_gradient(value: Any) -> bool:
        return torch.is_tensor(value) and value.requires_grad and not value.is_complex()

    recorder = GradientRecorder(sink, to_array, has_gradient)
    ends = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()]
    ends += [parameter for parameter in model.parameters() if parameter.requires_grad]
    seen = ((path, module) for path, module in model.named_modules() if not is_scripted(module))
    with recorder.watching(seen), torch.enable_grad():
        mix = random_weighted_sum(call(), has_gradient, tensor_like)
    if torch.is_tensor(mix) and ends:
        torch.autograd.grad(mix, ends, allow_unused=True)


def sum_of_outputs(outputs: Any, *_unused: Any) -> Any:
    """The sum of all numbers that a model returns and that have a gradient, as a loss."""
    import torch

    return sum(real_numbers(leaf).sum() for _, leaf in leaves(outputs) if torch.is_tensor(leaf) and leaf.requires_grad)
