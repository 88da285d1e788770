"""What a torch model is made of: its modules as they are nested, with what builds them and the source of their code."""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import textwrap
import warnings
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from align.core.load_code import INSTALL_HINT
from align.core.parameters import TensorMemory
from align.core.protocols import LayerSettings
from align.errors import CannotRunError, FrameworkMissingError, UserCodeError
from align.models.adapter_parts.torch.lent_parameters import copy_lent
from align.models.adapter_parts.torch.state import dtype_name, is_scripted, module_settings, public_classes, to_array
from align.models.function_source import defined_at
from align.models.live_calls import leaves, with_leaves
from align.models.open_side import ModuleOutline, OutlinedTensor
from align.models.rebuild_from_settings import (
    LayerBuilder,
    LayerTypes,
    build_named,
    kept_arguments,
    proposed_arguments,
    rebuild_layer,
    wanted_arguments,
    with_attributes,
)
from align.models.record_calls import answered, twin_class
from align.models.thresholds import LARGEST_ONE_FILE_BYTES, MOST_LAYERS_EXPORTED_ALONE
from align.models.user_code import checksum, refuse_captured, run_user_code, sample
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.protocols import Model, Setting
    from align.models.open_side import ModuleKind


OWN = "torch"
HOLDING = ("ParameterList", "ParameterDict", "TransformerEncoder", "TransformerDecoder", "Transformer")
PLAIN = (bool, int, float, str, type(None))


class TorchOutliner:
    """The part of the adapter that outlines models; see ModelOutliner."""

    def outline(self, model: Model) -> ModuleOutline:
        """Each module once; see ModelOutliner."""
        return _outlined(model, "", "", {})

    def ties(self, model: Model) -> tuple[tuple[str, str], ...]:
        """Parameters by identity; see ModelOutliner."""
        first: dict[int, str] = {}
        ties = []
        modules: dict[int, str] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            if modules.setdefault(id(module), path) != path:
                continue
            for name, value in module.named_parameters(recurse=False):
                full = f"{path}.{name}" if path else name
                if first.setdefault(id(value), full) != full:
                    ties.append((full, first[id(value)]))
        return tuple(ties)


def _outlined(module: Any, name: str, path: str, seen: dict[int, str]) -> ModuleOutline:
    classes, kind = public_classes(type(module)), _kind(module)
    if (first := seen.setdefault(id(module), path)) != path:
        return ModuleOutline(name, kind, classes, same_as=first)
    inner = () if kind == "layer" else tuple(_children(module, path, seen))
    forward = inspect.unwrap(type(module).forward)
    settings = module_settings(module)
    return ModuleOutline(
        name=name,
        kind=kind,
        classes=classes,
        settings=settings,
        arguments=_arguments(module, classes, settings),
        tensors=tuple(_tensors(module)),
        children=inner,
        forward=_source(forward) if kind in ("own", "derived") else "",
        takes=_takes(forward),
        line=defined_at(forward),
    )


def _kind(module: Any) -> ModuleKind:
    """What a module is; a container that has code of its own is one of the user's."""
    from torch import nn

    holder: ModuleKind | None = None
    for cls, kind in ((nn.Sequential, "sequence"), (nn.ModuleList, "list"), (nn.ModuleDict, "dict")):
        if isinstance(module, cls):
            holder = kind if type(module).forward is cls.forward and not any(True for _ in _tensors(module)) else "own"  # type: ignore[assignment]
    if holder:
        return holder
    if type(module).__module__.partition(".")[0] == OWN:
        return "own" if type(module).__name__ in HOLDING else "layer"
    base = next((cls for cls in type(module).__mro__ if cls.__module__.startswith("torch.nn.modules.")), nn.Module)
    if base is nn.Module:
        return "own"
    extra = {name for name, _ in module.named_children()} - {name for name, _ in _base_children(base, module)}
    plain = type(module).forward is getattr(base, "forward", None) and not extra
    return "layer" if plain else "derived"


def _base_children(base: type, module: Any) -> Iterator[tuple[str, Any]]:
    """Children that the framework's own class makes: those of attention and of transformers."""
    if base.__name__ in ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"):
        yield from module.named_children()


