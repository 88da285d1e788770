"""MindSpore networks: read, filled, run in PYNATIVE mode. MindSpore is imported only inside functions.

Its cells print a traceback each when the interpreter ends, because their destructor outlives the module that it
needs; the destructor (it only counts instances) is taken away at exit.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from align.core.layer_scripts import ScriptForms
from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict
from align.core.protocols import LayerSettings
from align.errors import UnreadableModelError, UserCodeError
from align.models.adapter_parts.mindspore.functions import (
    captured_operators,
    elementwise_functions,
    shown_operators,
    shows_operators,
)
from align.models.adapter_parts.mindspore.layers import (
    MindSporeSubstituter,
    built_cell,
    copied_network,
    in_mode,
    jitted_code,
    layer_by_layer,
    mindspore_memory,
    place_network,
    placed_cell,
    rebuilt_cell,
)
from align.models.adapter_parts.mindspore.loops import MindSporeLoopHost, MindSporeLoops, MindSporeLossScales
from align.models.adapter_parts.mindspore.optimizers import MindSporeOptimizers, cell_settings, public_classes
from align.models.adapter_parts.mindspore.state import (
    evaluated,
    fill,
    fitted,
    floating_dtype,
    launched,
    named_tensors,
    random_numbers_kept,
    restored,
    to_array,
    to_tensor,
)
from align.models.adapter_parts.mindspore.training import MindSporeTrainer, differentiate
from align.models.record_calls import (
    CallRecorder,
    bind_inputs,
    bound_batches,
    recorded_calls,
    root_call,
    run_on_batches,
)
from align.models.restore_state import Overwriter
from align.models.user_code import run_user_code
from align.rules.layer_rules import inputs_first, is_statistic
from align.words.catalogue import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from align.core.dtypes import Array
    from align.core.parameters import TensorMemory
    from align.core.protocols import Inputs, Model, Setting
    from align.core.traces import CaptureSink

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

    def built(self, class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
        """Build a new cell; see LayerRebuilder."""
        with random_numbers_kept():
            return built_cell(class_name, arguments)

    def read_values(self, model: Model) -> dict[str, Array]:
        """Copy out all parameters and buffers by name."""
        return {name: to_array(tensor).copy() for name, tensor in named_tensors(model).items()}

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill the network in place; raises InputsError listing names and shapes that differ."""
        tensors = named_tensors(model)
        check_state_dict({name: tuple(tensor.shape) for name, tensor in tensors.items()}, values, "MindSpore network")
        for name, tensor in tensors.items():
            fill(tensor, values[name])

    def tensor_memory(self, model: Model) -> dict[str, TensorMemory]:
        """Find parameters and buffers in memory; see ModelCopier."""
        return mindspore_memory(model, to_array)

    def copied(self, model: Model) -> Model:
        """Copy a network but not its operators; see ModelCopier."""
        return copied_network(model)

    def environment(self) -> dict[str, str]:
        """Version, device target and mode."""
        mindspore = launched()
        graph = self._graph or mindspore.get_context("mode") == mindspore.GRAPH_MODE
        target, mode = mindspore.get_context("device_target"), "GRAPH" if graph else "PYNATIVE"
        return {"mindspore": mindspore.__version__, "device": target, "mode": mode}

    def place(self, model: Model, device: str | None, dtype: str | None) -> None:
        """Choose the device of the process, and cast the network in place; see ModelPlacer."""
        place_network(model, device, dtype)

    def placed_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Make a cell's stand-in in another precision; see ModelPlacer."""
        return placed_cell(dict(model.cells_and_names())[path], device, dtype)

    def functions(self) -> Mapping[str, Callable[[Array], Array]]:
        """Functions of mindspore.ops; see FunctionSource."""
        return elementwise_functions()

    def in_graph_mode(self) -> MindSporeFramework:
        """Return an adapter that runs networks compiled; see GraphRunner."""
        return MindSporeFramework(graph=True)

    def jitted_code(self, model: Model) -> tuple[str, ...]:
        """Name what `mindspore.jit` compiles; see GraphRunner."""
        return jitted_code(model)

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run a forward a batch in evaluation mode; see ModelRunner. Hooks need PYNATIVE mode, which is set."""
        overwrite = Overwriter(lambda: named_tensors(model).values())
        recorder = CallRecorder(
            sink,
            self.as_array,
            lambda value, like: to_tensor(value).astype(like.dtype),
            overwrite,
            floats="float64" if floating_dtype(model) == launched().float64 else "float32",
        )
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

    def restoring(self, model: Model) -> AbstractContextManager[None]:
        """Put buffers and attributes back; see ModelCaller."""
        return restored(model)

    def as_tensor(self, value: Array, model: Model) -> Any:
        """Make a tensor that fits the model."""
        return fitted(to_tensor(value), model)

    def as_array(self, value: Any) -> Array | None:
        """Copy a tensor out."""
        mindspore = sys.modules.get("mindspore")
        return to_array(value) if mindspore is not None and isinstance(value, mindspore.Tensor) else None

    def run_backward(self, model: Model, inputs: Mapping[str, Array], sink: CaptureSink) -> None:
        """Run one forward and back again; see BackwardRunner."""
        tensors = {name: self.as_tensor(value, model) for name, value in inputs.items()}

        def call(given: Mapping[str, Any]) -> Any:
            args, kwargs = bind_inputs(model.construct, given)
            return model(*args, **kwargs)

        forms = to_array, lambda value, like: to_tensor(value).astype(like.dtype)
        with in_mode(graph=False), layer_by_layer(graph=False), evaluated(model):
            code = partial(differentiate, model, call, tensors, sink, forms)
            run_user_code(code, partial(UserCodeError, "the backward pass of the MindSpore network"))

    def widened(self, model: Model) -> Model | None:  # noqa: ARG002
        """Return None: many CPU and all Ascend kernels of MindSpore have no float64."""
        return None


def _refuse_doubled(places: Iterable[tuple[str, str]], label: str) -> None:
    """Raise UnreadableModelError, given the name and place of every tensor, if some have one name."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, place in places:
        by_name[name].append(place)
    if doubled := [f"{name}: {', '.join(own)}" for name, own in by_name.items() if len(own) > 1]:
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
