"""PyTorch models: read, filled, run. torch is imported only inside the functions that need it."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.layer_scripts import ScriptForms
from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict
from align.core.protocols import LayerSettings
from align.core.thresholds import FLOAT64_ROUNDING
from align.core.traces import Influences, capture_key
from align.errors import MissingClassError, UserCodeError
from align.models.adapter_parts.torch import emulation, functions, layers
from align.models.adapter_parts.torch.emulation import emulate
from align.models.adapter_parts.torch.functions import (
    captured_functions,
    compute_wide,
    replace_functions,
    round_at_random,
    shown_operators,
    watch_calls,
)
from align.models.adapter_parts.torch.layers import TorchOutliner, TorchSubstituter, export_onnx, widened_model
from align.models.adapter_parts.torch.lent_parameters import GradientStream, copy_lent
from align.models.adapter_parts.torch.loops import TorchLoopHost, TorchLoops, TorchLossScales
from align.models.adapter_parts.torch.state import (
    TorchOptimizers,
    array_of,
    dtype_name,
    evaluated,
    fitted,
    group_settings,
    is_scripted,
    loads_other_names,
    module_settings,
    plain_tree,
    public_classes,
    real_numbers,
    refuse_empty,
    refuse_program,
    refuse_shapeless,
    refuse_unrunnable,
    restored,
    tensor_like,
    to_array,
    to_tensor,
    writes,
)
from align.models.adapter_parts.torch.training import TorchTrainer, differentiate
from align.models.inputs import MadeArrays
from align.models.live_calls import leaves
from align.models.record_calls import (
    CallRecorder,
    bind_inputs,
    bound_batches,
    recorded_calls,
    root_call,
    run_on_batches,
)
from align.models.thresholds import INFLUENCE_ROUNDING_UNITS, SEED
from align.models.user_code import Overwriter, run_user_code
from align.rules.layer_rules import inputs_first
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from align.core.memory import MemoryTrace
    from align.core.parameters import Array, Emulation
    from align.core.protocols import Batch, Inputs, Model
    from align.core.traces import CaptureSink
    from align.core.training import Training
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
    # What one function does as a whole: the protocols say of each name what it is.
    rebuilt = staticmethod(layers.rebuilt_module)
    built = staticmethod(layers.built_module)
    tensor_memory = staticmethod(layers.torch_memory)
    copied = staticmethod(layers.copied_model)
    place = staticmethod(layers.place_model)
    placed_layer = staticmethod(layers.placed_layer)
    restoring = staticmethod(restored)
    as_array = staticmethod(array_of)
    code_seen = staticmethod(functions.seen_wide)
    emulated_calls = staticmethod(emulation.emulated_calls)
    watched_calls = staticmethod(functions.watched_calls)
    called_layers = staticmethod(functions.called_layers)
    public_name = staticmethod(functions.name_of)

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

    def trace_memory(self, training: Training, batch: Batch) -> MemoryTrace:
        """Trace a step; see MemoryTracer. Few commands do, so what does it is imported here."""
        from align.models.adapter_parts.torch.memory import trace_memory

        return trace_memory(self, training, batch)

    def watch_memory(
        self, training: Training, batch: Batch, steps: int, ended: Callable[[int, int | None], None]
    ) -> MemoryTrace | None:
        """Take steps, and tell what lives after each; see MemoryTracer."""
        from align.models.adapter_parts.torch.memory import watch_memory

        return watch_memory(self, training, batch, steps, ended)

    def read_settings(self, model: Model) -> list[LayerSettings]:
        """Read the public attributes of every module, or the groups of an optimizer; see SettingsReader."""
        if self.is_optimizer(model):
            return group_settings(model)
        modules = model.named_modules(remove_duplicate=False)
        return [LayerSettings(path, public_classes(type(one)), module_settings(one)) for path, one in modules]

    def read_values(self, model: Model) -> dict[str, Array]:
        """Copy out all parameters and persistent buffers by their `state_dict()` names."""
        return {name: to_array(value).copy() for name, value in _tensors(model).items()}

    def live_values(self, model: Model) -> Mapping[str, Array]:
        """Look at them, without a copy on the CPU; see ValueLender."""
        return MadeArrays({name: partial(to_array, value) for name, value in _tensors(model).items()})

    def put_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill some; see ValueLender."""
        tensors = _tensors(model)
        _fill({name: tensors[name] for name in values}, values)

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Fill the model in place; raises InputsError listing names and shapes that differ.

        Values of other names are loaded as torch loads them: its layers know the names that they once had.
        """
        tensors = _tensors(model)
        if tensors.keys() != values.keys() and loads_other_names(model, values):
            return
        check_state_dict({name: tuple(tensor.shape) for name, tensor in tensors.items()}, values, "torch model")
        _fill(tensors, values)

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
        recorder = CallRecorder(sink, array_of, tensor_like, overwrite, writes, floats=floats)
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

    def as_tensor(self, value: Array, model: Model) -> Any:
        """Make a tensor that fits the model."""
        return fitted(to_tensor(value), _tensors(model).values())

    def run_backward(self, model: Model, inputs: Mapping[str, Array], sink: CaptureSink) -> None:
        """Run one forward and back again; see BackwardRunner."""
        refuse_unrunnable(model)
        tensors = {name: self.as_tensor(value, model) for name, value in inputs.items()}
        args, kwargs = bind_inputs(model.forward, tensors)
        code = partial(differentiate, model, partial(model, *args, **kwargs), [*tensors.values()], sink)
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

    def widened(self, model: Model) -> Model | None:
        """Return a float64 copy; floating inputs follow the model's dtype. Raises UserCodeError if it has no copy."""
        wide = _widened(model, "double")
        compute_wide(wide)
        return wide

    def widened_by_layer(self, model: Model) -> Model:
        """Copy, and borrow the large parameters, cast where they are used; see PrecisionRunner."""
        wide = _widened(model, "double", lent=True)
        compute_wide(wide)
        return wide

    def cast_copy(self, model: Model, dtype: str) -> Model:
        """Copy and cast; see PrecisionRunner."""
        return _widened(model, {"float16": "half"}.get(dtype, dtype), lent=True)

    def rounded_at_random(self, model: Model, seed: int) -> Model:
        """Copy, and watch each operation; see PrecisionRunner."""
        return _changed_copy(model, round_at_random, seed)

    def with_functions(self, model: Model, functions: Mapping[str, Callable[[Array, Array], Array]]) -> Model:
        """Copy, and replace what these operations return; see PrecisionRunner."""
        return _changed_copy(model, replace_functions, functions)

    def emulated(self, model: Model, emulation: Emulation) -> Model:
        """Copy, and round in operators; see ChipEmulator."""
        return _changed_copy(model, emulate, emulation)

    def watched(self, model: Model) -> Model:
        """Copy, and see which names its code calls; see CallWatcher."""
        return _changed_copy(model, watch_calls)

    def tensor_methods(self) -> frozenset[str]:
        """What a tensor has; see CallWatcher."""
        import torch

        return frozenset(dir(torch.Tensor))

    def influences(self, model: Model, inputs: Mapping[str, Array]) -> Influences | None:
        """Differentiate a float64 copy, or a float32 one where a kernel is missing; see Differentiator."""
        for width in ("double", "float"):
            with suppress(UserCodeError):
                wide, found = _differentiated(model, inputs, width, _find_influences)
                return Influences(wide, *found)
        return None

    def gradients(
        self, model: Model, inputs: Inputs, scales: Mapping[str, float], take: Callable[[str, Array], None]
    ) -> None:
        """Differentiate a float32 copy, of a float64 model a float64 one; see Differentiator."""
        width = "double" if dtype_name(_sample(model)) == "float64" else "float"  # float64 takes many times as long
        code = partial(_mix_gradients, scales=scales, take=take)
        _differentiated(model, inputs, width, code, lent=True)

    def load_trusted(self, path: Path) -> Any:
        """Load with `torch.load`, which runs what the file names; see TrustedLoader."""
        import torch

        def load() -> Any:
            return plain_tree(torch.load(path, map_location="cpu", weights_only=False), "", {})

        return run_user_code(load, partial(_load_failed, path))


