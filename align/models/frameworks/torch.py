"""PyTorch models: read, filled, run. torch is imported only inside the functions that need it."""

from __future__ import annotations

import copy
import re
import sys
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.layer_scripts import ScriptForms
from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict
from align.core.protocols import LayerSettings
from align.core.traces import Influences
from align.errors import MissingClassError, UserCodeError
from align.models.adapter_parts.torch.emulation import emulate, emulated_calls
from align.models.adapter_parts.torch.export_onnx import export_onnx
from align.models.adapter_parts.torch.functions import (
    TorchCallWatcher,
    captured_functions,
    compute_wide,
    replace_functions,
    round_at_random,
    seen_wide,
    shown_operators,
    watch_calls,
)
from align.models.adapter_parts.torch.gradients import differentiate, gradients, influences
from align.models.adapter_parts.torch.layers import (
    TorchOutliner,
    TorchSubstituter,
    built_module,
    copied_model,
    place_model,
    placed_layer,
    rebuilt_module,
    torch_memory,
    widened_model,
)
from align.models.adapter_parts.torch.loops import TorchLoopHost, TorchLoops, TorchLossScales
from align.models.adapter_parts.torch.optimizers import TorchOptimizers, group_settings, module_settings, public_classes
from align.models.adapter_parts.torch.state import (
    dtype_name,
    evaluated,
    fitted,
    is_scripted,
    loads_other_names,
    plain_tree,
    refuse_empty,
    refuse_program,
    refuse_shapeless,
    refuse_unrunnable,
    restored,
    to_array,
    to_tensor,
    writes,
)
from align.models.adapter_parts.torch.training import TorchTrainer
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
from align.rules.layer_rules import inputs_first
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from align.core.dtypes import Array, EmulatedCalls, Emulation
    from align.core.parameters import TensorMemory
    from align.core.protocols import Inputs, Model, Setting
    from align.core.traces import CaptureSink, CodeSeen
    from align.errors import AlignError

# How Python words it when a pickled class is not there.
MISSING_CLASS = re.compile(r"Can't get attribute '(?P<name>[^']+)' on <module '(?P<module>[^']+)'")
FORMS = ScriptForms(
    package="torch",
    method="forward",
    layer_at="model.get_submodule({})",
    tensor="torch.from_numpy({})",
    cast="{}.to(torch.{dtype})",
    array="{}.double().numpy()",
    fill="layer.load_state_dict({name: torch.from_numpy(weights[name]) for name in weights.files})",
    cast_layer="layer.to(torch.{dtype})",
    call="with torch.no_grad():\n    output = layer.eval()({})",
)


