"""One training step of a torch model, watched: gradients where the optimizer is called, and what moved."""

from __future__ import annotations

import copy
import os
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.training import TrainingStep
from align.errors import UserCodeError
from align.models.adapter_parts.torch.arrays import to_array, to_tensor
from align.models.adapter_parts.torch.state import restored, same_random_numbers
from align.models.adapter_parts.train import WatchedUpdates, batch_parts, dropping, scalar
from align.models.record_calls import bind_inputs
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Model
    from align.core.training import BatchParts, StepSink, Training


class TorchTrainer:
    """The part of the adapter that trains; see Trainer."""

    as_tensor: Callable[..., Any]
    as_array: Callable[[Any], Array | None]

    def train(
        self,
        training: Training,
        batch: Batch,
        *,
        loss_scale: float = 1.0,
        moved: Mapping[str, Array] | None = None,
        sink: StepSink | None = None,
    ) -> TrainingStep:
        """Take one step; see Trainer."""
        model = training.model
        parts = batch_parts(training, batch, model.forward)
        tensors = {name: self.as_tensor(value, model) for name, value in batch.items()}
        own = dict(model.named_parameters())
        before = {name: to_array(one).copy() for name, one in own.items()}
        buffers = {name: to_array(one).copy() for name, one in model.named_buffers()}
        step = (
            partial(training.step, tensors) if training.step else partial(_step, training, parts, tensors, loss_scale)
        )
        with (
            _left_alone(training, before),
            same_random_numbers(),
            _watched(training, own, sink, self.as_array) as watch,
        ):
            _fill(own, {} if moved is None else moved)
            start = {**before, **({} if moved is None else moved)}
            model.train()
            loss = run_user_code(step, partial(UserCodeError, "the training step of the torch model"))
            for name, parameter in own.items():
                watch.gradients.setdefault(name, parameter.grad)
            seen = {
                name: watch.seen(name, start[name], to_array(one), _array(watch.gradients[name]))
                for name, one in own.items()
            }
            after = {name: to_array(one) for name, one in model.named_buffers()}
            changed = {name: watch.change(buffers[name], after[name]) for name in buffers}
            watch.show("loss", {"": loss})
            watch.show("gradient", watch.gradients)
            watch.show("parameter", own)
            watch.show("buffer", after)
        return TrainingStep(
            scalar(_array(loss)), seen, changed, frozenset(watch.called), watch.updates, watch.strangers
        )

    def batch_norms(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Keep each in evaluation mode; see ModelFreezer."""
        from torch.nn.modules.batchnorm import _BatchNorm

        for path, module in model.named_modules():
            if isinstance(module, _BatchNorm):
                yield path, module, {"training": False, "train": partial(_stay, module)}

    def dropouts(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Set the share of each to 0; see ModelFreezer."""
        return dropping(model.named_modules(), {"p": 0.0})

    def set_seed(self, seed: int, threads: int | None) -> list[str]:
        """Seed torch on all devices; see SeedSetter."""
        import torch

        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        settings = [f"manual_seed({seed})", "use_deterministic_algorithms(True, warn_only=True)"]
        settings += ["backends.cudnn.deterministic = True, benchmark = False"]
        if threads is not None:
            torch.set_num_threads(threads)
            settings.append(f"set_num_threads({threads})")
        return settings


def _stay(module: Model, mode: bool = True) -> Model:  # noqa: ARG001 - as Module.train is called
    """Take the place of `Module.train`: the module stays in evaluation mode."""
    return module


def _step(training: Training, batch: BatchParts, tensors: Mapping[str, Any], scale: float) -> Any:
    """Forward, loss, backward and update, as everybody writes them."""
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    args, kwargs = bind_inputs(training.model.forward, {name: tensors[name] for name in batch.inputs})
    outputs = training.model(*args, **kwargs)
    loss = outputs if training.loss is None else training.loss(outputs, *(tensors[name] for name in batch.targets))
    scalar(_array(loss))
    if loss.requires_grad:
        (loss * scale).backward()
    for optimizer in training.optimizers:
        optimizer.step()
    return loss


@contextmanager
def _watched(
    training: Training, own: Mapping[str, Any], sink: StepSink | None, as_array: Callable[[Any], Array | None]
) -> Iterator[WatchedUpdates]:
    """See which modules run, and the gradients when an optimizer is called."""
    names = {id(one): name for name, one in own.items()}
    groups = [group for optimizer in training.optimizers for group in optimizer.param_groups]
    held = [(names.get(id(one), ""), float(group["lr"])) for group in groups for one in group["params"]]
    watch = WatchedUpdates(held, sink, as_array)

    def updated(*_: Any) -> None:
        watch.updates += 1
        watch.gradients.update({name: None if one.grad is None else one.grad.clone() for name, one in own.items()})

    with ExitStack() as stack:
        for optimizer in training.optimizers:
            stack.callback(optimizer.register_step_pre_hook(updated).remove)
        for path, module in training.model.named_modules():
            hook = module.register_forward_hook(lambda _, given, output, path=path: watch.returned(path, given, output))
            stack.callback(hook.remove)
        yield watch


@contextmanager
def _left_alone(training: Training, values: Mapping[str, Array]) -> Iterator[None]:
    """Put values, gradients, modes, buffers and the optimizers' states back at the end."""
    model, own = training.model, dict(training.model.named_parameters())
    gradients = {name: one.grad for name, one in own.items()}
    states = [copy.deepcopy(optimizer.state_dict()) for optimizer in training.optimizers]
    modes = [(module, module.training) for module in model.modules()]
    for one in own.values():
        one.grad = None
    with restored(model):
        try:
            yield
        finally:
            _fill(own, values)
            for name, one in own.items():
                one.grad = gradients[name]
            for optimizer, state in zip(training.optimizers, states, strict=True):
                optimizer.load_state_dict(state)
            for module, mode in modes:
                module.training = mode


def _fill(own: Mapping[str, Any], values: Mapping[str, Array]) -> None:
    import torch

    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(to_tensor(value))


def _array(value: Any) -> Array | None:
    import torch

    return to_array(value.detach()) if torch.is_tensor(value) else value
