"""What torch's modes see of the functions that a model's code calls, and how they let it compute.

It computes wide, with every rounding enlarged, or by functions of others; or functional calls (`F.gelu(x)`, `a + b`)
are seen. Those inside torch's own modules are how these do their work; they are not captured.

A float64 copy still builds its tables in float32 where the code says so, and casts what it returns; its noise would
then lack that rounding. An operation that rounds at random shows what rounding does to a model: what float64 moves by
much more is a branch on the dtype, or random numbers, and no noise.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.traces import CodeSeen, OperatorSink
from align.models.adapter_parts.torch.state import (
    array_of,
    dispatch_mode,
    is_scripted,
    plain_transformer_layers,
    public_classes,
    tensor_like,
    to_array,
    to_tensor,
)
from align.models.live_calls import LiveOperatorCall, called_by_user, leaves, user_line, user_place
from align.models.rebuild_from_settings import ApiCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.rebuild_from_settings import CallKind
    from align.models.record_calls import CallRecorder

    Functions = Mapping[str, Callable[[Array, Array], Array]]
    Told = Callable[[str, Any, tuple[Any, ...], dict[str, Any], Any], None]


# Operators that return values they were given, or whole numbers: they do not round.
EXACT = frozenset({
    "_to_copy", "abs", "arange", "cat", "clamp", "clamp_max", "clamp_min", "clone", "constant_pad_nd", "copy", "detach",
    "embedding", "empty", "empty_like", "eye", "flip", "full", "full_like", "gather", "index", "index_put",
    "index_select", "lift_fresh", "masked_fill", "max", "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum",
    "min", "minimum", "neg", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "relu",
    "repeat", "roll", "round", "scalar_tensor", "scatter", "sign", "sort", "stack", "topk", "tril", "triu", "where",
    "zeros", "zeros_like",
})  # fmt: skip

# Operators that count up: what is computed from it, such as sines of positions, rounds in the dtype asked for.
COUNTING = frozenset({"arange", "linspace", "logspace"})


@dataclass
class _SeenOperators:
    """Lines that made numbers that count up in a dtype of their own choice, names of all operations, random ones."""

    lines: dict[str, None] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)
    draws: bool = False


def compute_wide(model: Model) -> None:
    """Let a float64 model compute in float64 where its code asks for another floating dtype; see `seen_wide`."""
    seen = _SeenOperators()
    run_under(model, partial(_wide_mode, seen))
    model.forward.seen = seen  # a run puts the model's own attributes back


def seen_wide(model: Model) -> CodeSeen:
    """What the code of a model that computes wide did in its runs so far."""
    seen = getattr(model.forward, "seen", None) or _SeenOperators()
    return CodeSeen(tuple(seen.lines), frozenset(seen.operations), seen.draws)


def round_at_random(model: Model, seed: int) -> None:
    """Let every operation of a model that rounds be off by one more unit in the last place, up or down."""
    run_under(model, lambda: _random_rounding_mode(seed))


def replace_functions(model: Model, functions: Functions) -> None:
    """Let functions of single elements, by name, return what `functions` make of their argument and of their value."""
    run_under(model, lambda: _replacing_mode(functions))


def run_under(model: Model, make_mode: Callable[[], Any]) -> None:
    """Run every forward of a model inside of a new context that `make_mode` makes."""
    forward = model.forward

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with make_mode():
            return forward(*args, **kwargs)

    object.__setattr__(model, "forward", run)


def _wide_mode(seen: _SeenOperators) -> Any:
    import torch

    lower = frozenset({torch.float32, torch.float16, torch.bfloat16})

    class Wide(dispatch_mode()):  # type: ignore[misc]
        """The dtype of what the code makes or casts is float64; so is that of plain numbers in tensors."""

        def __enter__(self) -> Any:
            self._default = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            torch.set_default_dtype(self._default)
            super().__exit__(*error)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs, name = kwargs or {}, func.overloadpacket.__name__
            seen.operations.add(name.removesuffix("_"))
            seen.draws |= torch.Tag.nondeterministic_seeded in func.tags
            if kwargs.get("dtype") not in lower:
                return func(*args, **kwargs)
            if _counts_up(name, args) and (line := user_line(f"{Path.cwd()}/")):
                seen.lines[line] = None
            return func(*args, **{**kwargs, "dtype": torch.float64})

    return Wide()


def _counts_up(name: str, args: Any) -> bool:
    """Tell whether an operator makes numbers that count up, or turns whole ones that are no mask into floats."""
    if name != "_to_copy":
        return name in COUNTING
    whole = not args[0].is_floating_point() and args[0].numel() > 1
    return whole and bool(args[0].max() > 1)


def _random_rounding_mode(seed: int) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    generator = torch.Generator().manual_seed(seed)

    def off(value: Any) -> Any:
        if not torch.is_tensor(value) or not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=generator).to(value) * 2 - 1
        return value * (1 + torch.finfo(value.dtype).eps * signs)

    class RandomRounding(dispatch_mode()):  # type: ignore[misc]
        """What an operation returns is moved by one unit; what is a view of its arguments, or written into, is not."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            aliases = any(one.alias_info is not None for one in func._schema.returns)  # noqa: SLF001 - no public way
            return output if name in EXACT or aliases else tree_map(off, output)

    return RandomRounding()


