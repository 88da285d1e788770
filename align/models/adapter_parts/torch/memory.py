"""torch's part of tracing memory: see MemoryTracer.

A dispatch mode sees every tensor that an operator returns; memory is counted by storages, so that views, in-place
operations and shared tensors count once, from the operator that made it until the last tensor on it is gone. What
kernels take while they run is known from the allocator: on the processor from the events of its profiler, on CUDA from
its statistics. Both are private parts of torch: without them the trace says that it lacks these.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from align.core.memory import Allocation, MemoryTrace
from align.models.live_calls import leaves
from align.models.loop_watcher import LoopHooks, SpanRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.memory import MemoryKind, MemoryPhase
    from align.core.protocols import Batch
    from align.core.training import Training

MARK = "align operator "  # format: names each operator among the profiler's events
CUDA_BLOCK = 512  # format: what torch's CUDA allocator rounds sizes up to


def trace_memory(adapter: Any, training: Training, batch: Batch) -> MemoryTrace:
    """Take a step that nothing sees, and one that is traced; see MemoryTracer."""
    with adapter.bare_steps(training, batch) as (step, given):
        step()
        tracer = StorageTracer(training, given)
        with _traced(adapter, training, tracer), tracer.saved(), tracer.workspaces():
            step()
        return tracer.trace()


def watch_memory(
    adapter: Any, training: Training, batch: Batch, steps: int, ended: Callable[[int, int | None], None]
) -> MemoryTrace | None:
    """Trace all steps, without what kernels take; see MemoryTracer."""
    with adapter.bare_steps(training, batch) as (step, given):
        tracer = StorageTracer(training, given)
        with _traced(adapter, training, tracer):
            for number in range(steps):
                tracer.begin(number)
                step()
                ended(number, tracer.living())
        return tracer.trace()


@contextmanager
def _traced(adapter: Any, training: Training, tracer: StorageTracer) -> Iterator[None]:
    tracer.hooks = hooks = LoopHooks(tracer.calls, adapter.loop_forms, backward=False)
    with ExitStack() as stack:
        stack.enter_context(hooks.on_modules(adapter.loop_modules(training.model)))
        stack.enter_context(adapter.optimizer_calls(tracer.updating, tracer.updated))
        stack.enter_context(tracer.mode())
        yield


class StorageTracer:
    """Follows the storages of one device, operator by operator; a LoopSink for calls of modules."""

    def __init__(self, training: Training, given: Mapping[str, Any]) -> None:
        tensors = [*training.model.parameters(), *training.model.buffers()]
        self.calls = SpanRecorder(lambda: len(self._layers), self._place_of, self._goes_forward)
        self.hooks: LoopHooks | None = None
        self._training, self._step = training, 0
        self._device: Any = tensors[0].device if tensors else None
        self._allocations: list[Allocation] = []
        self._places: dict[int, int] = {}  # of living storages, by their address in C++
        self._layers: list[str] = []
        self._phases: list[MemoryPhase] = []
        self._orders: tuple[list[int], list[str]] = ([], [])  # what autograd numbers nodes from, and whose they are
        self._phase: MemoryPhase = "forward"
        self._workspaces: dict[int, int] | None = None
        self._counted: int | None = None
        self._owners = _owners(training)
        for name, leaf in leaves(dict(given)):
            self._meet(leaf, "inputs", "", name)
        for tensor in [*tensors, *(one for one, _ in self._owners.values())]:
            self._meet(tensor, "weights", self._owner(tensor), "")
        self._know_gradients()
        self._know_state()

    # What is there: each storage once.

    def _meet(self, tensor: Any, kind: MemoryKind, layer: str, operator: str) -> int | None:
        """The place of a tensor's storage, which is new where nobody has seen it; None for one that is elsewhere."""
        import torch

        if not isinstance(tensor, torch.Tensor) or tensor.device != self._device or tensor.layout != torch.strided:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the one name that all tensors on it share
        place = self._places.get(key)
        if place is None:
            nbytes = storage.nbytes()
            if self._device.type == "cuda":
                nbytes = -(-nbytes // CUDA_BLOCK) * CUDA_BLOCK
            place = self._places[key] = len(self._allocations)
            now = max(len(self._layers) - 1, 0)
            self._allocations.append(Allocation(nbytes, kind, layer, now, None, operator, self._step))
            weakref.finalize(storage, self._gone, key)
        return place

    def _gone(self, key: int) -> None:
        self._allocations[self._places.pop(key)].end = len(self._layers)

    def _owner(self, tensor: Any) -> str:
        return self._owners[id(tensor)][1] if id(tensor) in self._owners else ""

    def _know(self, tensor: Any, kind: MemoryKind, layer: str) -> None:
        """Tell what a storage is that may have been met as something else."""
        place = self._meet(tensor, kind, layer, "")
        if place is not None and self._allocations[place].kind not in ("weights", kind):
            self._allocations[place].kind, self._allocations[place].layer = kind, layer

    def _know_gradients(self) -> None:
        for parameter, layer in self._owners.values():
            if parameter.grad is not None:
                self._know(parameter.grad, "gradients", layer)

    def _know_state(self) -> None:
        for optimizer in self._training.optimizers:
            for parameter, state in optimizer.state.items():
                for _, value in leaves(state):
                    self._know(value, "state", self._owner(parameter))

    def living(self) -> int:
        """Bytes of all that is there now."""
        return sum(self._allocations[place].nbytes for place in self._places.values())

    def begin(self, step: int) -> None:
        """A step of many begins: of those before, only what lives is kept, so that tracing itself takes no more."""
        living = [(key, self._allocations[place]) for key, place in self._places.items()]
        self._allocations = [one for _, one in living]
        self._places = {key: place for place, (key, _) in enumerate(living)}
        for noted in (self._layers, self._phases, self.calls.spans, *self._orders):
            noted.clear()
        self._step, self._phase = step, "forward"

    # What happens: operators, calls of modules, what the way back keeps, updates.

    def mode(self) -> Any:
        """The dispatch mode under which the step is taken."""
        from torch._C._profiler import _RecordFunctionFast
        from torch.utils._python_dispatch import TorchDispatchMode

        tracer = self

        class Operators(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func.namespace == "profiler":  # marks that optimizers set, no computation
                    return func(*args, **(kwargs or {}))
                number = tracer.begun()
                with _RecordFunctionFast(f"{MARK}{number}"), tracer.counted(number):
                    output = func(*args, **(kwargs or {}))
                tracer.computed(func, output)
                return output

        return Operators()

    def begun(self) -> int:
        """An operator begins; its number."""
        import torch

        going_back = int(torch._C._current_graph_task_id()) >= 0  # noqa: SLF001 - no public name
        if going_back and self._phase != "backward":
            self._turn_back()
        elif not going_back and self._phase == "backward":
            self._phase = "optimizer"  # clipping and scaling are a part of it
            self._know_gradients()
        running = self._running()
        if running is not None and not going_back:
            self._phase = "forward"
        layer = running if running is not None else self._layer_going_back() if going_back else ""
        if not going_back:
            self._orders[0].append(torch.autograd._get_sequence_nr())  # noqa: SLF001 - no public name
            self._orders[1].append(layer)
        self._layers.append(layer)
        self._phases.append(self._phase)
        return len(self._layers) - 1

    def _running(self) -> str | None:
        """The innermost module that is called now."""
        running = self.hooks.running if self.hooks else []
        return running[-1][0].path if running else None

    def _turn_back(self) -> None:
        """The way back begins: what the way forward made and is still there is kept for it, or by the user's code."""
        if self._phase == "forward":
            for place in self._places.values():
                one = self._allocations[place]
                if one.kind == "temporaries" and one.step == self._step:
                    one.kind = "activations"
        self._phase = "backward"

    def _layer_going_back(self) -> str:
        """The layer whose way forward made the node that runs, by the number that autograd gave it."""
        import torch

        node = torch._C._current_autograd_node()  # noqa: SLF001 - no public name
        number = -1 if node is None else int(node._sequence_nr())  # noqa: SLF001
        place = bisect_right(self._orders[0], number) - 1
        if place >= 0 and number <= self._orders[0][-1]:
            return self._orders[1][place]
        return self._layers[-1] if self._layers else ""  # a gradient is added where the node before made it

    def computed(self, func: Any, output: Any) -> None:
        """An operator returned; what it made is a temporary until something keeps it."""
        for _, leaf in leaves(output):
            place = self._meet(leaf, "temporaries", self._layers[-1], "")
            if place is not None and not self._allocations[place].made and not self._is_old(place):
                shape = ",".join(map(str, leaf.shape))
                self._allocations[place].made = f"{func.__name__.partition('.')[0]} {leaf.dtype}[{shape}]"[:80].replace(
                    "torch.", ""
                )

    def _is_old(self, place: int) -> bool:
        return self._allocations[place].begin < len(self._layers) - 1

    def _goes_forward(self) -> bool:
        """A module that is called outside of the way back begins the way forward anew, as for a second model."""
        import torch

        return int(torch._C._current_graph_task_id()) < 0  # noqa: SLF001 - no public name

    def _place_of(self, value: Any) -> int | None:
        import torch

        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return None
        return self._places.get(value.untyped_storage()._cdata)  # noqa: SLF001

    def saved(self) -> Any:
        """Hooks that see what the way back keeps: that is the layer's which keeps it first."""
        import torch

        def pack(tensor: Any) -> Any:
            place = self._place_of(tensor)
            if place is not None and self._phase == "forward":
                one = self._allocations[place]
                if one.kind == "temporaries":
                    one.kind, one.layer = "activations", self._running() or one.layer
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def updating(self, _optimizer: Any, _gradients: Any) -> None:
        """An optimizer is called."""
        self._phase = "optimizer"
        self._know_gradients()

    def updated(self, _optimizer: Any) -> None:
        """It returned: now its state is there."""
        self._know_state()

    # What kernels take while they run, beyond what they return.

    @contextmanager
    def workspaces(self) -> Iterator[None]:
        """Read them from the allocator while the step runs."""
        if self._device is None or self._device.type not in ("cpu", "cuda"):
            yield
            return
        if self._device.type == "cuda":
            self._workspaces = {}
            yield
            return
        with _profiled() as events:
            yield
        if events is not None:
            self._workspaces = _workspaces_of(events)

    @contextmanager
    def counted(self, number: int) -> Iterator[None]:
        """On CUDA, ask the allocator what one operator took at most."""
        if self._workspaces is None or self._device.type != "cuda":
            yield
            return
        from torch import cuda

        cuda.reset_peak_memory_stats(self._device)
        yield
        most = cuda.max_memory_allocated(self._device)
        self._workspaces[number] = most - cuda.memory_allocated(self._device)
        self._counted = max(self._counted or 0, most)

    def trace(self) -> MemoryTrace:
        """All that was seen."""
        import torch

        self._know_gradients()
        seen = [replace(allocation) for allocation in self._allocations]  # what lives now may be gone when it is read
        taken = self._workspaces or {}
        extra = [
            Allocation(nbytes, "temporaries", self._layers[number], number, number + 1, "workspace")
            for number, nbytes in taken.items()
            if nbytes > 0
        ]
        device = "" if self._device is None else str(self._device)
        return MemoryTrace(
            device,
            "estimated" if device == "meta" else "measured",
            self._workspaces is not None,
            (*seen, *extra),
            tuple(self._layers),
            tuple(self._phases),
            tuple(self.calls.spans),
            self._counted,
            None if self._counted is None else int(torch.cuda.memory_reserved(self._device)),
        )


def _owners(training: Training) -> dict[int, tuple[Any, str]]:
    """Parameters and buffers by identity, with the layer that holds each; those of a loss or another model have ""."""
    model = training.model
    named = [*model.named_parameters(), *model.named_buffers()]
    owners = {id(tensor): (tensor, name.rpartition(".")[0]) for name, tensor in named}
    groups = (group for optimizer in training.optimizers for group in optimizer.param_groups)
    return {id(one): (one, "") for group in groups for one in group["params"]} | owners


@contextmanager
def _profiled() -> Iterator[list[Any] | None]:
    """Yield what will hold the events of this thread in their order; None where this torch has no such profiler."""
    from torch import autograd

    try:
        from torch._C._profiler import _ExperimentalConfig

        config = autograd.ProfilerConfig(
            autograd.ProfilerState.CPU, False, True, False, False, False, _ExperimentalConfig()
        )
        autograd._enable_profiler_legacy(config)  # noqa: SLF001 - the others tell no order of events
    except (ImportError, AttributeError, TypeError):
        yield None
        return
    events: list[Any] = []
    try:
        yield events
    finally:
        for thread in autograd._disable_profiler_legacy():  # noqa: SLF001
            events += thread


def _workspaces_of(events: list[Any]) -> dict[int, int]:
    """What each operator took at most beyond what was left when it returned."""
    workspaces: dict[int, int] = {}
    number, depth, now, most = -1, 0, 0, 0
    for event in events:
        kind = event.kind()
        if kind == "push":
            depth += 1
            name = event.name()
            if name.startswith(MARK):
                number, depth, now, most = int(name.removeprefix(MARK)), 0, 0, 0
        elif kind == "pop":
            if number >= 0 and depth == 0:
                workspaces[number], number = most - max(now, 0), -1
            depth -= 1
        elif kind == "memory_alloc":
            now += event.cpu_memory_usage()
            most = max(most, now)
    return workspaces