def _children(module: Any, path: str, seen: dict[int, str]) -> Iterator[ModuleOutline]:
    for name, child in module._modules.items():  # noqa: SLF001 - named_children leaves out what stands twice
        if child is not None:
            yield _outlined(child, name, f"{path}.{name}" if path else name, seen)


def _tensors(module: Any) -> Iterator[OutlinedTensor]:
    kept = vars(module).get("_non_persistent_buffers_set", ())
    for name, value in module.named_parameters(recurse=False):
        yield OutlinedTensor(name, tuple(value.shape), dtype_name(value), bool(value.requires_grad))
    for name, value in module.named_buffers(recurse=False):
        yield OutlinedTensor(name, tuple(value.shape), dtype_name(value), trainable=False, kept=name not in kept)


def _arguments(module: Any, classes: tuple[str, ...], settings: dict[str, Setting]) -> dict[str, Setting]:
    """What builds a layer of torch's own, as far as its attributes tell."""
    base = next((cls for cls in type(module).__mro__ if cls.__module__.startswith("torch.nn.modules.")), None)
    if base is None or base.__name__ == "Module":
        return {}
    with suppress(TypeError, ValueError):
        layer = LayerSettings("", classes, settings)
        known = kept_arguments(module, KEPT_AT.get(base.__name__, {}))
        return next((given for given, _ in proposed_arguments(layer, wanted_arguments(base), known, {})), {})
    return {}


def _source(function: Any) -> str:
    """The source of a function without its docstring and its decorators, "" where there is none."""
    with suppress(OSError, TypeError, SyntaxError, IndexError):
        text = textwrap.dedent(inspect.getsource(function))
        node = ast.parse(text).body[0]
        lines = text.splitlines()
        if isinstance(node, ast.FunctionDef):
            first, rest = node.lineno - 1, node.body
            said = rest[0] if ast.get_docstring(node) is not None else None
            cut = range(said.lineno - 1, said.end_lineno or said.lineno) if said else range(0)
            return "\n".join(line for number, line in enumerate(lines) if number >= first and number not in cut)
    return ""


def _takes(function: Any) -> str:
    """The parameters behind `self`, with their defaults where these are plain."""
    with suppress(TypeError, ValueError):
        taken = [*inspect.signature(function).parameters.values()][1:]
        written = [*map(_written, taken)]
        first = next((place for place, one in enumerate(taken) if one.kind is one.KEYWORD_ONLY), None)
        if first is not None and not any(one.kind is one.VAR_POSITIONAL for one in taken):
            written.insert(first, "*")
        return ", ".join(written)
    return "*args"


def _written(parameter: inspect.Parameter) -> str:
    star = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    if parameter.default is parameter.empty:
        return f"{star}{parameter.name}"
    default = parameter.default if isinstance(parameter.default, PLAIN) else None
    return f"{parameter.name}={default!r}"


# Copies of live torch layers, as they are or built anew with other settings, and what they share with the original.
#
# Two models that share tensors are not two: where these lie in memory shows it. Where and in which precision a model
# computes is decided here too: nothing else knows of devices other than the CPU.

TRANSFORMER = {
    "d_model": "self_attn.embed_dim",
    "nhead": "self_attn.num_heads",
    "dim_feedforward": "linear1.out_features",
    "dropout": "dropout.p",
    "activation": "activation",
    "layer_norm_eps": "norm1.eps",
    "batch_first": "self_attn.batch_first",
}
WEIGHTS = ("weight", "pos_weight")  # of classes, which a loss takes as a tensor
KEPT_AT = {"TransformerEncoderLayer": TRANSFORMER, "TransformerDecoderLayer": TRANSFORMER}


