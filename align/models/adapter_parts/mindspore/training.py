"""One training step of a MindSpore network (PYNATIVE), watched: gradients where the optimizer is called, and moves.

Recomputation is passed by: cells that run again on the way back, to save memory, run once.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

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
from align.models.adapter_parts.mindspore.layers import (
    array_of,
    fill,
    in_mode,
    launched,
    layer_by_layer,
    named_tensors,
    operators_restarted,
    restored,
    same_random_numbers,
    tensor_like,
    to_array,
    way_back_forgotten,
)
from align.models.adapter_parts.mindspore.loops import captured_operators
from align.models.adapter_parts.mindspore.optimizers import (
    living_schedulers,
    rates_of,
    schedules_put_back,
    step_schedulers,
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
from align.models.inputs import SpilledArrays
from align.models.loop_watcher import layers_run_once, note_recompute
from align.models.record_calls import bind_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Batch, Model
    from align.core.traces import CaptureSink
    from align.core.training import BatchParts, DropoutLayer, DropoutSink, StepSink, Training

    Schedules = Sequence[tuple[Any, Sequence[Any]]]  # optimizers, with the schedulers of each


# Where a cell keeps what `Cell.recompute()` made, and what `mindspore.recompute` finds in its module at each call.
OF_CELL = "_recompute_cell"
REENTRANT, NOT_REENTRANT = "_RecomputeCell", "recompute_without_reentrant"
FUNCTIONS = "mindspore.ops.function.nn_func"  # where its losses look for what they call
LABELS = "int32"  # what they take
MODULE = "mindspore.common.recompute"  # the package has a function of this name


class MindSporeTrainer:
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
        parameters = {parameter.name: parameter for parameter in model.trainable_params()}
        tensors = parameters | named_tensors(model)
        held_names = _held(training.optimizers, parameters)
        rates = [rate for optimizer in training.optimizers for rate in rates_of(optimizer)] if rate_zero else []
        schedules = [(optimizer, living_schedulers(optimizer)) for optimizer in training.optimizers]
        alone = _left_alone(training, schedules), same_random_numbers(), operators_restarted(model)
        with in_mode(graph=False), layer_by_layer(graph=False), alone[0], alone[1], alone[2]:
            if not (model.training or in_own_mode):  # else parts of it may be held in evaluation mode on purpose
                model.set_train(True)
            for number, batch in enumerate(batches):
                for name, value in sink.begin(number, held_names).items():
                    fill(tensors[name], value)
                once = _recompute_passed_by(model) if layers_run_once() else nullcontext()
                parts = self.split_batch(training, batch)
                given = tensors_of(batch, parts, partial(self.as_tensor, model=model), LABELS)
                labels = LabelCheck(parts.targets or batch)
                watched = _watched_step(training, parameters, sink, rates)
                with way_back_forgotten(), watched as calls, once, _labels_looked_at(labels):
                    own_step = partial(_step, training, parts, given, schedules, loss_scale, sink)
                    step = partial(training.step, given) if training.step else own_step
                    loss = labels.checked(step, calls.output_shapes, "MindSpore")
                sink.end(
                    number, loss_of_step(loss, _array), ((name, to_array(tensor)) for name, tensor in tensors.items())
                )

    @contextmanager
    def bare_steps(self, training: Training, batch: Batch) -> Iterator[tuple[Callable[[], Any], Mapping[str, Any]]]:
        """Yield what takes a step on a batch, seen by nothing of ours, and the tensors that it is given.

        Cells that are recomputed are computed again. All is put back at the end, as by `take_steps`.
        """
        model = training.model
        schedules = [(optimizer, living_schedulers(optimizer)) for optimizer in training.optimizers]
        alone = _left_alone(training, schedules), same_random_numbers(), operators_restarted(model)
        with in_mode(graph=False), layer_by_layer(graph=False), alone[0], alone[1], alone[2], way_back_forgotten():
            if not model.training:
                model.set_train(True)
            parts = self.split_batch(training, batch)
            given = tensors_of(batch, parts, partial(self.as_tensor, model=model), LABELS)
            own_step = partial(_step, training, parts, given, schedules, 1.0, None)
            step = partial(training.step, given) if training.step else own_step
            yield partial(LabelCheck(parts.targets or batch).checked, step, (), "MindSpore"), given

    def split_batch(self, training: Training, batch: Batch) -> BatchParts:
        """Split a batch by the names of what the model takes; see Trainer."""
        return split_batch(training, batch, training.model.construct)

    def batch_norms(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Let each use its moving statistics; see ModelFreezer."""
        for path, cell in model.cells_and_names():
            if "use_batch_statistics" in vars(cell):
                yield path, cell, {"use_batch_statistics": False}

    def dropouts(self, model: Model) -> Iterator[tuple[str, Model, dict[str, Any]]]:
        """Keep all values; see ModelFreezer."""
        return dropping(model.cells_and_names(), {"p": 0.0, "keep_prob": 1.0, "prob": 0.0})

    def dropout_layers(self, model: Model) -> list[DropoutLayer]:
        """List those of mindspore.nn and mindspore.mint.nn; see DropoutReader."""
        from mindspore import mint, nn

        forms = (
            DropoutForm(nn.Dropout, "dropout.keep_prob", keeps=True),
            DropoutForm(mint.nn.Dropout, "p"),
            DropoutForm(nn.Dropout1d, "prob", spatial=1),
            DropoutForm(nn.Dropout2d, "keep_prob", keeps=True, spatial=2),
            DropoutForm(mint.nn.Dropout2d, "p", spatial=2),
            DropoutForm(nn.Dropout3d, "keep_prob", keeps=True, spatial=3),
        )
        return [*find_dropout_layers(model.cells_and_names(), forms, "construct")]

    def masked(self, layers: Iterable[DropoutLayer], model: Model, sink: DropoutSink) -> AbstractContextManager[None]:
        """Never in place: PYNATIVE leaves a tensor unchanged; see DropoutReader."""
        return masked_outputs(layers, model, sink, _multiplied)

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


