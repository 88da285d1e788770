"""MindSpore's part of watching a loop of the user's own (PYNATIVE): see LoopWatcher.

It has no hooks for all cells or all optimizers, which are cells: while a loop is watched, `Cell.__call__` tells of
them. Operators are met by its dispatch mode, as in `functions.py`; the tensors that a mode sees coming in are those
that gradients come back to, those that it sees going out are not.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import CannotRunError, UserCodeError
from align.models.adapter_parts.mindspore.functions import operators_arguments
from align.models.adapter_parts.mindspore.layers import copied_cell, place_network
from align.models.adapter_parts.mindspore.state import fill, launched, random_numbers_kept, to_array, to_tensor
from align.models.live_calls import around_apply, with_leaves
from align.models.loop_watcher import OptimizerState, ScaleFlow
from align.models.thresholds import NORM_BYTES
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.models.loop_watcher import OperatorSink


class MindSporeLoopForms:
    """See LoopForms."""

    def recording(self) -> bool:
        """Always: MindSpore does not tell."""
        return True

    def is_floating(self, value: Any) -> bool:
        """Complex ones do not count."""
        return isinstance(value, sys.modules["mindspore"].Tensor) and value.is_floating_point()

    def is_parameter(self, value: Any) -> bool:
        """By its class."""
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
        own = module.has_bprop
        module.has_bprop = False
        try:
            ended: Callable[[], Any] = module.register_forward_hook(returned, with_kwargs=True).remove
        finally:
            module.has_bprop = own
        return ended

    @property
    def bytes_at_once(self) -> int:
        """Many on the processor: its operators run behind the program, and a tensor is read when all have run."""
        return NORM_BYTES if sys.modules["mindspore"].get_context("device_target") == "CPU" else 0

    def bytes_of(self, tensor: Any) -> int:
        """Without gaps."""
        return int(tensor.nbytes)

    def norm(self, tensor: Any) -> Any:
        """On the processor by NumPy, over the same memory; elsewhere the device is not waited for."""
        mindspore = sys.modules["mindspore"]
        if mindspore.get_context("device_target") != "CPU":
            wide = tensor.astype(mindspore.float32)
            return mindspore.ops.sqrt((wide * wide).sum())
        flat = to_array(tensor).reshape(-1)
        if flat.dtype.name not in ("float32", "float64"):
            flat = flat.astype(np.float32)
        with np.errstate(all="ignore"):
            return float(np.sqrt(np.dot(flat, flat)))

    def norms(self, tensors: Iterable[Any]) -> list[float]:
        """One after the other."""
        mindspore = sys.modules["mindspore"]
        return [float(one.asnumpy()) if isinstance(one, mindspore.Tensor) else float(one) for one in tensors]

    def address(self, tensor: Any) -> int:
        """Views that begin where it does have the same one."""
        return int(tensor.data_ptr())

    def kept(self, tensor: Any) -> Any:
        """The tensor itself: MindSpore writes into none that it returned."""
        return tensor

    def as_array(self, value: Any) -> Array | None:
        """A copy, or a view."""
        return to_array(value) if isinstance(value, sys.modules["mindspore"].Tensor) else None

    def dtype_of(self, tensor: Any) -> str:
        """In small letters."""
        return str(tensor.dtype).lower()

    def own_tensors(self, module: Any) -> list[tuple[str, Any]]:
        """Without those of cells inside."""
        own = module.parameters_and_names(expand=False)
        return [(name.rpartition(".")[2], one) for name, one in own]

    def is_whole(self, module: Any) -> bool:
        """By its class."""
        return type(module).__module__.startswith("mindspore.") and not [*module.cells()]


class MindSporeLoops:
    """The part of the adapter that watches loops; see LoopWatcher."""

    loop_forms = MindSporeLoopForms()

    def loaded(self) -> bool:
        """By the modules that are imported."""
        return "mindspore" in sys.modules

    def loop_modules(self, model: Model) -> list[tuple[str, Any]]:
        """Each cell once."""
        found: dict[int, tuple[str, Any]] = {}
        for path, cell in model.cells_and_names():
            found.setdefault(id(cell), (_unwrapped(path), cell))
        return [*found.values()]

    def loop_parameters(self, model: Model) -> list[tuple[str, Any]]:
        """By their own names."""
        return [(one.name, one) for one in model.get_parameters()]

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
        """Of cells that are no optimizers."""
        from mindspore import nn

        depth = [0]

        def called(call: Any, cell: Any, args: Any, kwargs: Any) -> Any:
            depth[0] += 1
            try:
                if depth[0] == 1 and not isinstance(cell, nn.Optimizer):
                    before(cell)
                return call(cell, *args, **kwargs)
            finally:
                depth[0] -= 1

        with _around_calls(called):
            yield

    @contextmanager
    def optimizer_calls(self, before: Callable[[Any, Any], None], after: Callable[[Any], None]) -> Iterator[None]:
        """Of cells that are optimizers, wherever they are called."""
        from mindspore import nn

        def called(call: Any, cell: Any, args: Any, kwargs: Any) -> Any:
            if not isinstance(cell, nn.Optimizer):
                return call(cell, *args, **kwargs)
            given = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            before(cell, list(given))
            output = call(cell, *args, **kwargs)
            after(cell)
            return output

        with _around_calls(called):
            yield

    def held_by(self, optimizer: Any) -> list[Any]:
        """Of all groups."""
        return list(optimizer.parameters)

    def loop_callback(self, begin: Callable[[], Any], end: Callable[[], Any]) -> Any:
        """For `Model.train`."""
        from mindspore.train import Callback

        class Watch(Callback):  # type: ignore[misc]
            def on_train_begin(self, _run_context: Any) -> None:
                begin()

            def on_train_end(self, _run_context: Any) -> None:
                end()

        return Watch()

    @contextmanager
    def operators(self, sink: OperatorSink) -> Iterator[None]:
        """By the dispatch mode, and `apply` of the user's own functions; raises CannotRunError without such a mode."""
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
    """A path in the user's network."""
    for wrapper, name in WRAPPERS.items():
        if path == wrapper or path.startswith(f"{wrapper}."):
            return f"{name}{path[len(wrapper) :]}".lstrip(".")
    return path