def rebuilt_module(model: Model, path: str, changes: Mapping[str, Setting]) -> Model | None:
    """Rebuild a module whose class is torch's own or made from one; in evaluation mode.

    Of a user's own class the attributes are changed on a copy, if it keeps such.
    """
    import torch

    layer = dict(model.named_modules()).get(path)
    if layer is None or is_scripted(layer):
        return None
    settings = LayerSettings(path, public_classes(type(layer)), module_settings(layer))
    cls = next((base for base in type(layer).__mro__ if base.__module__.startswith("torch.nn.modules.")), None)
    if cls in (None, torch.nn.Module):
        return with_attributes(copy.deepcopy(layer).eval(), changes) if changes.keys() <= vars(layer).keys() else None
    like = next((tensor for tensor in layer.parameters() if tensor.is_floating_point()), torch.empty(0))
    types = LayerTypes(torch.nn.Module, torch.nn.Parameter, torch.Tensor, torch.equal)
    builder = LayerBuilder(cls, partial(_build, cls, like), copy.deepcopy, _fill, types, KEPT_AT.get(cls.__name__, {}))
    with torch.random.fork_rng(devices=[]):
        changed = rebuild_layer(layer, settings, changes, builder)
    return None if changed is None else changed.eval()


def built_module(class_name: str, arguments: Mapping[str, Setting]) -> Model | None:
    """Build a module of a public class; in evaluation mode."""
    import torch

    with torch.random.fork_rng(devices=[]):
        module = build_named(class_name, arguments)
    return None if module is None else module.eval()


def _build(cls: Any, like: Any, **arguments: Setting) -> Model:
    import torch

    settings: dict[str, Any] = dict(arguments)
    weights = {
        name: torch.tensor(value) for name, value in settings.items() if name in WEIGHTS and isinstance(value, tuple)
    }
    return cls(**{**settings, **weights}).to(device=like.device, dtype=like.dtype)


def _fill(built: Model, layer: Model) -> None:
    import torch

    live = dict(layer.named_parameters())
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if name in live and live[name].shape == parameter.shape:
                parameter.copy_(live[name])


def torch_memory(model: Model) -> dict[str, TensorMemory]:
    """Find all parameters and buffers, those too that no state_dict has: all of them are cast and moved."""
    from torch.nn.parameter import is_lazy

    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    return {name: _memory(one) for name, one in tensors.items() if not (one.is_meta or is_lazy(one))}


def copied_model(model: Model) -> Model:
    """Copy a model whole; raises what cannot be copied raises, and TypeError where a function keeps the original."""
    import torch

    copied = copy.deepcopy(model)
    tensors = (*copied.parameters(), *copied.buffers())
    refuse_captured([*copied.modules()], tensors, (torch.nn.Module, torch.Tensor))
    return copied


def _memory(tensor: Any) -> TensorMemory:
    import torch

    start = stop = 0
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    if tensor.layout == torch.strided:
        with suppress(RuntimeError, NotImplementedError):  # of subclasses that only wrap others
            storage = tensor.untyped_storage()
            start, stop = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    flat = dense.reshape(-1)
    content = checksum(to_array(flat if flat.is_quantized else flat[sample(flat.numel())]))
    return TensorMemory(str(tensor.dtype), str(tensor.device), start, stop, content)


# Packages that bring a device to torch when they are imported.
BROUGHT_BY = {"npu": "torch_npu"}


def place_model(model: Model, device: str | None, dtype: str | None) -> None:
    """Move a model, and cast its floating tensors, in place."""
    import torch

    if device is not None:
        model.to(device=checked_device(device))
    if dtype is not None:
        model.to(dtype=getattr(torch, dtype))


def placed_layer(model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
    """Let a copy of the layer answer there, in that precision; what it returns comes back as the layer's own would."""
    import torch

    layer = model.get_submodule(path)
    copied = copy.deepcopy(layer)
    place_model(copied, device, dtype)
    wanted = None if dtype is None else getattr(torch, dtype)

    def answer(*args: Any, **kwargs: Any) -> Any:
        given = [leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf)]
        like = next((leaf for leaf in given if leaf.is_floating_point()), next(iter(layer.parameters()), None))
        there = with_leaves((args, kwargs), lambda _, leaf: moved(leaf, device, wanted))
        output = copied(*there[0], **there[1])
        return output if like is None else with_leaves(output, lambda _, leaf: moved(leaf, like.device, like.dtype))

    return answer


