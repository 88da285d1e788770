"""MindSpore's part of watching a loop of the user's own (PYNATIVE): see LoopWatcher.

It has no hooks for all cells or all optimizers, which are cells: while a loop is watched, `Cell.__call__` tells of
them. Operators are met by its dispatch mode; the tensors that a mode sees coming in are those that gradients come back
to, those that it sees going out are not.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.operating_system import peak_memory
from align.core.traces import OperatorSink as AnsweringSink
from align.errors import CannotRunError, UserCodeError
from align.models.adapter_parts.batches import replaced
from align.models.adapter_parts.mindspore.layers import (
    array_of,
    copied_cell,
    fill,
    launched,
    place_network,
    random_numbers_kept,
    tensor_like,
    to_array,
    to_tensor,
)
from align.models.adapter_parts.mindspore.optimizers import rates_at_step
from align.models.live_calls import LiveOperatorCall, around_apply, called_by_user, leaves, with_leaves
from align.models.loop_watcher import OptimizerState, ScaleFlow, array_distance, array_figures
from align.models.thresholds import NORM_BYTES
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.loop_watcher import OperatorSink
    from align.models.record_calls import CallRecorder


class MindSporeLoopForms:
    """See LoopForms."""

    as_array = staticmethod(array_of)

    def recording(self) -> bool:
        """Always: MindSpore does not tell."""
        return True

    def is_floating(self, value: Any) -> bool:
        """Complex ones do not count."""
        return isinstance(value, sys.modules["mindspore"].Tensor) and value.is_floating_point()

    def is_parameter(self, value: Any) -> bool:
        """Tell a parameter by its class."""
        return isinstance(value, sys.modules["mindspore"].Parameter)

    def differentiable(self, value: Any) -> bool:
        """MindSpore tells only when a hook is put on it."""
        return self.is_floating(value) and not self.is_parameter(value)

    def on_gradient(self, tensor: Any, arrived: Callable[[Any], None]) -> bool:
        """A hook of the tensor, if it takes one."""
        return self.on_parameter(tensor, arrived) is not None

    def hooks_on(self, tensor: Any) -> int:  # noqa: ARG002
        """MindSpore does not tell."""
        return 0

    def going_back(self) -> bool:
        """MindSpore does not tell."""
        return False

    def on_parameter(self, parameter: Any, arrived: Callable[[Any], None]) -> Callable[[], Any] | None:
        """A hook of the tensor that it is."""

        def seen(gradient: Any) -> None:
            arrived(gradient)  # what a hook returns would take the gradient's place

        try:
            ended: Callable[[], Any] = parameter.register_hook(seen).remove
        except RuntimeError:  # no gradient comes back to it
            return None
        return ended

    def begins_anew(self, parameter: Any) -> bool:  # noqa: ARG002
        """Nobody knows: the user's loop holds the gradients."""
        return False

    def own_way_back(self, module: Any) -> bool:
        """A cell with a `bprop`."""
        return bool(module.has_bprop)

    def on_return(self, module: Any, returned: Callable[..., None]) -> Callable[[], Any]:
        """A forward hook; a cell with a `bprop` of its own calls its hooks, but lets none be put on."""
        has_bprop = module.has_bprop
        module.has_bprop = False
        try:
            ended: Callable[[], Any] = module.register_forward_hook(returned, with_kwargs=True).remove
        finally:
            module.has_bprop = has_bprop
        return ended

    @property
    def bytes_at_once(self) -> int:
        """Many on the processor: its operators run behind the program, and a tensor is read when all have run."""
        return NORM_BYTES if sys.modules["mindspore"].get_context("device_target") == "CPU" else 0

    def bytes_of(self, tensor: Any) -> int:
        """Without gaps."""
        return int(tensor.nbytes)

    def norm(self, tensor: Any) -> Any:
        """Return the norm: on the processor by NumPy, over the same memory; elsewhere the device is not waited for."""
        mindspore = sys.modules["mindspore"]
        if mindspore.get_context("device_target") != "CPU":
            wide = tensor.astype(mindspore.float32)
            return mindspore.ops.sqrt((wide * wide).sum())
        return array_figures(to_array(tensor), full=False)[0]

    def norms(self, tensors: Iterable[Any]) -> list[float]:
        """One after the other."""
        mindspore = sys.modules["mindspore"]
        return [float(one.asnumpy()) if isinstance(one, mindspore.Tensor) else float(one) for one in tensors]

    def joined(self, tensors: list[Any]) -> Array | None:
        """On the processor."""
        if sys.modules["mindspore"].get_context("device_target") != "CPU":
            return None
        joined: Array = np.concatenate([to_array(tensor).reshape(-1) for tensor in tensors]).astype(np.float64)
        return joined

    def figures(self, tensor: Any, *, full: bool) -> list[Any]:
        """On the processor by NumPy, over the same memory; elsewhere the device is not waited for."""
        mindspore = sys.modules["mindspore"]
        if not tensor.size or mindspore.get_context("device_target") == "CPU":
            return array_figures(to_array(tensor), full=full)
        wide = tensor.astype(mindspore.float32)
        figures = [self.norm(tensor), (1 - wide.isfinite().astype(mindspore.float32)).sum()]
        zeros = (wide == 0).astype(mindspore.float32)
        return [*figures, wide.sum(), wide.abs().max(), zeros.sum()] if full else figures

    def copied(self, tensor: Any, into: Any = None) -> Any:
        """As an array on the processor."""
        mindspore = sys.modules["mindspore"]
        on_processor = mindspore.get_context("device_target") == "CPU"
        if not on_processor:
            return mindspore.ops.deepcopy(tensor)
        values = to_array(tensor)
        if into is None or (into.shape, into.dtype) != (values.shape, values.dtype):
            return values.copy()
        np.copyto(into, values)
        return into

    def distance(self, tensor: Any, before: Any) -> Any:
        """On the processor by NumPy."""
        on_processor = isinstance(before, np.ndarray)
        return array_distance(before, to_array(tensor)) if on_processor else self.norm(tensor - before)

    def address(self, tensor: Any) -> int:
        """Views that begin where it does have the same one."""
        return int(tensor.data_ptr())

    def kept(self, tensor: Any) -> Any:
        """The tensor itself: MindSpore writes into none that it returned."""
        return tensor

    def dtype_of(self, tensor: Any) -> str:
        """Return the dtype's name in small letters."""
        return str(tensor.dtype).lower()

    def own_tensors(self, module: Any) -> list[tuple[str, Any]]:
        """Without those of cells inside."""
        own = module.parameters_and_names(expand=False)
        return [(name.rpartition(".")[2], one) for name, one in own]

    def is_whole(self, module: Any) -> bool:
        """Tell a layer that is judged as a whole by its class."""
        return type(module).__module__.startswith("mindspore.") and not [*module.cells()]