def _multiplied(output: Any, mask: Array, _inplace: bool) -> Any:
    return output * tensor_like(mask, output)


def _step(
    training: Training,
    batch: BatchParts,
    tensors: Mapping[str, Any],
    schedules: Schedules,
    scale: float,
    sink: StepSink | None,
) -> Any:
    """`value_and_grad` of the loss, then the optimizers, each on the gradients of its own parameters, and schedules."""
    model, weights = training.model, training.model.trainable_params()

    def forward() -> Any:
        args, kwargs = bind_inputs(model.construct, call_arguments(batch, tensors))
        outputs = model(*args, **kwargs)
        loss = own_loss(outputs) if training.loss is None else call_loss(training.loss, outputs, tensors, batch)
        scalar(_array(loss))
        return loss * scale

    if not weights:
        return forward() / scale
    loss, gradients = launched().value_and_grad(forward, None, weights)()
    if sink is not None:
        for weight, gradient in zip(weights, gradients, strict=True):
            sink.computed(weight.name, to_array(gradient))
    by_parameter = {id(weight): value for weight, value in zip(weights, gradients, strict=True)}
    for optimizer, schedulers in schedules:  # one that was frozen since has a zero gradient, as in TrainOneStepCell
        optimizer(
            tuple(
                by_parameter[id(parameter)] if id(parameter) in by_parameter else parameter * 0
                for parameter in optimizer.parameters
            )
        )
        step_schedulers(schedulers)
    return loss / scale