def widened_model(model: Model, width: str, *, lent: bool = False) -> Model:
    """Copy a model in another precision; whatever its code casts, layers with tensors of their own are given it.

    Large parameters may be `lent`: the original's, cast where they are used.
    """
    wide = copy_lent(model, width) if lent else getattr(copy.deepcopy(model), width)()
    for module in wide.modules():
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        dtype = next((tensor.dtype for tensor in own if tensor.is_floating_point()), None)
        if dtype is not None and not is_scripted(module):
            module.register_forward_pre_hook(partial(_cast_inputs, dtype), with_kwargs=True)
    return wide


def _cast_inputs(dtype: Any, _module: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    import torch

    tensors = (leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf))
    if all(tensor.dtype == dtype or not tensor.is_floating_point() for tensor in tensors):
        return None  # containers stay the same ones: a module may write into them
    return with_leaves((args, kwargs), lambda _, leaf: moved(leaf, None, dtype))


def moved(leaf: Any, device: Any, dtype: Any) -> Any:
    """Move a tensor, and cast a floating one; anything else stays."""
    import torch

    if not torch.is_tensor(leaf):
        return leaf
    return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() else None)


def checked_device(name: str) -> Any:
    """Return a device that is there; raises CannotRunError otherwise."""
    import torch

    kind = name.partition(":")[0]
    if kind in BROUGHT_BY:
        try:
            importlib.import_module(BROUGHT_BY[kind])
        except ImportError as error:
            raise CannotRunError.of(
                "torch_model.no_device_for", name=name, error=error, package=BROUGHT_BY[kind], version=torch.__version__
            ) from error
    there = ["cpu", *(one for one in ("cuda", "npu", "xpu", "mps") if _is_there(one))]
    with suppress(RuntimeError):  # of a name that torch does not know
        device = torch.device(name)
        if kind in there and (device.index or 0) < (getattr(torch, kind).device_count() if kind != "cpu" else 1):
            return device
    raise CannotRunError.of("torch_model.no_device", name=name, known=there)


def _is_there(kind: str) -> bool:
    import torch

    module = getattr(torch, kind, None)
    return module is not None and bool(module.is_available())


# Layers of a torch model that compute in another precision or elsewhere while the model trains.
#
# Parameters are cast where the layer runs, so that gradients come back to the model's own; a copy would keep them.


class TorchSubstituter:
    """The part of the adapter that lets others answer for layers; see LayerSubstituter."""

    def recast_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Call the layer on cast tensors; see LayerSubstituter."""
        import torch

        there = None if device is None else checked_device(device)
        return _Recast(self.bare_layer(model, path), there, None if dtype is None else getattr(torch, dtype))

    def bare_layer(self, model: Model, path: str) -> Model:
        """A shallow copy, whose tables of tensors and modules are the layer's; see LayerSubstituter."""
        layer = model.get_submodule(path)
        bare = copy.copy(layer)
        object.__setattr__(bare, "__class__", twin_class(layer))
        vars(bare).pop("forward", None)
        vars(bare).update(_forward_hooks={}, _forward_pre_hooks={})
        vars(bare).update(_forward_hooks_with_kwargs={}, _forward_pre_hooks_with_kwargs={})
        return bare

    @contextmanager
    def substituted(self, model: Model, stand_ins: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
        """Put them in the place of `forward`; see LayerSubstituter."""
        with ExitStack() as stack:
            for path, stand_in in stand_ins.items():
                stack.enter_context(answered(model.get_submodule(path), "forward", stand_in))
            yield


class _Recast:
    """Computes as a layer does, on its tensors cast and moved at each call."""

    def __init__(self, layer: Model, device: Any, dtype: Any) -> None:
        self._layer, self._device, self._dtype = layer, device, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        layer = self._layer
        given = [leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf) and leaf.is_floating_point()]
        like = next(iter(given), next(iter(layer.parameters()), None))
        buffers = dict(layer.named_buffers())
        own = {name: self._there(parameter) for name, parameter in dict(layer.named_parameters()).items()}
        cast = {name: self._there(buffer.detach().clone()) for name, buffer in buffers.items()}
        args, kwargs = with_leaves((args, kwargs), lambda _, leaf: self._there(leaf))
        output = torch.func.functional_call(layer, {**own, **cast}, args, kwargs)
        with torch.no_grad():
            for name, buffer in buffers.items():
                buffer.copy_(cast[name])
        if like is None:
            return output
        return with_leaves(output, lambda _, leaf: moved(leaf, like.device, like.dtype))

    def _there(self, leaf: Any) -> Any:
        return moved(leaf, self._device, self._dtype)