class TorchFramework(
    TorchCallWatcher,
    TorchLoops,
    TorchLoopHost,
    TorchLossScales,
    TorchOptimizers,
    TorchOutliner,
    TorchTrainer,
    TorchSubstituter,
):
    """Adapter of torch.nn.Module."""

    name = "torch"
    summary = "PyTorch models (torch.nn.Module)"
    requires = ("torch",)
    script_forms = FORMS

    def owns(self, model: Model) -> bool:
        """Tell whether the model is a torch.nn.Module; raises CannotRunError for a program of torch.export."""
        torch = sys.modules.get("torch")
        refuse_program(model)
        return torch is not None and isinstance(model, torch.nn.Module)

    def read_parameters(self, model: Model, label: str) -> ParameterSet:
        """Read names as in `state_dict()`, with module tree, ties and buffers; raises UnreadableModelError."""
        first_name: dict[int, str] = {}
        parameters: list[Parameter] = []
        modules: list[Module] = []
        persistent = _named_tensors(model)
        refuse_shapeless(persistent, label)
        for path, module in model.named_modules(remove_duplicate=False):
            own = [p for p in _own_parameters(path, module, first_name) if p.name in persistent]
            parameters += own
            classes = public_classes(type(module))
            modules.append(Module(path, classes, tuple(p.name for p in own), inputs_first(classes, module)))
        return ParameterSet(label, self.name, tuple(parameters), tuple(modules))

    def read_settings(self, model: Model) -> list[LayerSettings]:
        """Read the public attributes of every module, or the groups of an optimizer; see SettingsReader."""
        if self.is_optimizer(model):
            return group_settings(model)
        modules = model.named_modules(remove_duplicate=False)
        return [LayerSettings(path, public_classes(type(one)), module_settings(one)) for path, one in modules]

    def rebuilt(self, model: Model, path: str, changes: Mapping[str, Setting]) -> Model | None:
        """Rebuild a module on a copy; see LayerRebuilder."""
        layer = dict(model.named_modules()).get(path)
        if layer is None or is_scripted(layer):
            return None
        settings = LayerSettings(path, public_classes(type(layer)), module_settings(layer))
        return rebuilt_module(layer, settings, changes)

    def built(self, class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
        """Build a new layer; see LayerRebuilder."""
        return built_module(class_name, arguments)

    def read_values(self, model: Model) -> dict[str, Array]:
        """Copy out all parameters and persistent buffers by their `state_dict()` names."""
        return {name: to_array(value).copy() for name, value in _tensors(model).items()}

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill the model in place; raises InputsError listing names and shapes that differ.

        Values of other names are loaded as torch loads them: its layers know the names that they once had.
        """
        import torch

        tensors = _tensors(model)
        if tensors.keys() != values.keys() and loads_other_names(model, values):
            return
        check_state_dict({name: tuple(tensor.shape) for name, tensor in tensors.items()}, values, "torch model")
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(to_tensor(values[name]))

    def tensor_memory(self, model: Model) -> dict[str, TensorMemory]:
        """Find parameters and buffers in memory; see ModelCopier."""
        return torch_memory(model, to_array)

    def copied(self, model: Model) -> Model:
        """Copy a module with all that it holds; see ModelCopier."""
        return copied_model(model)

    def environment(self) -> dict[str, str]:
        """Versions, device and thread count."""
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        return {"torch": torch.__version__, "available device": device, "threads": str(torch.get_num_threads())}

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run a forward a batch without gradients; see ModelRunner. Raises CannotRunError for a TorchScript model."""
        import torch

        refuse_unrunnable(model)
        overwrite = Overwriter(lambda: (*model.parameters(), *model.buffers()))
        floats = "float64" if dtype_name(_sample(model)) == "float64" else "float32"
        recorder = CallRecorder(
            sink, self.as_array, lambda value, like: to_tensor(value).to(like), overwrite, writes, floats=floats
        )
        calls = bound_batches(model.forward, inputs, partial(_taken, model))
        call = root_call(model, recorder, stand_ins)
        seen = (one for one in model.named_modules() if not is_scripted(one[1]) and (one[0] or call is model))
        hooked = recorded_calls(seen, recorder, stand_ins or {}, "forward")
        with evaluated(model), hooked, torch.no_grad(), captured_functions(model, recorder), shown_operators(sink):
            run_on_batches(call, calls, recorder, self.name)

    def shows_operators(self) -> bool:
        """All are shown; see OperatorRunner."""
        return True

    @contextmanager
    def evaluating(self, model: Model, *, restores: bool = True) -> Iterator[None]:
        """Evaluate without gradients; see ModelCaller."""
        import torch

        refuse_unrunnable(model)
        with evaluated(model, restores=restores, compiled=True), torch.no_grad():
            yield

    def restoring(self, model: Model) -> AbstractContextManager[None]:
        """Put buffers and attributes back; see ModelCaller."""
        return restored(model)

    def as_tensor(self, value: Array, model: Model) -> Any:
        """Make a tensor that fits the model."""
        return fitted(to_tensor(value), _tensors(model).values())

    def as_array(self, value: Any) -> Array | None:
        """View a tensor as an array."""
        torch = sys.modules.get("torch")
        return to_array(value) if torch is not None and torch.is_tensor(value) else None

    def run_backward(self, model: Model, inputs: Mapping[str, Array], sink: CaptureSink) -> None:
        """Run one forward and back again; see BackwardRunner."""
        refuse_unrunnable(model)
        tensors = {name: self.as_tensor(value, model) for name, value in inputs.items()}
        args, kwargs = bind_inputs(model.forward, tensors)
        forms = to_array, lambda value, like: to_tensor(value).to(like)
        code = partial(differentiate, model, partial(model, *args, **kwargs), [*tensors.values()], sink, forms)
        with evaluated(model):
            run_user_code(code, partial(UserCodeError, "the backward pass of the torch model"))

    def export_onnx(
        self, model: Model, inputs: Mapping[str, Array], path: Path, options: Mapping[str, str | int | None]
    ) -> None:
        """Write an ONNX file in evaluation mode; see ModelExporter."""
        refuse_unrunnable(model)
        tensors = {name: _taken(model, value) for name, value in inputs.items()}
        with evaluated(model):
            export_onnx(model, bind_inputs(model.forward, tensors), [*tensors], path, options)

    def place(self, model: Model, device: str | None, dtype: str | None) -> None:
        """Move and cast a module in place; see ModelPlacer."""
        place_model(model, device, dtype)

    def placed_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Make a module's stand-in elsewhere; see ModelPlacer."""
        return placed_layer(model.get_submodule(path), device, dtype)

    def widened(self, model: Model) -> Model | None:
        """Return a float64 copy; floating inputs follow the model's dtype. Raises UserCodeError if it has no copy."""
        wide = _widened(model, "double")
        compute_wide(wide)
        return wide

    def code_seen(self, model: Model) -> CodeSeen:
        """Tell what the code of a widened model did; see PrecisionRunner."""
        return seen_wide(model)

    def cast_copy(self, model: Model, dtype: str) -> Model:
        """Copy and cast; see PrecisionRunner."""
        return _widened(model, {"float16": "half"}.get(dtype, dtype))

    def rounded_at_random(self, model: Model, seed: int) -> Model:
        """Copy, and watch each operation; see PrecisionRunner."""
        copied = _copied(model)
        round_at_random(copied, seed)
        return copied

    def with_functions(self, model: Model, functions: Mapping[str, Callable[[Array, Array], Array]]) -> Model:
        """Copy, and replace what these operations return; see PrecisionRunner."""
        copied = _copied(model)
        replace_functions(copied, functions)
        return copied

    def emulated(self, model: Model, emulation: Emulation) -> Model:
        """Copy, and round in operators; see ChipEmulator."""
        copied = _copied(model)
        emulate(copied, emulation)
        return copied

    def emulated_calls(self, model: Model) -> tuple[EmulatedCalls, ...]:
        """What was rounded; see ChipEmulator."""
        return emulated_calls(model)

    def watched(self, model: Model) -> Model:
        """Copy, and see which names its code calls; see CallWatcher."""
        copied = _copied(model)
        watch_calls(copied)
        return copied

    def influences(self, model: Model, inputs: Mapping[str, Array]) -> Influences | None:
        """Differentiate a float64 copy, or a float32 one where a kernel is missing; see Differentiator."""
        for width in ("double", "float"):
            with suppress(UserCodeError):
                wide, found = _differentiated(model, inputs, width, influences)
                return Influences(wide, *found)
        return None

    def gradients(self, model: Model, inputs: Inputs, scales: Mapping[str, float]) -> dict[str, Array]:
        """Differentiate a float32 copy, of a float64 model a float64 one; see Differentiator."""
        width = "double" if dtype_name(_sample(model)) == "float64" else "float"  # float64 takes many times as long
        wide, found = _differentiated(model, inputs, width, partial(gradients, scales=scales))
        own = dict(wide.named_parameters())
        zeros = {name: np.broadcast_to(0.0, own[name].shape) for name in found}
        return {name: zeros[name] if one is None else to_array(one) for name, one in found.items()}

    def load_trusted(self, path: Path) -> Any:
        """Load with `torch.load`, which runs what the file names; see TrustedLoader."""
        import torch

        def load() -> Any:
            return plain_tree(torch.load(path, map_location="cpu", weights_only=False), "", {})

        return run_user_code(load, partial(_load_failed, path))


def _differentiated(model: Model, inputs: Inputs, width: str, code: Callable[..., Any]) -> Any:
    """A copy of this width, and what `code(copy, call)` gives, where `call` runs it; raises UserCodeError."""
    wide = _widened(model, width)
    calls = bound_batches(wide.forward, inputs, lambda value: fitted(to_tensor(value), _tensors(wide).values()))

    def call() -> Any:
        returned = [wide(*args, **kwargs) for _, args, kwargs in calls]
        return returned[0] if len(returned) == 1 else returned

    failed = partial(UserCodeError, "the backward pass of the torch model")
    with evaluated(wide):
        return wide, run_user_code(partial(code, wide, call), failed)


def _copied(model: Model) -> Model:
    return run_user_code(partial(copy.deepcopy, model), partial(UserCodeError, "copying the torch model"))


def _widened(model: Model, width: str) -> Model:
    return run_user_code(partial(widened_model, model, width), partial(UserCodeError, "copying the torch model"))


def _sample(model: Model) -> Any:
    """Return a tensor of the model's floating dtype and of its device; an integer buffer may come first."""
    import torch

    tensors = list(_tensors(model).values())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), (tensors or [torch.empty(0)])[0])


