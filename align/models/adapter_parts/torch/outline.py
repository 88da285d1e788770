"""What a torch model is made of: its modules as they are nested, with what builds them and the source of their code."""

from __future__ import annotations

import ast
import inspect
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from align.core.layer_settings import LayerSettings
from align.models.adapter_parts.torch.arrays import dtype_name
from align.models.adapter_parts.torch.copies import KEPT_AT
from align.models.adapter_parts.torch.settings import module_settings, public_classes
from align.models.function_source import defined_at
from align.models.module_outline import ModuleOutline, OutlinedTensor
from align.models.rebuild_from_settings import kept_arguments, proposed_arguments, wanted_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.layer_settings import Setting
    from align.core.protocols import Model
    from align.models.module_outline import ModuleKind

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
        found = []
        modules: dict[int, str] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            if modules.setdefault(id(module), path) != path:
                continue
            for name, value in module.named_parameters(recurse=False):
                full = f"{path}.{name}" if path else name
                if first.setdefault(id(value), full) != full:
                    found.append((full, first[id(value)]))
        return tuple(found)


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
            holder = kind if type(module).forward is cls.forward and not _holds(module) else "own"  # type: ignore[assignment]
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


def _holds(module: Any) -> bool:
    """Tell whether a container holds tensors of its own."""
    return any(True for _ in _tensors(module))


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


def _written(one: inspect.Parameter) -> str:
    star = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    if one.default is one.empty:
        return f"{star}{one.name}"
    default = one.default if isinstance(one.default, PLAIN) else None
    return f"{one.name}={default!r}"
