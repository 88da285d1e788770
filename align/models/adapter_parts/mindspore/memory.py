"""MindSpore's part of tracing memory: see MemoryTracer.

On the processor it has no statistics of memory, and nothing tells how long a tensor lives. So the trace is an estimate:
a dispatch mode sees each operator of the way forward with its tensors; `mappings/kept_tensors.toml` says what of these
the way back needs; that way is taken to go through the operators in reverse, a gradient for each tensor. On a device
the peak is also counted by its allocator.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.memory import Allocation, MemoryTrace, ModuleSpan
from align.models.adapter_parts.batches import replaced
from align.models.adapter_parts.mindspore.layers import launched, named_tensors
from align.models.live_calls import leaves
from align.models.loop_watcher import LoopHooks, SpanRecorder
from align.rules.training_rules import kept_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.memory import MemoryKind, MemoryPhase
    from align.core.protocols import Batch
    from align.core.training import Training


def trace_memory(adapter: Any, training: Training, batch: Batch) -> MemoryTrace:
    """Look at one step, and make a trace of what its operators need; see MemoryTracer."""
    with adapter.bare_steps(training, batch) as (step, given):
        step()
        runtime = launched().runtime
        on_processor = launched().get_context("device_target") == "CPU"
        if not on_processor:
            runtime.reset_peak_memory_stats()
        seen = OperatorsSeen(training)
        hooks = LoopHooks(seen.calls, adapter.loop_forms, backward=False)
        seen.hooks = hooks
        with ExitStack() as stack:
            stack.enter_context(hooks.on_modules(adapter.loop_modules(training.model)))
            stack.enter_context(adapter.operators(seen))
            executor = type(sys.modules["mindspore.ops.composite.base"]._pynative_executor)  # noqa: SLF001
            stack.enter_context(replaced([(executor, "grad", partial(_turning, seen))]))
            step()
        counted = None if on_processor else (int(runtime.max_memory_allocated()), int(runtime.max_memory_reserved()))
        return _estimated(seen, training, given, counted)


def watch_memory(
    adapter: Any, training: Training, batch: Batch, steps: int, ended: Callable[[int, int | None], None]
) -> MemoryTrace | None:
    """Ask a device for its bytes after each step; see MemoryTracer."""
    with adapter.bare_steps(training, batch) as (step, _given):
        on_processor = launched().get_context("device_target") == "CPU"
        for number in range(steps):
            step()
            ended(number, None if on_processor else int(launched().runtime.memory_allocated()))
    return None


def _turning(seen: OperatorsSeen, grad: Callable[..., Any]) -> Callable[..., Any]:
    """Let the way back be known when it begins."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.turned = True
        return grad(*args, **kwargs)

    return noted


@dataclass
class _Buffer:
    """Memory of a tensor: the operators that made it, used it last, and keep it first."""

    nbytes: int
    layer: str
    maker: int
    last: int
    made: str
    floating: bool
    kept_by: int | None = None
    known: bool = False  # a parameter, or what the step is given