class MindSporeLoops:
    """The part of the adapter that watches loops; see LoopWatcher."""

    loop_forms = MindSporeLoopForms()

    def loaded(self) -> bool:
        """Tell by the modules that are imported."""
        return "mindspore" in sys.modules

    def loop_modules(self, model: Model) -> list[tuple[str, Any]]:
        """Each cell once."""
        found: dict[int, tuple[str, Any]] = {}
        for path, cell in model.cells_and_names():
            found.setdefault(id(cell), (_unwrapped(path), cell))
        return [*found.values()]

    def loop_parameters(self, model: Model) -> list[tuple[str, Any]]:
        """List the parameters by their own names."""
        return [(one.name, one) for one in model.get_parameters()]

    def loop_buffers(self, model: Model) -> list[tuple[str, Any]]:  # noqa: ARG002
        """None: what a cell keeps is a parameter that is not trained."""
        return []

    def loop_memory(self) -> float:
        """Of the device, where it is none of the processor's."""
        mindspore = sys.modules["mindspore"]
        on_processor = mindspore.get_context("device_target") == "CPU"
        return peak_memory() if on_processor else float(mindspore.runtime.max_memory_allocated())

    def rates_now(self, optimizer: Any) -> dict[int, float]:
        """Tensors as they are, lists by the step that the optimizer counts; schedules are called with that step."""
        return rates_at_step(optimizer)

    def optimizer_state(self, optimizer: Any) -> OptimizerState:
        """One epsilon for all, as its tensors hold it."""
        given = getattr(optimizer, "eps", getattr(optimizer, "epsilon", None))
        groups = getattr(optimizer, "param_groups", None) or ()
        if given is None and groups:
            given = groups[0].get("eps")
        value = None if given is None else float(np.float32(to_array(given) if hasattr(given, "asnumpy") else given))
        epsilons = {} if value is None else dict.fromkeys(range(len(optimizer.parameters)), value)
        return OptimizerState(type(optimizer).__name__, epsilons, {})

    @contextmanager
    def outermost_calls(self, before: Callable[[Any], None]) -> Iterator[None]:
        """Watch the calls of cells that are no optimizers."""
        optimizers = optimizer_classes()
        depth = [0]

        def called(call: Any, cell: Any, args: Any, kwargs: Any) -> Any:
            depth[0] += 1
            try:
                if depth[0] == 1 and not isinstance(cell, optimizers):
                    before(cell)
                return call(cell, *args, **kwargs)
            finally:
                depth[0] -= 1

        with _around_calls(called):
            yield

    @contextmanager
    def optimizer_calls(self, before: Callable[[Any, Any], None], after: Callable[[Any], None]) -> Iterator[None]:
        """Watch the calls of cells that are optimizers, wherever they are called."""
        optimizers = optimizer_classes()

        def called(call: Any, cell: Any, args: Any, kwargs: Any) -> Any:
            if not isinstance(cell, optimizers):
                return call(cell, *args, **kwargs)
            given = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            before(cell, list(given))
            output = call(cell, *args, **kwargs)
            after(cell)
            return output

        with _around_calls(called):
            yield

    def held_by(self, optimizer: Any) -> list[Any]:
        """List the parameters of all groups."""
        return list(optimizer.parameters)

    @contextmanager
    def operators(self, sink: OperatorSink) -> Iterator[None]:
        """Watch by the dispatch mode, and `apply` of the user's own; raises CannotRunError without such a mode."""
        import mindspore

        try:
            from mindspore.utils.ms_dispatch import MsDispatchMode
        except ImportError as error:
            raise CannotRunError.of("mindspore_model.no_functions", version=mindspore.__version__) from error

        class Operators(MsDispatchMode):  # type: ignore[misc]
            def __ms_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
                output = func(*args, **(kwargs or {}))
                sink.computed(func.name, operators_arguments(args), kwargs or {}, output)
                return output

        def applied(function: Any, args: Any, kwargs: Any, output: Any) -> None:
            sink.applied(function.__name__, args, kwargs, output)

        functions = sys.modules.get("mindspore.common._grad_function")  # of versions that have any
        with around_apply(functions._Function, applied) if functions else nullcontext(), Operators():  # noqa: SLF001
            yield