def _tensors(model: Model) -> dict[str, Any]:
    tensors = _named_tensors(model)
    refuse_empty(tensors)
    return tensors


def _taken(model: Model, value: Array) -> Any:
    """An input of a run, in a dtype of the model: its own if the model has it."""
    return fitted(to_tensor(value), _tensors(model).values(), keeps=True)


def _named_tensors(model: Model) -> dict[str, Any]:
    import torch

    return {name: value for name, value in model.state_dict(keep_vars=True).items() if torch.is_tensor(value)}


def _own_parameters(path: str, module: Model, first_name: dict[int, str]) -> Iterator[Parameter]:
    prefix = f"{path}." if path else ""
    own = [(name, value, False) for name, value in module.named_parameters(recurse=False, remove_duplicate=False)]
    own += [(name, value, True) for name, value in module.named_buffers(recurse=False, remove_duplicate=False)]
    for attribute, tensor, buffer in own:
        name = prefix + attribute
        tied_to = first_name.setdefault(id(tensor), name)
        yield Parameter(
            name=name,
            shape=tuple(tensor.shape),
            dtype=dtype_name(tensor),
            module=path,
            attribute=attribute,
            trainable=not buffer and bool(tensor.requires_grad),
            buffer=buffer,
            tied_to=tied_to if tied_to != name else None,
        )


def _load_failed(path: Path, error: BaseException) -> AlignError:
    if isinstance(error, ImportError):
        return MissingClassError(path, say("torch_file.module", name=error.name), str(error))
    if isinstance(error, AttributeError) and (found := MISSING_CLASS.search(str(error))):
        return MissingClassError(path, f"{found['module']}.{found['name']}", say("torch_file.no_such_name"))
    return UserCodeError(say("torch_file.loading", path=path), error)


PLUGIN = TorchFramework()
