"""MindSpore networks: read, filled, run in PYNATIVE mode. MindSpore is imported only inside functions.

Its cells print a traceback each when the interpreter ends, because their destructor outlives the module that it
needs; the destructor (it only counts instances) is taken away at exit.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.align_sequences import grouped
from align.core.layer_scripts import ScriptForms
from align.core.memory import Allocation, MemoryTrace, ModuleSpan
from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict
from align.core.protocols import LayerSettings
from align.errors import UnreadableModelError, UserCodeError
from align.models.adapter_parts.batches import replaced
from align.models.adapter_parts.mindspore import layers, loops
from align.models.adapter_parts.mindspore.layers import (
    MindSporeSubstituter,
    array_of,
    evaluated,
    fill,
    fitted,
    floating_dtype,
    in_mode,
    launched,
    layer_by_layer,
    named_tensors,
    random_numbers_kept,
    rebuilt_cell,
    restored,
    tensor_like,
    to_array,
    to_tensor,
)
from align.models.adapter_parts.mindspore.loops import (
    MindSporeLoopHost,
    MindSporeLoops,
    MindSporeLossScales,
    captured_operators,
    shown_operators,
    shows_operators,
)
from align.models.adapter_parts.mindspore.optimizers import MindSporeOptimizers, cell_settings, public_classes
from align.models.adapter_parts.mindspore.training import MindSporeTrainer, differentiate
from align.models.inputs import MadeArrays
from align.models.live_calls import leaves
from align.models.loop_watcher import LoopHooks, SpanRecorder
from align.models.record_calls import (
    CallRecorder,
    bind_inputs,
    bound_batches,
    recorded_calls,
    root_call,
    run_on_batches,
)
from align.models.user_code import Overwriter, run_user_code
from align.rules.layer_rules import inputs_first, is_statistic
from align.rules.training_rules import kept_tensors
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from align.core.memory import MemoryKind, MemoryPhase
    from align.core.parameters import Array
    from align.core.protocols import Batch, Inputs, Model, Setting
    from align.core.traces import CaptureSink
    from align.core.training import Training

FORMS = ScriptForms(
    package="mindspore",
    method="construct",
    layer_at="dict(model.cells_and_names())[{}]",
    tensor="mindspore.Tensor({})",
    cast="{}.astype(mindspore.{dtype})",
    array="{}.astype(mindspore.float64).asnumpy()",
    fill="""\