# What MindSpore's `Model` and its cells that take a step put around the user's network and loss.
WRAPPERS = {"network._backbone": "", "network.network._backbone": "", "_backbone": "", "network.backbone_network": ""}
WRAPPERS |= {"network._loss_fn": "loss", "network.network._loss_fn": "loss", "_loss_fn": "loss"}


def _unwrapped(path: str) -> str:
    for wrapper, name in WRAPPERS.items():
        if path == wrapper or path.startswith(f"{wrapper}."):
            return f"{name}{path[len(wrapper) :]}".lstrip(".")
    return path


def optimizer_classes() -> tuple[type, ...]:
    """Return what optimizers are derived from: that of `nn`, and that of `experimental.optim` and `mint.optim`."""
    from mindspore import nn
    from mindspore.experimental.optim.optimizer import Optimizer

    return nn.Optimizer, Optimizer


@contextmanager
def _around_calls(called: Callable[..., Any]) -> Iterator[None]:
    """See all calls of cells. Two that end in the order in which they began leave a wrapper that only passes on."""
    from mindspore import nn

    watching = [True]

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def passed_on_to_framework(cell: Any, *args: Any, **kwargs: Any) -> Any:
            return called(call, cell, args, kwargs) if watching[0] else call(cell, *args, **kwargs)

        return passed_on_to_framework

    with replaced([(nn.Cell, "__call__", around)]):
        try:
            yield
        finally:
            watching[0] = False


