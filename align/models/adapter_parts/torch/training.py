"""One training step of a torch model, watched: gradients where the optimizer is called, and what moved.

Activation checkpointing and wrappers for several devices are passed by: each layer runs once, and the model is called
by itself.
"""

from __future__ import annotations

import copy
import os
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
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
from align.models.adapter_parts.step_calls import DropoutForm, StepCalls, dropping, find_dropout_layers, masked_outputs
from align.models.adapter_parts.torch.emulation import gradients_met
from align.models.adapter_parts.torch.functions import captured_functions
from align.models.adapter_parts.torch.gradients import TorchGradients, sum_of_outputs
from align.models.adapter_parts.torch.optimizers import schedulers_of, set_rates_zero, step_schedulers
from align.models.adapter_parts.torch.state import (
    evaluated,
    is_scripted,
    restored,
    same_random_numbers,
    to_array,
    to_tensor,
    uncompiled,
)
from align.models.inputs import SpilledArrays
from align.models.loop_watcher import layers_run_once, note_recompute
from align.models.record_calls import bind_inputs
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from align.core.dtypes import Array, Emulation, GradientsMet
    from align.core.protocols import Batch, Model
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
        own = dict(model.named_parameters())
        tensors = own | dict(model.named_buffers())
        further = dict(model.named_parameters(remove_duplicate=False))
        schedules = [(one, schedulers_of(one)) for one in training.optimizers]
        with _left_alone(training, schedules), same_random_numbers(), uncompiled(), _run_undistributed(model):
            if not (model.training or in_own_mode):  # else parts of it may be held in evaluation mode on purpose
                model.train()
            for number, batch in enumerate(batches):
                _fill(further, tensors, sink.begin(number, _held(training.optimizers, own)))
                once = _recompute_passed_by() if layers_run_once() else nullcontext()
                parts = self.split_batch(training, batch)
                as_tensor = partial(self.as_tensor, model=model)
                given = tensors_of(batch, parts, as_tensor, LABELS, widened=training.step is not None)
                labels = LabelCheck(parts.targets or batch)
                with _watched(training, own, sink, rate_zero=rate_zero) as calls, once, _labels_looked_at(labels):
                    step = (
                        partial(training.step, given)
                        if training.step
                        else partial(_step, training, parts, given, loss_scale, schedules)
                    )
                    failed = partial(UserCodeError, "the training step of the torch model")
                    loss = run_user_code(step, partial(labels.failed, calls.output_shapes, failed))
                sink.end(number, loss_of_step(loss, _array), ((name, to_array(one)) for name, one in tensors.items()))

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
        """By the names of what the model takes; see Trainer."""
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
        """Those of torch.nn; see DropoutReader."""
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
    factor = to_tensor(mask).to(output)
    return output.mul_(factor) if inplace else output * factor


def _stay(module: Model, mode: bool = True) -> Model:  # noqa: ARG001 - as Module.train is called
    """Take the place of `Module.train`: the module stays in evaluation mode."""
    return module


def _step(training: Training, batch: BatchParts, tensors: Mapping[str, Any], scale: float, schedules: Schedules) -> Any:
    """Forward, loss, backward, update and the schedules, as everybody writes them."""
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    args, kwargs = bind_inputs(_inner_model(training.model).forward, call_arguments(batch, tensors))
    outputs = training.model(*args, **kwargs)
    loss = own_loss(outputs) if training.loss is None else call_loss(training.loss, outputs, tensors, batch)
    scalar(_array(loss))
    if loss.requires_grad:
        (loss * scale).backward()
    for optimizer, schedulers in schedules:
        optimizer.step()
        step_schedulers(schedulers)
    return loss


def _held(optimizers: Sequence[Any], own: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """Names and rates of what optimizers hold."""
    names = {id(one): name for name, one in own.items()}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return [(names.get(id(one), ""), float(group["lr"])) for group in groups for one in group["params"]]


def _trained(own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, one) for name, one in own.items() if one.requires_grad)


@contextmanager
def _watched(training: Training, own: Mapping[str, Any], sink: StepSink, *, rate_zero: bool) -> Iterator[StepCalls]:
    """Let the sink see calls of modules, gradients of parameters, and what optimizers get; rates are put back later."""
    names, done = {id(one): name for name, one in own.items()}, set[str]()

    def computed(name: str, gradient: Any) -> None:
        if name not in done:  # what comes after its update is for another network's loss
            sink.computed(name, to_array(gradient))

    running: list[Any] = []

    def updated(optimizer: Any, *_: Any) -> None:
        running.append(optimizer)
        if optimizer in running[:-1]:  # a class of the user's own calls the step of the class it is derived from
            return
        held = _held_by(optimizer, names)
        sink.rated(_held([optimizer], own))
        _give_gradients(sink, held)
        done.update(held)
        if rate_zero:
            set_rates_zero(optimizer)

    def ended(optimizer: Any, *_: Any) -> None:
        running.pop()
        if optimizer not in running:
            _fill(own, own, sink.updated(_held_by(optimizer, names).keys(), _arrays(own)))

    modules = ((path, one) for path, one in training.model.named_modules() if not is_scripted(one))
    with ExitStack() as stack:
        for name, one in _trained(own):
            stack.callback(one.register_hook(partial(computed, name)).remove)
        for optimizer in training.optimizers:
            stack.callback(optimizer.register_step_pre_hook(updated).remove)
            stack.callback(optimizer.register_step_post_hook(ended).remove)
        calls = StepCalls(sink, TorchGradients(next(iter(own.values()), None)))
        stack.enter_context(calls.seen(modules))
        stack.enter_context(_functions_seen(training.model, sink, calls))
        yield calls


