"""One training step of a MindSpore network (PYNATIVE), watched: gradients where the optimizer is called, and moves."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.training import TrainingStep
from align.errors import UserCodeError
from align.models.adapter_parts.mindspore.arrays import fill, launched, named_tensors, to_array
from align.models.adapter_parts.mindspore.placing import in_mode, layer_by_layer
from align.models.adapter_parts.mindspore.state import operators_restarted, restored, same_random_numbers
from align.models.adapter_parts.train import WatchedUpdates, batch_parts, dropping, scalar
from align.models.record_calls import bind_inputs
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.protocols import Batch, Model
    from align.core.training import BatchParts, StepSink, Training


class MindSporeTrainer:
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
        parts = batch_parts(training, batch, model.construct)
        tensors = {name: self.as_tensor(value, model) for name, value in parts.inputs.items()}
        tensors |= {name: self.as_tensor(_label(value), model) for name, value in parts.targets.items()}
        own = {one.name: one for one in model.trainable_params()}
        others = {name: one for name, one in named_tensors(model).items() if name not in own}
        before = {name: to_array(one).copy() for name, one in (own | others).items()}
        with (
            in_mode(graph=False),
            layer_by_layer(graph=False),
            _left_alone(training, before),
            same_random_numbers(),
            operators_restarted(model),
            _watched(training, own, sink, self.as_array) as watch,
        ):
            for name, value in (moved or {}).items():
                fill(own[name], value)
            model.set_train(True)
            step = (
                partial(training.step, tensors)
                if training.step
                else partial(_step, training, parts, tensors, loss_scale, watch)
            )
            loss = run_user_code(step, partial(UserCodeError, "the training step of the MindSpore network"))
            start = before | dict(moved or {})
            seen = {
                name: watch.seen(name, start[name], to_array(one), watch.gradients.get(name))
                for name, one in own.items()
            }
            changed = {name: watch.change(before[name], to_array(one)) for name, one in others.items()}
            watch.show("loss", {"": loss})
            watch.show("gradient", watch.gradients)
            watch.show("parameter", own)
            watch.show("buffer", others)
        return TrainingStep(
            scalar(_array(loss)), seen, changed, frozenset(watch.called), watch.updates, watch.strangers
        )

    def batch_norms(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Let each use its moving statistics; see ModelFreezer."""
        for path, cell in model.cells_and_names():
            if "use_batch_statistics" in vars(cell):
                yield path, cell, {"use_batch_statistics": False}

    def dropouts(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Keep all values; see ModelFreezer."""
        return dropping(model.cells_and_names(), {"p": 0.0, "keep_prob": 1.0})

    def set_seed(self, seed: int, threads: int | None) -> list[str]:
        """Seed operators, initial values and the data pipeline; see SeedSetter."""
        mindspore = launched()
        mindspore.set_seed(seed)
        mindspore.manual_seed(seed)
        mindspore.dataset.config.set_seed(seed)
        if mindspore.get_context("deterministic") != "ON":
            mindspore.set_context(deterministic="ON")  # `set_deterministic` raises when it is called again
        settings = [f"set_seed({seed})", f"manual_seed({seed})", f"dataset.config.set_seed({seed})"]
        settings += ['set_context(deterministic="ON")']
        if threads is not None:
            mindspore.set_context(runtime_num_threads=threads)
            mindspore.dataset.config.set_num_parallel_workers(threads)
            settings += [f"set_context(runtime_num_threads={threads})"]
            settings += [f"dataset.config.set_num_parallel_workers({threads})"]
        return settings


def _step(
    training: Training, batch: BatchParts, tensors: Mapping[str, Any], scale: float, watch: WatchedUpdates
) -> Any:
    """`value_and_grad` of the loss, then the optimizers, each on the gradients of its own parameters."""
    model, weights = training.model, training.model.trainable_params()
    targets = [tensors[name] for name in batch.targets]

    def forward() -> Any:
        args, kwargs = bind_inputs(model.construct, {name: tensors[name] for name in batch.inputs})
        outputs = model(*args, **kwargs)
        loss = outputs if training.loss is None else training.loss(outputs, *targets)
        scalar(_array(loss))
        return loss * scale

    if not weights:
        return forward() / scale
    loss, gradients = launched().value_and_grad(forward, None, weights)()
    watch.gradients.update({one.name: to_array(value) for one, value in zip(weights, gradients, strict=True)})
    by_parameter = {id(one): value for one, value in zip(weights, gradients, strict=True)}
    for optimizer in training.optimizers:  # one that was frozen since has a zero gradient, as in TrainOneStepCell
        optimizer(tuple(by_parameter.get(id(one), one * 0) for one in optimizer.parameters))
    return loss / scale


@contextmanager
def _watched(
    training: Training, own: Mapping[str, Any], sink: StepSink | None, as_array: Callable[[Any], Array | None]
) -> Iterator[WatchedUpdates]:
    """See which cells run, and the gradients when an optimizer is called."""
    names = {id(one): name for name, one in own.items()}
    held = [(names.get(id(one), ""), _rate(each, one)) for each in training.optimizers for one in each.parameters]
    watch = WatchedUpdates(held, sink, as_array)

    def updated(optimizer: Any, given: tuple[Any, ...]) -> None:
        watch.updates += 1
        gradients = given[0] if given and isinstance(given[0], (tuple, list)) else given
        for parameter, gradient in zip(optimizer.parameters, gradients, strict=False):
            if id(parameter) in names:
                watch.gradients[names[id(parameter)]] = to_array(gradient)

    with ExitStack() as stack:
        for optimizer in training.optimizers:
            stack.callback(optimizer.register_forward_pre_hook(updated).remove)
        for path, cell in training.model.cells_and_names():
            hook = cell.register_forward_hook(lambda _, given, output, path=path: watch.returned(path, given, output))
            stack.callback(hook.remove)
        yield watch


@contextmanager
def _left_alone(training: Training, values: Mapping[str, Array]) -> Iterator[None]:
    """Put values, modes, buffers, attributes and the optimizers' states back at the end."""
    model = training.model
    modes = [(cell, cell.training) for _, cell in model.cells_and_names()]
    states = [one for optimizer in training.optimizers for one in optimizer.get_parameters()]
    kept = [(one, to_array(one).copy()) for one in states]
    with restored(model):
        try:
            yield
        finally:
            tensors = named_tensors(model)
            for name, value in values.items():
                fill(tensors[name], value)
            for one, value in kept:
                fill(one, value)
            for cell, mode in modes:
                cell.set_train(mode)


def _rate(optimizer: Any, parameter: Any) -> float | None:
    """The rate of a parameter's group, None if a schedule gives it."""
    groups = getattr(optimizer, "param_groups", None)
    if groups is None:
        rate = optimizer.get_lr_parameter(parameter)
    else:
        rate = next(group["lr"] for group in groups if any(one is parameter for one in group["params"]))
    rate = _array(rate)
    single = isinstance(rate, (int, float)) or (isinstance(rate, np.ndarray) and rate.size == 1)
    return float(rate) if single else None


def _label(value: Array) -> Array:
    """Labels as MindSpore's losses take them."""
    return value.astype(np.int32) if value.dtype == np.int64 else value


def _array(value: Any) -> Any:
    return to_array(value) if isinstance(value, launched().Tensor) else value