# MindSpore's part of dumping out of a loop: ranks, the callback of `Model.train`, cells computed again.


class MindSporeLoopHost:
    """See LoopHost."""

    def rank(self) -> tuple[int, int]:
        """Tell by the communication group, else by what msrun says."""
        from mindspore import communication

        with suppress(RuntimeError, ValueError):  # of a process that has no group
            return communication.get_rank(), communication.get_group_size()
        return int(os.environ.get("RANK_ID", "0")), int(os.environ.get("RANK_SIZE", "1"))

    def refuse_unseen(self) -> None:
        """Graph mode runs no hook."""
        import mindspore

        if mindspore.get_context("mode") == mindspore.GRAPH_MODE and os.environ.get("MS_JIT") != "0":
            raise CannotRunError.of("mindspore_model.loop_in_graph_mode")

    def step_callback(
        self,
        ended: Callable[[Any, Any], None],
        closed: Callable[[], None],
        begun: Callable[[Any], Any] = lambda _: None,
    ) -> Any:
        """That of `Model.train`: in sink mode it is called once for all steps that are sunk together."""
        from mindspore.train import Callback

        class StepCallback(Callback):  # type: ignore[misc]
            def on_train_begin(self, run_context: Any) -> None:
                begun(run_context.original_args().get("train_dataset"))

            def on_train_step_end(self, run_context: Any) -> None:
                arguments = run_context.original_args()
                ended(arguments.net_outputs, arguments.get("train_dataset_element") or None)

            def on_train_end(self, _run_context: Any) -> None:
                closed()

        return StepCallback()

    def random_state(self) -> bytes:
        """That of MindSpore's generator; operators with seeds of their own are not seen."""
        import mindspore

        return b"".join(to_array(one).tobytes() for one in _parts(mindspore.get_rng_state()))

    def own_values(self, module: Any) -> dict[str, Array]:
        """Return values by their places in the cell: names may be given twice."""
        return {name: to_array(one).copy() for name, one in _tensors(module).items()}

    def recomputed(self, module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
        """Run a copy without hooks; many kernels of the processor have no float64: see LoopHost."""
        failed = partial(UserCodeError, say("loop_dump_reason.in_float64"))
        return run_user_code(partial(_recomputed, module, values, given), failed)


def _parts(state: Any) -> tuple[Any, ...]:
    return tuple(state) if isinstance(state, (tuple, list)) else (state,)


def _tensors(cell: Any) -> dict[str, Any]:
    return {**dict(cell.parameters_and_names()), **dict(cell.named_buffers())}


def _recomputed(module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
    tensor_type = launched().Tensor
    with random_numbers_kept():
        wide = copied_cell(module)
        place_network(wide, None, "float64")
        for name, one in _tensors(wide).items():
            if name in values:
                fill(one, values[name])
        args, kwargs = with_leaves(given, _wide_tensor)
        output = wide.construct(*args, **kwargs)
        return with_leaves(output, lambda _, leaf: to_array(leaf) if isinstance(leaf, tensor_type) else leaf)


def _wide_tensor(_name: str, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    tensor = to_tensor(leaf)
    return tensor.astype(launched().float64) if tensor.is_floating_point() else tensor


# MindSpore's loss scales: managers, the cell that trains with one, and the scalers of functional training.
#
# The processor lacks the kernels by which a chip says that it overflowed. `TrainOneStepWithLossScaleCell` runs there
# as on a chip in INF/NAN mode, which looks at gradients with an operator that the processor has.

# How the cell asks for an overflow: as on a chip in INF/NAN mode, by IsFinite.
AS_ON_A_CHIP = {"ascend_910b_target": True, "enable_allfinite": False}


class MindSporeLossScales:
    """See LossScaleReader."""

    def scale_flow(self, scaler: Any) -> ScaleFlow | None:
        """Tell by the scaler's class; None given is a scale of 1, which drops nothing."""
        from mindspore import amp, nn

        if scaler is None:
            return ScaleFlow("unscaled", dynamic=False, drops=False)
        name = type(scaler).__name__
        if isinstance(scaler, nn.TrainOneStepWithLossScaleCell):
            dynamic = not isinstance(scaler.loss_scaling_manager, (nn.FixedLossScaleUpdateCell, type(None)))
            return ScaleFlow(name, dynamic, drops=True, faked=", ".join(AS_ON_A_CHIP) if _on_processor() else "")
        if isinstance(scaler, amp.FixedLossScaleManager):
            return ScaleFlow(name, dynamic=False, drops=bool(scaler.get_drop_overflow_update()))
        dynamic = isinstance(scaler, (amp.DynamicLossScaleManager, amp.DynamicLossScaler))
        return ScaleFlow(name, dynamic, drops=True) if dynamic or isinstance(scaler, amp.LossScaler) else None

    def loss_scale(self, scaler: Any) -> float:
        """Return the scale from whatever the scaler keeps it in."""
        if scaler is None:
            return 1.0
        for name in ("scale_sense", "scale_value"):
            if hasattr(scaler, name):
                value = getattr(scaler, name)
                return float(to_array(value).reshape(-1)[0]) if hasattr(value, "asnumpy") else float(value)
        return float(scaler.get_loss_scale())

    def scale_by_which(self, optimizer: Any) -> float:
        """Its own setting `loss_scale`."""
        value = getattr(optimizer, "loss_scale", 1.0)
        return float(to_array(value).reshape(-1)[0]) if hasattr(value, "asnumpy") else float(value)

    def read_step(self, output: Any) -> tuple[float | None, str, bool | None]:
        """A loss, or (loss, overflow, scale) as TrainOneStepWithLossScaleCell returns it."""
        tensor_type = launched().Tensor
        parts = tuple(output) if isinstance(output, (tuple, list)) else (output,)
        if not parts or not isinstance(parts[0], tensor_type):
            return (float(parts[0]) if parts and isinstance(parts[0], (int, float)) else None), "", None
        flag = parts[1] if len(parts) == 3 else None
        known = isinstance(flag, tensor_type) and flag.size == 1
        loss = to_array(parts[0].astype(launched().float32)).sum()
        return float(loss), str(parts[0].dtype).lower(), bool(to_array(flag).any()) if known else None

    def kept_gradients(self, _model: Any) -> list[tuple[str, Any]]:
        """None: they are what `value_and_grad` returns."""
        return []

    def kernels_faked(self, scaler: Any) -> AbstractContextManager[None]:
        """Replace kernels, on the processor only; see above."""
        from mindspore import nn

        if not isinstance(scaler, nn.TrainOneStepWithLossScaleCell) or not _on_processor():
            return nullcontext()
        return replaced((scaler, name, partial(_instead, value)) for name, value in AS_ON_A_CHIP.items())


def _instead(value: Any, _before: Any) -> Any:
    return value


def _on_processor() -> bool:
    return bool(launched().get_context("device_target") == "CPU")


# MindSpore's functions: those that a network runs outside MindSpore's own cells, and single ones run on arrays.
#
# The former are seen through its dispatch mode (PYNATIVE), which is experimental and shows operators (`AddExt`), not
# the functions that ran them: one function may be several. It does not show what an index takes of a tensor
# (`x[:, ::2]`), which is seen by itself, nor older operators as `OneHot`, nor what joins a list of tensors, which gets
# a tuple. Of the latter some kernels are off by far more than rounding: on the CPU, MindSpore 2.10's tanh is off by up
# to 1e-4 (where |x| reaches 5), its exp by 25 units in the last place.


NAMES = ("erf", "exp", "log", "sigmoid", "tanh")


def captured_operators(model: Model, recorder: CallRecorder) -> AbstractContextManager[Any]:
    """Hand what operators return to the recorder, if its sink wants functional calls."""
    if not recorder.functions:
        return nullcontext()
    import mindspore

    try:
        from mindspore.utils.ms_dispatch import MsDispatchMode
    except ImportError as error:
        raise CannotRunError.of("mindspore_model.no_functions", version=mindspore.__version__) from error

    own = {path for path, cell in model.cells_and_names() if type(cell).__module__.startswith("mindspore.")}

    def recorded(
        name: str, again: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> Any:
        if recorder.running is None or recorder.running in own:
            return output
        if not any(isinstance(leaf, mindspore.Tensor) for _, leaf in leaves(output)):
            return output
        return recorder.function(name, again, args, kwargs, output)

    dispatched = count()

    class Operators(MsDispatchMode):  # type: ignore[misc]
        def __ms_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
            next(dispatched)
            output = func(*args, **(kwargs or {}))
            if not called_by_user():
                return output
            own = operators_arguments(args)
            again = func if own is args else lambda *given, **named: func(*args[:2], given, **named)
            return recorded(func.name, again, own, kwargs or {}, output)

    return _with_others(Operators(), recorded, dispatched)


def shows_operators() -> bool:
    """Tell whether this version of MindSpore has a dispatch mode."""
    return find_spec("mindspore.utils.ms_dispatch") is not None


@contextmanager
def shown_operators(sink: CaptureSink) -> Iterator[None]:
    """Show the sink every operator that MindSpore dispatches (PYNATIVE), if it wants to see them."""
    if not isinstance(sink, AnsweringSink):
        yield
        return
    from mindspore.utils.ms_dispatch import MsDispatchMode

    make = sink.operator

    class Operators(MsDispatchMode):  # type: ignore[misc]
        def __ms_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
            arguments, place = operators_arguments(args), None
            if arguments is not args:  # (primitive, name, arguments)
                place = args[:2]
            function = func if place is None else lambda *given: func(*place, given)
            return make(LiveOperatorCall(func.name, function, (arguments, kwargs or {}), (array_of, tensor_like)))

    with Operators():
        yield


@contextmanager
def _with_others(
    operators: AbstractContextManager[Any], recorded: Callable[..., Any], dispatched: count[int]
) -> Iterator[None]:
    """Record what an index takes of a tensor too, as `getitem`, and operators that are not `dispatched` (`OneHot`)."""
    import mindspore
    from mindspore.ops.primitive import Primitive

    taken, run = mindspore.Tensor.__getitem__, Primitive.__call__

    def getitem(self: Any, index: Any) -> Any:
        output = taken(self, index)
        return recorded("getitem", taken, (self, index), {}, output) if called_by_user() else output

    def passed_on_to_framework(self: Any, *args: Any) -> Any:
        before = next(dispatched)
        output = run(self, *args)
        if next(dispatched) > before + 1 or not called_by_user():
            return output
        return recorded(self.name, partial(run, self), args, {}, output)

    places = [
        (mindspore.Tensor, "__getitem__", partial(_instead, getitem)),
        (Primitive, "__call__", partial(_instead, passed_on_to_framework)),
    ]
    with replaced(places), _joined_as_tuples(), operators:
        yield


def _joined_as_tuples() -> AbstractContextManager[None]:
    """Let MindSpore's functions that join tensors be given tuples: with a list their operator is not dispatched."""
    import mindspore

    makers = mindspore.ops.auto_generate
    primitive = type(getattr(makers.gen_ops_def, "concat_impl", None))
    places = ((primitive, "__call__"), (mindspore.ops.Concat, "__call__"), (makers, "cat"))

    def joining(function: Callable[..., Any]) -> Callable[..., Any]:
        def passed_on_to_framework(*args: Any, **kwargs: Any) -> Any:
            return function(*[tuple(one) if isinstance(one, list) else one for one in args], **kwargs)

        return passed_on_to_framework

    return replaced((holder, name, joining) for holder, name in places if name in vars(holder))


def operators_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of an operator: those of older primitives come as (primitive, name, arguments)."""
    return args[2] if len(args) == 3 and isinstance(args[1], str) and isinstance(args[2], tuple) else args


def elementwise_functions() -> Mapping[str, Callable[[Array], Array]]:
    """Its own functions by name."""
    return {name: partial(_apply, name) for name in NAMES}


def _apply(name: str, values: Array) -> Array:
    """Run one; what is not float32 or float16 is computed in float32, as most kernels do."""
    import mindspore

    own = values if values.dtype.name in ("float16", "float32", "float64") else values.astype(np.float32)
    answer: Array = getattr(mindspore.ops, name)(mindspore.Tensor(own)).asnumpy()
    return answer.astype(values.dtype)