def _replacing_mode(functions: Functions) -> Any:

    class Replacing(dispatch_mode()):  # type: ignore[misc]
        """Functions that write into their argument are met as well, those inside of larger operators are not."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            function = functions.get(func.overloadpacket.__name__.removesuffix("_"))
            if function is None or not args[0].is_floating_point():
                return func(*args, **(kwargs or {}))
            given = to_array(args[0]).copy()
            output = func(*args, **(kwargs or {}))
            return output.copy_(to_tensor(function(given, to_array(output))))

    return Replacing()


@contextmanager
def shown_operators(sink: CaptureSink) -> Iterator[None]:
    """Show the sink every operator that torch dispatches, if it wants to see them.

    torch's layers of transformers compute all at once where they may; one by one they are seen.
    """
    if not isinstance(sink, OperatorSink):
        yield
        return
    import torch

    make = sink.operator

    class Operators(dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            writes = func._schema.is_mutable  # noqa: SLF001 - no public way
            name = func.overloadpacket.__name__
            forms = array_of, tensor_like
            call = LiveOperatorCall(name, func, (args, kwargs or {}), forms, torch.clone if writes else None)
            return make(call)

    with plain_transformer_layers(), Operators():
        yield


def captured_functions(model: Model, recorder: CallRecorder) -> AbstractContextManager[Any]:
    """Hand what functional calls return to the recorder, if its sink wants them."""
    if not recorder.functions:
        return nullcontext()
    import torch
    from torch.overrides import TorchFunctionMode

    own = {path for path, module in model.named_modules() if type(module).__module__.startswith("torch.")}

    class Functions(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            name = func.__name__.removeprefix("__").removesuffix("__")
            if recorder.running is None or recorder.running in own or name in _NO_COMPUTATION:
                return output
            if not any(torch.is_tensor(leaf) for _, leaf in leaves(output)) or not called_by_user():
                return output
            return recorder.function(name, func, args, kwargs or {}, output)

    return Functions()


# Reading an attribute, and what returns its own argument.
_NO_COMPUTATION = frozenset({"get", "set", "requires_grad_"})


# Which of torch's public names a model's code calls in a run: layers, functions, and methods of tensors.
#
# Layers are modules whose `forward` is torch's own; what runs inside of them is how they do their work, and not seen.
# A class of the user's that only sets one of these up counts as it.

CONTAINERS = frozenset({"Sequential", "DataParallel", "DistributedDataParallel"})  # they run what the user gave them
_NEVER_CALLED = frozenset({"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})  # their items are
MODULES = ("torch.functional.", "torch._refs.")  # where public functions of torch are made
LINALG = "torch.linalg.linalg_"


def watch_calls(model: Model, on_call: Told | None = None) -> None:
    """Let the runs of a model be watched; see `watched_calls`.

    `on_call` gets the name, function, arguments and value of each call; of a layer the function is the module.
    """
    seen = _SeenCalls(model, on_call)
    run_under(model, partial(_Watching, seen))
    model.forward.watched = seen  # a run puts the model's own attributes back


def watched_calls(model: Model) -> tuple[ApiCall, ...]:
    """What the runs of a watched model called so far, in the order of the first calls."""
    seen = getattr(model.forward, "watched", None)
    return () if seen is None else seen.found()


def called_layers(model: Model) -> tuple[ApiCall, ...]:
    """The layers of torch that a model has, each as one call, without what these work with inside."""
    layers: list[ApiCall] = []
    opaque: list[str] = []
    for path, module in model.named_modules():
        name = "" if is_scripted(module) else own_layer(module)
        if name and not any(path.startswith(outer) for outer in opaque):
            layers.append(ApiCall(name, "layer", path, "", 1))
            opaque += [] if is_container(name) else [f"{path}." if path else ""]
    return tuple(layers)


def own_layer(module: Model) -> str:
    """The public name of torch's class whose work a module does, "" where its code is the user's."""
    forward = getattr(type(module), "forward", None)
    if type(module).__name__ in _NEVER_CALLED or not str(getattr(forward, "__module__", "")).startswith("torch."):
        return ""
    torchs = (name for name in public_classes(type(module)) if name.startswith("torch."))
    return next(torchs, "")


def is_container(name: str) -> bool:
    """Tell whether a class of torch only runs the modules that it is given."""
    return name.rpartition(".")[2] in CONTAINERS


class _SeenCalls:
    """Counts by name and place, over all runs; `running` are paths of modules, each with torch's class or ""."""

    def __init__(self, model: Model, told: Told | None) -> None:
        self.model, self.told = model, told
        self.running: list[tuple[str, str]] = []
        self._counts: dict[tuple[str, CallKind, str, str], int] = {}

    @property
    def inside(self) -> bool:
        """True where one of torch's own layers does its work."""
        return any(name and not is_container(name) for _, name in self.running)

    def add(self, api: str, kind: CallKind, module: str, line: str) -> None:
        key = (api, kind, module, line)
        self._counts[key] = self._counts.get(key, 0) + 1

    def found(self) -> tuple[ApiCall, ...]:
        return tuple(ApiCall(*key, calls) for key, calls in self._counts.items())


