"""Which of torch's public names a model's code calls in a run: layers, functions, and methods of tensors.

Layers are modules whose `forward` is torch's own; what runs inside of them is how they do their work, and not seen.
A class of the user's that only sets one of these up counts as it.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.torch.function_modes import run_under
from align.models.adapter_parts.torch.settings import public_classes
from align.models.adapter_parts.torch.state import is_scripted
from align.models.api_calls import ApiCall
from align.models.live.call_sites import called_by_user, user_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.protocols import Model
    from align.models.api_calls import CallKind

    Told = Callable[[str, Any, tuple[Any, ...], dict[str, Any], Any], None]

CONTAINERS = frozenset({"Sequential", "DataParallel", "DistributedDataParallel"})  # they run what the user gave them
_NEVER_CALLED = frozenset({"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})  # their items are
MODULES = ("torch.functional.", "torch._refs.")  # where public functions of torch are made
LINALG = "torch.linalg.linalg_"


class TorchCallWatcher:
    """The part of the adapter that says what was called; see CallWatcher."""

    def watched_calls(self, model: Model) -> tuple[ApiCall, ...]:
        """What was called; see CallWatcher."""
        return watched_calls(model)

    def called_layers(self, model: Model) -> tuple[ApiCall, ...]:
        """Layers by class; see CallWatcher."""
        return called_layers(model)

    def public_name(self, value: object) -> str:
        """Name a class or function of torch; see CallWatcher."""
        return name_of(value)

    def tensor_methods(self) -> frozenset[str]:
        """What a tensor has; see CallWatcher."""
        import torch

        return frozenset(dir(torch.Tensor))


def watch_calls(model: Model, told: Told | None = None) -> None:
    """Let the runs of a model be watched; see `watched_calls`. `told` gets each call: name, function, arguments, value.

    Of a layer, the function is the module.
    """
    seen = _Seen(model, told)
    run_under(model, partial(_Watching, seen))
    model.forward.watched = seen  # a run puts the model's own attributes back


def watched_calls(model: Model) -> tuple[ApiCall, ...]:
    """What the runs of a watched model called so far, in the order of the first calls."""
    seen = getattr(model.forward, "watched", None)
    return () if seen is None else seen.found()


def called_layers(model: Model) -> tuple[ApiCall, ...]:
    """The layers of torch that a model has, each as one call, without what these work with inside."""
    found: list[ApiCall] = []
    opaque: list[str] = []
    for path, module in model.named_modules():
        name = "" if is_scripted(module) else own_layer(module)
        if name and not any(path.startswith(outer) for outer in opaque):
            found.append(ApiCall(name, "layer", path, "", 1))
            opaque += [] if is_container(name) else [f"{path}." if path else ""]
    return tuple(found)


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


class _Seen:
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
        """Count a call."""
        key = (api, kind, module, line)
        self._counts[key] = self._counts.get(key, 0) + 1

    def found(self) -> tuple[ApiCall, ...]:
        """All counts."""
        return tuple(ApiCall(*key, calls) for key, calls in self._counts.items())


class _Watching:
    """The mode of a run, and the hooks that tell which modules run; all is taken away at the end."""

    def __init__(self, seen: _Seen) -> None:
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


def _function_mode(seen: _Seen) -> Any:
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