# A torch model written as an ONNX file by one of torch's exporters; where that fails, the layer that is the reason.


NEEDS = {"torchscript": "onnx", "dynamo": "onnxscript"}
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def export_onnx(
    model: Model, arguments: Arguments, names: Sequence[str], path: Path, options: Mapping[str, Any]
) -> None:
    """Write a model in evaluation mode, called on these arguments, whose names the graph's inputs get.

    `options` are the `exporter` and the `opset`, None for the exporter's own. Raises FrameworkMissingError for a
    package that the exporter needs, and UserCodeError, which names the first layer that fails alone.
    """
    package = NEEDS[options["exporter"]]
    if importlib.util.find_spec(package) is None:
        raise FrameworkMissingError(package, INSTALL_HINT[package])

    def failed(error: BaseException) -> UserCodeError:
        found = UserCodeError(say("onnx_model.export", exporter=options["exporter"]), error)
        if layer := _layer_that_fails(model, arguments, options):
            found.hint = say("onnx_model.export_layer", layer=layer, hint=found.hint)
        return found

    run_user_code(lambda: _export(model, arguments, names, path, options), failed)


def _export(model: Model, arguments: Arguments, names: Sequence[str], path: Path, options: Mapping[str, Any]) -> None:
    import torch

    args, kwargs = arguments
    dynamo = options["exporter"] == "dynamo"
    size = sum(one.numel() * one.element_size() for one in model.state_dict().values() if torch.is_tensor(one))
    more = {"external_data": size > LARGEST_ONE_FILE_BYTES, "verbose": False} if dynamo else {}
    if options["opset"] is not None:
        more["opset_version"] = options["opset"]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, args, str(path), kwargs=kwargs, dynamo=dynamo, input_names=[*names], **more)


def _layer_that_fails(model: Model, arguments: Arguments, options: Mapping[str, Any]) -> str:
    """The first layer without inner ones that cannot be exported by itself, one of each class; "" if there is none."""
    calls = _calls_of_layers(model, arguments)[:MOST_LAYERS_EXPORTED_ALONE]
    with TemporaryDirectory(prefix="align-") as folder:
        alone = Path(folder) / "layer.onnx"
        fails = ((path, one) for path, one, given in calls if not _is_exported(one, given, alone, options))
        return next((f"{path} ({type(one).__name__})" for path, one in fails), "")


def _is_exported(layer: Model, given: Arguments, path: Path, options: Mapping[str, Any]) -> bool:
    try:
        run_user_code(lambda: _export(layer, given, (), path, options), lambda error: UserCodeError("", error))
    except UserCodeError:
        return False
    return True


def _calls_of_layers(model: Model, arguments: Arguments) -> list[tuple[str, Any, Arguments]]:
    """What the first layer of each class was given in a run."""
    first_calls: dict[type, tuple[str, Any, Arguments]] = {}

    def note(path: str) -> Any:
        def hook(layer: Any, args: Any, kwargs: Any) -> None:
            first_calls.setdefault(type(layer), (path, layer, (args, kwargs)))

        return hook

    layers = [(path, one) for path, one in model.named_modules() if path and not any(one.children())]
    handles = [one.register_forward_pre_hook(note(path), with_kwargs=True) for path, one in layers]
    try:
        run_user_code(lambda: model(*arguments[0], **arguments[1]), lambda error: UserCodeError("", error))
    except UserCodeError:
        return []
    finally:
        for handle in handles:
            handle.remove()
    return [*first_calls.values()]