@dataclass
class OperatorsSeen:
    """An OperatorSink that follows tensors of the way forward; views, which begin at the same address, count once."""

    training: Training
    turned: bool = False
    hooks: LoopHooks | None = None
    layers: list[str] = field(default_factory=list)
    buffers: list[_Buffer] = field(default_factory=list)
    used_at: dict[int, int] = field(default_factory=dict)  # the operator that takes a parameter first, by its address

    def __post_init__(self) -> None:
        """Know the parameters."""
        self._places: dict[int, int] = {}
        self.parameters = {tensor.data_ptr() for tensor in _held(self.training).values()}
        self.calls = SpanRecorder(lambda: len(self.layers), self._place_of, lambda: not self.turned)

    def _place_of(self, value: Any) -> int | None:
        return self._places.get(value.data_ptr()) if isinstance(value, launched().Tensor) else None

    def computed(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Note an operator of the way forward."""
        if self.turned:
            return
        number = len(self.layers)
        running = self.hooks.running if self.hooks else []
        self.layers.append(running[-1][0].path if running else "")
        given = [self._given(tensor, number) for tensor in _tensors((args, kwargs))]
        taken = {tensor.data_ptr() for tensor in _tensors((args, kwargs))}
        returned = [self._returned(tensor, name, number, taken) for tensor in _tensors(output)]
        self._keep(kept_tensors().get(name, "given"), number, given, returned)

    def applied(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Take what a function of the user's own is given to be kept."""
        self.computed(name, args, kwargs, output)

    def _given(self, tensor: Any, number: int) -> _Buffer | None:
        address = tensor.data_ptr()
        if address in self.parameters:
            self.used_at.setdefault(address, number)
            return None
        place = self._places.get(address)
        if place is None:
            return None
        self.buffers[place].last = number
        return self.buffers[place]

    def _returned(self, tensor: Any, name: str, number: int, taken: set[int]) -> _Buffer | None:
        address = tensor.data_ptr()
        if address in self.parameters:
            return None
        if address not in taken or address not in self._places:
            shape = ",".join(map(str, tensor.shape))
            made = f"{name} {str(tensor.dtype).lower()}[{shape}]"
            self._places[address] = len(self.buffers)
            floating = bool(tensor.is_floating_point())
            self.buffers.append(_Buffer(int(tensor.nbytes), self.layers[-1], number, number, made, floating))
        return self.buffers[self._places[address]]

    def _keep(self, kept: str, number: int, given: list[_Buffer | None], returned: list[_Buffer | None]) -> None:
        if kept == "nothing":
            return
        needed = returned if kept == "returned" else [*given, *returned[1:]]
        for one in needed:
            if one is not None and one.kept_by is None:
                one.kept_by = number


def _tensors(value: Any) -> Iterator[Any]:
    kind = launched().Tensor
    return (leaf for _, leaf in leaves(value) if isinstance(leaf, kind))


def _held(training: Training) -> dict[str, Any]:
    """Parameters and buffers of the model, and parameters of its loss that an optimizer holds."""
    tensors = dict(named_tensors(training.model))
    known = {id(one) for one in tensors.values()}
    others = (one for optimizer in training.optimizers for one in optimizer.parameters if id(one) not in known)
    return tensors | {f" {one.name}": one for one in others}


def _estimated(
    seen: OperatorsSeen, training: Training, given: Mapping[str, Any], counted: tuple[int, int] | None
) -> MemoryTrace:
    """A trace of forward operators, the same in reverse, and buffer for the update."""
    count = len(seen.layers)
    turned = 2 * count - 1  # the operator behind it of which a `number` on the way back stands for that forward
    allocations = [_of_buffer(buffer, seen.layers, turned) for buffer in seen.buffers]
    allocations += [
        Allocation(
            buffer.nbytes,
            "temporaries",
            buffer.layer,
            turned - buffer.last,
            turned - buffer.maker + 1,
            f"gradient {buffer.made}",
        )
        for buffer in seen.buffers
        if buffer.floating and buffer.last > buffer.maker
    ]
    allocations += _of_weights(seen, training, turned)
    allocations += [_whole(tensor, "inputs", "") for tensor in _tensors(dict(given))]
    way: tuple[MemoryPhase, ...] = ("forward", "backward")
    phases = (*(phase for phase in way for _ in range(count)), "optimizer")
    layers = (*seen.layers, *reversed(seen.layers), "")
    spans = tuple(_within(span, count) for span in seen.calls.spans)
    return MemoryTrace(
        launched().get_context("device_target"),
        "estimated",
        False,
        tuple(allocations),
        layers,
        phases,
        spans,
        *(counted or (None, None)),
    )


def _within(span: ModuleSpan, count: int) -> ModuleSpan:
    return span if span.end <= count else ModuleSpan(span.path, span.class_name, span.begin, count, span.returned)


def _of_buffer(buffer: _Buffer, layers: list[str], turned: int) -> Allocation:
    if buffer.kept_by is None:
        return Allocation(buffer.nbytes, "temporaries", buffer.layer, buffer.maker, buffer.last + 1, buffer.made)
    layer = layers[buffer.kept_by]
    return Allocation(buffer.nbytes, "activations", layer, buffer.maker, turned - buffer.kept_by + 1, buffer.made)


def _of_weights(seen: OperatorsSeen, training: Training, turned: int) -> Iterator[Allocation]:
    """Weights, their gradients from where the way back reaches them, and the state that optimizers keep for each."""
    tensors = _held(training)
    trained = {id(buffer) for optimizer in training.optimizers for buffer in optimizer.parameters}
    for name, tensor in tensors.items():
        layer = name.rpartition(".")[0].strip()
        yield _whole(tensor, "weights", layer)
        if id(tensor) in trained:
            begin = turned - seen.used_at.get(tensor.data_ptr(), 0)
            yield Allocation(int(tensor.nbytes), "gradients", layer, max(begin, 0))
    known = {id(buffer) for buffer in tensors.values()}
    for optimizer in training.optimizers:
        for state in optimizer.get_parameters():
            if id(state) not in known:
                known.add(id(state))
                yield _whole(state, "state", _layer_of_state(state.name, tensors))


def _layer_of_state(name: str, tensors: Mapping[str, Any]) -> str:
    """The layer of the parameter whose name ends that of a state (`adam_m.head.weight`), "" for a count."""
    parts = name.split(".")
    ends = (".".join(parts[place:]) for place in range(1, len(parts)))
    return next((end.rpartition(".")[0] for end in ends if end in tensors), "")


def _whole(tensor: Any, kind: MemoryKind, layer: str) -> Allocation:
    return Allocation(int(tensor.nbytes), kind, layer, 0)