def _differentiated(
    model: Model, inputs: Inputs, width: str, code: Callable[..., Any], *, lent: bool = False
) -> tuple[Model, Any]:
    """A copy of this width, and what `code(copy, call)` gives, where `call` runs it; raises UserCodeError."""
    wide = _widened(model, width, lent=lent)
    calls = bound_batches(wide.forward, inputs, lambda value: fitted(to_tensor(value), _tensors(wide).values()))

    def call() -> Any:
        returned = [wide(*args, **kwargs) for _, args, kwargs in calls]
        return returned[0] if len(returned) == 1 else returned

    failed = partial(UserCodeError, "the backward pass of the torch model")
    with evaluated(wide):
        return wide, run_user_code(partial(code, wide, call), failed)


def _changed_copy(model: Model, change: Callable[..., None], *arguments: Any) -> Model:
    copied = run_user_code(partial(copy_lent, model), partial(UserCodeError, "copying the torch model"))
    change(copied, *arguments)
    return copied


def _widened(model: Model, width: str, *, lent: bool = False) -> Model:
    make = partial(widened_model, model, width, lent=lent)
    return run_user_code(make, partial(UserCodeError, "copying the torch model"))


def _fill(tensors: Mapping[str, Any], values: Mapping[str, Array]) -> None:
    import torch

    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(to_tensor(values[name]))


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


# What a pass back from a random mix says: how much tensors depend on each parameter.