class _Watching:
    """The mode of a run, and the hooks that tell which modules run; all is taken away at the end."""

    def __init__(self, seen: _SeenCalls) -> None:
        self._seen, self._stack = seen, ExitStack()

    def __enter__(self) -> None:
        root = self._seen.model
        self._seen.running[:] = [("", own_layer(root))]  # it runs already
        if self._seen.inside or is_container(own_layer(root)):
            self._seen.add(own_layer(root), "layer", "", "")
        for path, module in root.named_modules():
            if path and not is_scripted(module):
                self._follow(path, own_layer(module), module)
        self._stack.enter_context(_function_mode(self._seen))

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _follow(self, path: str, name: str, module: Model) -> None:
        seen = self._seen

        def enter(*_: object) -> None:
            if name and not seen.inside:
                seen.add(name, "layer", path, "")
            seen.running.append((path, name))

        def leave(module: Model, args: Any, kwargs: Any, output: Any) -> None:
            seen.running.pop()
            if seen.told and name and not seen.inside:
                seen.told(name, module, args, kwargs, output)

        self._stack.callback(module.register_forward_pre_hook(enter).remove)
        self._stack.callback(module.register_forward_hook(leave, always_call=True, with_kwargs=True).remove)


def _function_mode(seen: _SeenCalls) -> Any:
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            if not seen.inside and called_by_user():
                name = public_name(func)
                kind: CallKind = "method" if name.startswith("torch.Tensor.") else "function"
                seen.add(name, kind, seen.running[-1][0] if seen.running else "", user_place())
                if seen.told:
                    seen.told(name, func, args, kwargs or {}, output)
            return output

    return Watching()


def public_name(func: Callable[..., Any]) -> str:
    """The name that users call a function by: `torch.nn.functional.gelu`, `torch.Tensor.shape` for reading that."""
    from torch.overrides import resolve_name

    name = str(resolve_name(func) or _written_name(func)).removesuffix(".__get__")
    for place in MODULES:
        name = name.replace(place, "torch.")
    return name.replace(LINALG, "torch.linalg.")


def _written_name(func: Callable[..., Any]) -> str:
    module = getattr(func, "__module__", None) or "torch"
    return f"{module}.{getattr(func, '__qualname__', None) or type(func).__name__}"


def name_of(value: Any) -> str:
    """The public name of a class or function of torch, "" for what is not torch's."""
    from torch import nn

    if isinstance(value, type):
        name = value.__name__
        if vars(nn).get(name) is value:
            return f"torch.nn.{name}"
        return f"{value.__module__}.{value.__qualname__}" if value.__module__.partition(".")[0] == "torch" else ""
    module = str(getattr(value, "__module__", None) or "torch")
    return public_name(value) if callable(value) and module.partition(".")[0] == "torch" else ""