tensors = [*layer.get_parameters(), *(buffer for _, buffer in layer.named_buffers())]
for tensor, name in zip(tensors, weights.files, strict=True):
    tensor.assign_value(mindspore.Tensor(weights[name]).astype(tensor.dtype))""",
    cast_layer="for tensor in tensors:\n    tensor.set_dtype(mindspore.{dtype})",
    call="output = layer.set_train(False)({})",
)


class MindSporeFramework(
    MindSporeLoops, MindSporeLoopHost, MindSporeLossScales, MindSporeOptimizers, MindSporeTrainer, MindSporeSubstituter
):
    """Adapter of mindspore.nn.Cell."""

    name = "mindspore"
    summary = "MindSpore networks (mindspore.nn.Cell)"
    requires = ("mindspore",)
    script_forms = FORMS
    # What one function does as a whole: the protocols say of each name what it is.
    built = staticmethod(layers.built_cell)
    tensor_memory = staticmethod(layers.mindspore_memory)
    copied = staticmethod(layers.copied_network)
    place = staticmethod(layers.place_network)
    placed_layer = staticmethod(layers.placed_cell)
    restoring = staticmethod(restored)
    as_array = staticmethod(array_of)
    jitted_code = staticmethod(layers.jitted_code)
    functions = staticmethod(loops.elementwise_functions)

    def __init__(self, *, graph: bool = False) -> None:
        self._graph = graph

    def owns(self, model: Model) -> bool:
        """Tell whether the model is a mindspore.nn.Cell."""
        mindspore = sys.modules.get("mindspore")
        return mindspore is not None and isinstance(model, mindspore.nn.Cell)

    def prepare(self) -> None:
        """Let a failing operator be reported at once; see Preparer. The variable is read when MindSpore is imported."""
        os.environ.setdefault("MS_DEV_LAUNCH_BLOCKING", "1")
        if "mindspore" in sys.modules:
            launched()

    def read_parameters(self, model: Model, label: str) -> ParameterSet:
        """Read names as in a `.ckpt`, that is `Parameter.name`, which need not be the cell's path.

        Raises UnreadableModelError where two tensors have one name.
        """
        seen: dict[int, list[str]] = {}  # a tied parameter is one Parameter with one name, whatever cells hold it
        parameters: list[Parameter] = []
        modules: list[Module] = []
        for path, cell in model.cells_and_names():
            classes = public_classes(type(cell))
            own = list(_own_parameters(path, cell, classes, seen))
            parameters += own
            modules.append(Module(path, classes, tuple(p.name for p in own), inputs_first(classes, cell)))
        _refuse_doubled(((p.name, f"{p.module}.{p.attribute}".removeprefix(".")) for p in parameters), label)
        shared = tuple((place, name) for name, *places in seen.values() for place in places)
        return ParameterSet(label, self.name, tuple(parameters), tuple(modules), shared=shared)

    def trace_memory(self, training: Training, batch: Batch) -> MemoryTrace:
        """Trace a step; see MemoryTracer. Few commands do, so what does it is imported here."""
        from align.models.frameworks.mindspore import trace_memory

        return trace_memory(self, training, batch)

    def watch_memory(
        self, training: Training, batch: Batch, steps: int, ended: Callable[[int, int | None], None]
    ) -> MemoryTrace | None:
        """Take steps, and tell what lives after each; see MemoryTracer."""
        from align.models.frameworks.mindspore import watch_memory

        return watch_memory(self, training, batch, steps, ended)

    def read_settings(self, model: Model) -> list[LayerSettings]:
        """Read the attributes and operators of every cell, or the groups of an optimizer; see SettingsReader."""
        if self.is_optimizer(model):
            return [group.settings for group in self.read_groups(model, None, (), 1)]
        cells = model.cells_and_names()
        return [LayerSettings(path, public_classes(type(cell)), cell_settings(cell)) for path, cell in cells]

    def rebuilt(self, model: Model, path: str, changes: Mapping[str, Setting]) -> Model | None:
        """Rebuild a cell, and with it its operators, on a copy; see LayerRebuilder."""
        cell = dict(model.cells_and_names()).get(path)
        if cell is None:
            return None
        settings = LayerSettings(path, public_classes(type(cell)), cell_settings(cell))
        with random_numbers_kept():
            return rebuilt_cell(cell, settings, changes)

    def read_values(self, model: Model) -> dict[str, Array]:
        """Copy out all parameters and buffers by name."""
        return {name: to_array(tensor).copy() for name, tensor in named_tensors(model).items()}

    def live_values(self, model: Model) -> Mapping[str, Array]:
        """Look at them, without a copy on the CPU; see ValueLender."""
        return MadeArrays({name: partial(to_array, tensor) for name, tensor in named_tensors(model).items()})

    def put_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill some; see ValueLender."""
        tensors = named_tensors(model)
        for name, value in values.items():
            fill(tensors[name], value)

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill the network in place; raises InputsError listing names and shapes that differ."""
        tensors = named_tensors(model)
        check_state_dict({name: tuple(tensor.shape) for name, tensor in tensors.items()}, values, "MindSpore network")
        for name, tensor in tensors.items():
            fill(tensor, values[name])

    def environment(self) -> dict[str, str]:
        """Version, device target and mode."""
        mindspore = launched()
        graph = self._graph or mindspore.get_context("mode") == mindspore.GRAPH_MODE
        target, mode = mindspore.get_context("device_target"), "GRAPH" if graph else "PYNATIVE"
        return {"mindspore": mindspore.__version__, "device": target, "mode": mode}

    def in_graph_mode(self) -> MindSporeFramework:
        """Return an adapter that runs networks compiled; see GraphRunner."""
        return MindSporeFramework(graph=True)

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run a forward a batch in evaluation mode; see ModelRunner. Hooks need PYNATIVE mode, which is set."""
        overwrite = Overwriter(lambda: named_tensors(model).values())
        floats = "float64" if floating_dtype(model) == launched().float64 else "float32"
        recorder = CallRecorder(sink, array_of, tensor_like, overwrite, floats=floats)
        calls = bound_batches(model.construct, inputs, lambda value: fitted(to_tensor(value), model, keeps=True))
        call = root_call(model, recorder, stand_ins, compiled=self._graph)
        cells = () if self._graph else (one for one in model.cells_and_names() if one[0] or call is model)
        hooked = recorded_calls(cells, recorder, stand_ins or {}, "construct")
        eager = layer_by_layer(graph=self._graph)
        seen = captured_operators(model, recorder), shown_operators(sink)
        with in_mode(graph=self._graph), eager, evaluated(model), hooked, seen[0], seen[1]:
            run_on_batches(call, calls, recorder, "MindSpore")

    def shows_operators(self) -> bool:
        """Operators are shown where they run one by one; see OperatorRunner."""
        return not self._graph and shows_operators()

    @contextmanager
    def evaluating(self, model: Model, *, restores: bool = True) -> Iterator[None]:
        """Evaluate in PYNATIVE mode; see ModelCaller."""
        with in_mode(graph=False), evaluated(model, restores=restores):
            yield

    def as_tensor(self, value: Array, model: Model) -> Any:
        """Make a tensor that fits the model."""
        return fitted(to_tensor(value), model)

    def run_backward(self, model: Model, inputs: Mapping[str, Array], sink: CaptureSink) -> None:
        """Run one forward and back again; see BackwardRunner."""
        tensors = {name: self.as_tensor(value, model) for name, value in inputs.items()}

        def call(given: Mapping[str, Any]) -> Any:
            args, kwargs = bind_inputs(model.construct, given)
            return model(*args, **kwargs)

        with in_mode(graph=False), layer_by_layer(graph=False), evaluated(model):
            code = partial(differentiate, model, call, tensors, sink)
            run_user_code(code, partial(UserCodeError, "the backward pass of the MindSpore network"))

    def widened(self, model: Model) -> Model | None:  # noqa: ARG002
        """Return None: many CPU and all Ascend kernels of MindSpore have no float64."""
        return None