def _held_by(optimizer: Any, names: Mapping[int, str]) -> dict[str, Any]:
    """The model's parameters that an optimizer holds."""
    return {names[id(one)]: one for group in optimizer.param_groups for one in group["params"] if id(one) in names}


def _give_gradients(sink: StepSink, held: Mapping[str, Any]) -> None:
    """Let the sink see the gradients that an optimizer is called with, and give it others."""
    given = {name: None if one.grad is None else to_array(one.grad) for name, one in held.items()}
    for name, value in sink.update(given).items():
        held[name].grad = to_tensor(value).to(held[name])


def _arrays(own: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    return ((name, to_array(one)) for name, one in own.items())


def _functions_seen(model: Model, sink: StepSink, calls: StepCalls) -> AbstractContextManager[Any]:
    """Let the sink see functional calls outside of the model, if it wants them."""
    if sink.functions is None:
        return nullcontext()
    return captured_functions(model, calls.outside(sink.functions, lambda value, like: to_tensor(value).to(like)))


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
    model, own = training.model, dict(training.model.named_parameters())
    known = {id(one) for one in own.values()}
    held = (one for optimizer in training.optimizers for group in optimizer.param_groups for one in group["params"])
    own |= {f" {id(one)}": one for one in held if id(one) not in known}  # of the loss, or of another model
    values = SpilledArrays({name: to_array(one) for name, one in own.items()})
    gradients = {name: one.grad for name, one in own.items()}
    kept = (one for optimizer, schedulers in schedules for one in (optimizer, *schedulers))
    states = [(one, copy.deepcopy(one.state_dict())) for one in kept]
    modes = [(module, module.training) for module in model.modules()]
    for one in own.values():
        one.grad = None
    with restored(model):
        try:
            yield
        finally:
            _fill({}, own, values)
            for name, one in own.items():
                one.grad = gradients[name]
            for each, state in states:
                each.load_state_dict(state)
            for module, mode in modes:
                module.training = mode


def _fill(further: Mapping[str, Any], own: Mapping[str, Any], values: Mapping[str, Array]) -> None:
    """Fill tensors by name; of one with `further` names the value of its first name counts."""
    import torch

    with torch.no_grad():
        for name in (*(one for one in values if one not in own), *(one for one in values if one in own)):
            (own if name in own else further)[name].copy_(to_tensor(values[name]))


def _array(value: Any) -> Array | None:
    import torch

    return to_array(value.detach()) if torch.is_tensor(value) else value


@contextmanager
def _recompute_passed_by() -> Iterator[None]:
    """Let `torch.utils.checkpoint` call what it is given, and keep what the way back needs.

    Each layer then runs once, so that its tensors and the gradients of these are seen as of any other.
    """
    from torch.utils import checkpoint

    names = vars(checkpoint)
    with ExitStack() as stack:
        for name, plain in ((REENTRANT, _Once), (NOT_REENTRANT, _once)):
            if name in names:  # torch keeps them to itself, and may rename them
                stack.callback(names.__setitem__, name, names[name])
                names[name] = plain
        yield


class _Once:
    """Takes the place of the autograd function."""

    @staticmethod
    def apply(function: Callable[..., Any], _keeps_random_state: bool, *args: Any) -> Any:
        note_recompute()
        return function(*args)


def _once(*_args: Any, **_settings: Any) -> Iterator[None]:
    """Take the place of the generator that prepares a call, and ends it."""
    note_recompute()
    yield


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
    held = [one for one in model.modules() if _is_alone(one)]
    for wrapper in held:
        vars(wrapper)["forward"] = _Inner(wrapper)
    try:
        yield
    finally:
        for wrapper in held:
            vars(wrapper).pop("forward", None)


class _Inner:
    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wrapper.module(*args, **kwargs)


def _is_alone(module: Any) -> bool:
    """Tell whether it is a wrapper that no other process waits for, and that casts nothing."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    if not isinstance(module, DistributedDataParallel):
        return isinstance(module, DataParallel)
    return module.process_group.size() == 1 and module.mixed_precision is None