def _held(optimizers: Sequence[Any], own: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    names = {id(one): name for name, one in own.items()}
    return [(names.get(id(one), ""), _rate(each, one)) for each in optimizers for one in each.parameters]


@contextmanager
def _watched_step(
    training: Training, parameters: Mapping[str, Any], sink: StepSink, rates: Sequence[Any]
) -> Iterator[StepCalls]:
    """Let the sink see calls of cells, gradients of parameters in a step of the user's own, and what optimizers get.

    These `rates` are 0 when an optimizer is called.
    """
    names = {id(parameter): name for name, parameter in parameters.items()}
    calls = StepCalls(sink, MindSporeGradients(next(iter(parameters.values()), None)))

    def updated(optimizer: Any, given: tuple[Any, ...]) -> Any:
        for rate in rates:
            fill(rate, np.zeros(rate.shape, np.float32))
        whole = given[0] if given and isinstance(given[0], (tuple, list)) else given
        places = {
            names[id(parameter)]: place
            for place, parameter in enumerate(optimizer.parameters)
            if id(parameter) in names
        }
        seen = {name: to_array(whole[place]) for name, place in places.items() if place < len(whole)}
        sink.rated(_held([optimizer], parameters))
        others = sink.update(seen)
        calls.updated.update(seen)
        if not others:
            return None
        new = list(whole)
        for name, value in others.items():
            new[places[name]] = tensor_like(value, whole[places[name]])
        return (tuple(new),) if whole is not given else tuple(new)

    def ended(optimizer: Any, *_: Any) -> None:
        _go_on(sink, parameters, {names[id(parameter)] for parameter in optimizer.parameters if id(parameter) in names})

    with ExitStack() as stack:
        for name, parameter in parameters.items() if training.step else ():
            stack.callback(parameter.register_hook(partial(calls.computed, name)).remove)
        for optimizer in training.optimizers:
            stack.callback(optimizer.register_forward_pre_hook(updated).remove)
            stack.callback(optimizer.register_forward_hook(ended).remove)
        stack.enter_context(calls.seen(training.model.cells_and_names()))
        stack.enter_context(calls.functions_seen(partial(captured_operators, training.model), tensor_like))
        yield calls


def _go_on(sink: StepSink, own: Mapping[str, Any], held: Set[str]) -> None:
    """Give parameters the values that they are to have behind an update."""
    for name, value in sink.updated(held, ((name, to_array(one)) for name, one in own.items())).items():
        fill(own[name], value)


def _labels_looked_at(check: LabelCheck) -> AbstractContextManager[None]:
    """Look at labels before MindSpore's losses take them, whatever they are called by."""
    from mindspore import nn, ops

    def of_function(outputs: Any, labels: Any, *_: Any, ignored: int | None = -100) -> None:
        check.look(class_count(outputs.shape), to_array(labels), ignored)

    def inner(
        outputs: Any, labels: Any, _axis: Any = -1, _weight: Any = None, ignored: Any = None, *_: Any, **__: Any
    ) -> None:
        of_function(outputs, labels, ignored=ignored)

    def of_mint(outputs: Any, labels: Any, _weight: Any = None, ignored: int = -100, *_: Any, **__: Any) -> None:
        of_function(outputs, labels, ignored=ignored)

    def of_operator(_operator: Any, outputs: Any, labels: Any) -> None:
        of_function(outputs, labels, ignored=None)

    def of_cell(cell: Any, outputs: Any, labels: Any) -> None:
        if cell.sparse:
            of_function(outputs, labels, ignored=None)

    def of_rows(_operator: Any, labels: Any, classes: Any, *_: Any) -> None:
        check.look_from_one(int(classes), to_array(labels))

    functions = sys.modules[FUNCTIONS]
    places = (
        (functions, "_nll_loss", inner),
        (functions, "_nllloss_nd", of_mint),
        (ops.SparseSoftmaxCrossEntropyWithLogits, "__call__", of_operator),
        (nn.SoftmaxCrossEntropyWithLogits, "construct", of_cell),
        (ops.OneHot, "__call__", of_rows),
    )
    return replaced((owner, name, partial(looked_at, look=look)) for owner, name, look in places)


@contextmanager
def _left_alone(training: Training, schedules: Schedules) -> Iterator[None]:
    """Put values, modes, buffers, attributes and the optimizers' states back at the end."""
    model = training.model
    modes = [(cell, cell.training) for _, cell in model.cells_and_names()]
    states = [parameter for optimizer in training.optimizers for parameter in optimizer.get_parameters()]
    # What an optimizer holds has the parameters of a loss too.
    held_parameters = [parameter for optimizer in training.optimizers for parameter in optimizer.parameters]
    known = {id(parameter) for parameter in states}
    rates = [rate for optimizer in training.optimizers for rate in getattr(optimizer, "lrs", ())]
    further = {id(tensor): tensor for tensor in (*named_tensors(model).values(), *held_parameters, *rates)}
    states += [tensor for number, tensor in further.items() if number not in known]
    kept = SpilledArrays()
    for place, parameter in enumerate(states):
        kept[str(place)] = to_array(parameter)
    with ExitStack() as stack, restored(model):
        for optimizer, schedulers in schedules:
            if schedulers:
                stack.enter_context(schedules_put_back(optimizer, schedulers))
        try:
            yield
        finally:
            for place, parameter in enumerate(states):
                fill(parameter, kept[str(place)])
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


def _array(value: Any) -> Any:
    return to_array(value) if isinstance(value, launched().Tensor) else value


@contextmanager
def _recompute_passed_by(model: Model) -> Iterator[None]:
    """Let cells that are set to be recomputed run once, and `mindspore.recompute` call what it is given."""

    class Block:
        """Takes the place of the class of the cell around a block: what is made of it is the block."""

        def __new__(cls, block: Callable[..., Any]) -> Any:
            note_recompute()
            return block

    def block_called(block: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        note_recompute()
        kwargs.pop("save_rng_state", None)
        return block(*args[3:], **kwargs)  # what stands behind the three settings of recomputation

    plain = {REENTRANT: Block, NOT_REENTRANT: block_called}
    with ExitStack() as stack:
        places = ((sys.modules[MODULE], name, partial(dict.get, plain, name)) for name in plain)
        stack.enter_context(replaced(places))
        for cell in [one for _, one in model.cells_and_names() if getattr(one, OF_CELL, None) is not None]:
            stack.callback(_set_aside(cell))
        yield


def _set_aside(cell: Any) -> Callable[[], None]:
    """Take what recomputes a cell out of it: a child, or a function. Return what puts it back."""
    note_recompute()
    attributes, children = vars(cell), cell._cells  # noqa: SLF001 - MindSpore tells of it nowhere else
    where = children if OF_CELL in children else attributes
    kept = where.pop(OF_CELL)
    attributes[OF_CELL] = None

    def put_back() -> None:
        del attributes[OF_CELL]
        where[OF_CELL] = kept

    return put_back


# Gradients of a MindSpore network (PYNATIVE): one pass back from a fixed mix of what it returns, and all on their
# way.
#
# On their way back they are watched, and others take their place; see GradientForms. A cell with a `bprop` of its own
# sees what arrives and says what goes on.


class MindSporeGradients:
    """The forms of one step; `anchor` is a trained parameter, by which a place on the way back is always reached."""

    to_array = staticmethod(array_of)

    def __init__(self, anchor: Any) -> None:
        self._anchor = anchor

    def has_gradient(self, value: Any) -> bool:
        """Tell whether a tensor is floating; MindSpore does not tell more."""
        return bool(value.is_floating_point())

    def awaits(self, tensor: Any) -> bool:  # noqa: ARG002
        """Tell nothing: tensors do not know."""
        return False

    def watched(self, tensor: Any, arrived: Callable[[Array], None]) -> Any:
        """Pass the tensor through a cell."""
        return _watched_cell_class()(arrived)(tensor)

    def copy_back(self, tensor: Any, given: Any, returned: Any) -> None:
        """Nothing: layers write into no tensor that they are given."""

    def cut(self, tensor: Any, value: Array, arrived: Callable[[Array], None]) -> Any:
        """Return another tensor from a cell."""
        return _cut()(tensor_like(value, tensor), arrived)(tensor, self._anchor)

    def tied(self, tensor: Any, given: Callable[[], Array | None]) -> Any:
        """Return a scalar 0 from a cell."""
        return _tied()(given)(tensor)

    def joined(self, tensor: Any, ties: Sequence[Any]) -> Any:
        """Add zeros in the dtype of the tensor."""
        for tie in ties:
            tensor = tensor + tie.astype(tensor.dtype)
        return tensor


@cache
def _watched_cell_class() -> Any:
    """The class of the cell, which can be had only where MindSpore is imported."""
    from mindspore import nn

    class Watched(nn.Cell):  # type: ignore[misc]
        def __init__(self, arrived: Any) -> None:
            super().__init__()
            self.arrived = arrived

        def construct(self, tensor: Any) -> Any:
            return tensor * 1

        def bprop(self, _tensor: Any, _out: Any, gradient: Any) -> Any:
            self.arrived(to_array(gradient))
            return (gradient,)

    return Watched


@cache
def _cut() -> Any:
    from mindspore import nn, ops

    class Cut(nn.Cell):  # type: ignore[misc]
        def __init__(self, value: Any, arrived: Any) -> None:
            super().__init__()
            self.value, self.arrived = value, arrived

        def construct(self, _tensor: Any, _anchor: Any) -> Any:
            return self.value * 1

        def bprop(self, tensor: Any, anchor: Any, _out: Any, gradient: Any) -> Any:
            self.arrived(to_array(gradient))
            return ops.zeros_like(tensor), ops.zeros_like(anchor)

    return Cut


@cache
def _tied() -> Any:
    from mindspore import nn, ops

    class Tied(nn.Cell):  # type: ignore[misc]
        def __init__(self, given: Any) -> None:
            super().__init__()
            self.given = given

        def construct(self, tensor: Any) -> Any:
            return launched().Tensor(0.0, tensor.dtype)

        def bprop(self, tensor: Any, _out: Any, _gradient: Any) -> Any:
            value = self.given()
            if value is None:
                return (ops.zeros_like(tensor),)
            return (tensor_like(value, tensor).reshape(tensor.shape),)

    return Tied


def differentiate(
    model: Model, call: Callable[[Mapping[str, Any]], Any], inputs: Mapping[str, Any], sink: CaptureSink
) -> None:
    """Run `call` on the inputs, then back to the parameters and to the floating inputs."""
    import mindspore

    def has_gradient(value: Any) -> bool:
        return isinstance(value, mindspore.Tensor) and value.is_floating_point()

    floating = [name for name, value in inputs.items() if value.is_floating_point()]

    def mix(*given: Any) -> Any:
        output = call({**inputs, **dict(zip(floating, given, strict=True))})
        return random_weighted_sum(output, has_gradient, tensor_like)

    recorder = GradientRecorder(sink, to_array, has_gradient)
    places = tuple(range(len(floating))) or None
    parameters = model.trainable_params() or None
    with recorder.watching(model.cells_and_names()):
        if places or parameters:
            mindspore.value_and_grad(mix, places, parameters)(*(inputs[name] for name in floating))