def _refuse_doubled(places: Iterable[tuple[str, str]], label: str) -> None:
    """Raise UnreadableModelError, given the name and place of every tensor, if some have one name."""
    if doubled := [f"{name}: {', '.join(several)}" for name, several in grouped(places).items() if len(several) > 1]:
        raise UnreadableModelError(*texts("mindspore_model.name_twice", label=label), lines=doubled)


def _own_parameters(
    path: str, cell: Model, classes: tuple[str, ...], seen: dict[int, list[str]]
) -> Iterator[Parameter]:
    prefix = f"{path}." if path else ""
    own = [(attribute, tensor.name, tensor, False) for attribute, tensor in cell.parameters_and_names(expand=False)]
    own += [(attribute, prefix + attribute, tensor, True) for attribute, tensor in cell.named_buffers(recurse=False)]
    for attribute, name, tensor, buffer in own:
        if id(tensor) in seen:
            seen[id(tensor)].append(prefix + attribute)
        else:
            seen[id(tensor)] = [name]
            yield Parameter(
                name=name,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).lower(),
                module=path,
                attribute=attribute.rpartition(".")[2],
                trainable=not buffer and bool(tensor.requires_grad),
                buffer=buffer or is_statistic(classes, attribute),
            )


@atexit.register
def _silence_cell_destructors() -> None:
    mindspore = sys.modules.get("mindspore")
    cell = getattr(getattr(mindspore, "nn", None), "Cell", None)
    if cell is not None and "__del__" in vars(cell):
        del cell.__del__


PLUGIN = MindSporeFramework()


# MindSpore's part of tracing memory: see MemoryTracer.


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