@contextmanager
def _around_calls(called: Callable[..., Any]) -> Iterator[None]:
    """Let `called` stand around each call of a cell."""
    from mindspore import nn

    own = nn.Cell.__call__

    def around(self: Any, *args: Any, **kwargs: Any) -> Any:
        return called(own, self, args, kwargs)

    nn.Cell.__call__ = around
    try:
        yield
    finally:
        nn.Cell.__call__ = own


# MindSpore's part of dumping out of a loop: ranks, the callback of `Model.train`, cells computed again.


class MindSporeLoopHost:
    """See LoopHost."""

    def rank(self) -> tuple[int, int]:
        """By the communication group, else by what msrun says."""
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
        self, ended: Callable[[Any], None], closed: Callable[[], None], begun: Callable[[Any], None] = lambda _: None
    ) -> Any:
        """That of `Model.train`: in sink mode it is called once for all steps that are sunk together."""
        from mindspore.train import Callback

        class StepCallback(Callback):  # type: ignore[misc]
            def on_train_begin(self, run_context: Any) -> None:
                begun(run_context.original_args().get("train_dataset"))

            def on_train_step_end(self, run_context: Any) -> None:
                ended(run_context.original_args().net_outputs)

            def on_train_end(self, _run_context: Any) -> None:
                closed()

        return StepCallback()

    def random_state(self) -> bytes:
        """That of MindSpore's generator; operators with seeds of their own are not seen."""
        import mindspore

        return b"".join(to_array(one).tobytes() for one in _parts(mindspore.get_rng_state()))

    def own_values(self, module: Any) -> dict[str, Array]:
        """By their places in the cell: names may be given twice."""
        return {name: to_array(one).copy() for name, one in _tensors(module).items()}

    def recomputed(self, module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
        """On a copy without hooks; many kernels of the processor have no float64: see LoopHost."""
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
        """By its class; None given is a scale of 1, which drops nothing."""
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
        """Of whatever the scaler keeps it in."""
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

    @contextmanager
    def kernels_faked(self, scaler: Any) -> Iterator[None]:
        """On the processor only; see above."""
        from mindspore import nn

        if not isinstance(scaler, nn.TrainOneStepWithLossScaleCell) or not _on_processor():
            yield
            return
        before = {name: getattr(scaler, name) for name in AS_ON_A_CHIP}
        for name, value in AS_ON_A_CHIP.items():
            setattr(scaler, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(scaler, name, value)


def _on_processor() -> bool:
    return bool(launched().get_context("device_target") == "CPU")