def _find_influences(model: Model, call: Callable[[], Any]) -> tuple[dict[str, float], float]:
    """Expected change of the outputs, as a share of their size, if a parameter changes by its own root mean square.

    Also returned: the share below which it is rounding. `call` runs the model. With L a sum of the outputs with
    standard normal weights, E |dL/dp|^2 is the squared Frobenius norm of the Jacobian. 0 where no gradient arrives,
    or none that is a number. The model is a copy: its parameters require gradients afterwards.
    """
    import torch

    parameters = _differentiable(model)
    with torch.enable_grad(), _rounding_units() as watched:
        outputs = [real_numbers(leaf) for _, leaf in leaves(call()) if torch.is_tensor(leaf) and leaf.requires_grad]
    noise = max(INFLUENCE_ROUNDING_UNITS * watched.unit, FLOAT64_ROUNDING)
    if not outputs:
        return dict.fromkeys(parameters, 0.0), noise
    generator = torch.Generator().manual_seed(SEED)
    mixes = (torch.randn(leaf.shape, generator=generator).to(leaf) for leaf in outputs)
    mixed = sum((leaf * mix).sum().cpu() for leaf, mix in zip(outputs, mixes, strict=True))
    gradients = torch.autograd.grad(mixed, [*parameters.values()], allow_unused=True)
    size = math.sqrt(sum(_squares(leaf) for leaf in outputs))
    pairs = zip(parameters.items(), gradients, strict=True)
    return {name: _share(parameter, gradient, size) for (name, parameter), gradient in pairs}, noise


def _mix_gradients(
    model: Model, call: Callable[[], Any], scales: Mapping[str, float], take: Callable[[str, Array], None]
) -> None:
    """Hand on, by parameter, gradients of the sum over tensors of (tensor * standard normal) / scale.

    Those to which none arrives are zeros. `scales` are those of what modules return, by `Capture.key`. `call` runs the
    model, which is a copy: its parameters require gradients afterwards. Each tensor is mixed as it is returned: later
    operations in place change nothing.
    """
    import torch

    arrived: set[str] = set()

    def note(name: str, gradient: Array) -> None:
        arrived.add(name)
        take(name, gradient)

    stream = GradientStream(model, note)
    mix = _RandomMix(scales)
    seen = [(path, module) for path, module in model.named_modules() if not isinstance(module, torch.jit.ScriptModule)]
    handles = [module.register_forward_hook(partial(mix.add, path)) for path, module in seen]
    with torch.enable_grad(), stream.way_there():
        call()
    for handle in handles:
        handle.remove()
    if mix.parts:
        sum(mix.parts).backward()
    stream.finish()
    for name, parameter in model.named_parameters():
        if name not in arrived and (parameter.is_floating_point() or parameter.is_complex()):
            take(name, np.broadcast_to(0.0, tuple(parameter.shape)))


class _RandomMix:
    """Adds up what modules return, each element times a random number."""

    def __init__(self, scales: Mapping[str, float]) -> None:
        import torch

        self.parts: list[Any] = []
        self._scales = scales
        self._calls: Counter[str] = Counter()
        self._generator = torch.Generator().manual_seed(SEED)

    def add(self, path: str, _module: Any, _inputs: Any, output: Any) -> None:
        import torch

        for name, leaf in leaves(output):
            scale = self._scales.get(capture_key(path, self._calls[path], name))
            if scale and torch.is_tensor(leaf) and leaf.requires_grad:
                numbers = real_numbers(leaf)
                weights = torch.randn(numbers.shape, generator=self._generator) / scale
                self.parts.append((numbers * weights.to(numbers)).sum().cpu())
        self._calls[path] += 1


def _differentiable(model: Model) -> dict[str, Any]:
    """The parameters that may have a gradient, which from now on they require."""
    own = {name: p for name, p in model.named_parameters() if p.is_floating_point() or p.is_complex()}
    for parameter in own.values():
        parameter.requires_grad_(True)
    return own


def _rounding_units() -> Any:
    """A mode that notes in `unit` the rounding unit of the coarsest dtype in which something with a gradient is held.

    A float64 copy may still compute in float32: attention often has its softmax there, whatever the model's dtype.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Watched(TorchFunctionMode):  # type: ignore[misc]
        unit = torch.finfo(torch.float64).eps

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            self.note(result if isinstance(result, (tuple, list)) else (result,))
            return result

        def note(self, results: Iterable[Any]) -> None:
            held = (one for one in results if torch.is_tensor(one) and one.requires_grad)
            self.unit = max(self.unit, *(torch.finfo(one.dtype).eps for one in held), 0.0)

    return Watched()


def _squares(tensor: Any) -> float:
    return float(tensor.detach().abs().square().sum())


def _share(parameter: Any, gradient: Any, size: float) -> float:
    if gradient is None or not parameter.numel() or not size:
        return 0.0
    share = math.sqrt(_squares(parameter) / parameter.numel() * _squares(gradient)) / size
    return share if math.isfinite(share) else 0.0


PLUGIN = TorchFramework()
