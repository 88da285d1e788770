"""Where and in which precision a torch model computes. Only what stands here knows of devices other than the CPU."""

from __future__ import annotations

import copy
import importlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from align.errors import CannotRunError
from align.models.adapter_parts.torch.state import is_scripted
from align.models.nested_values import leaves, with_leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.core.protocols import Model

# Packages that bring a device to torch when they are imported.
BROUGHT_BY = {"npu": "torch_npu"}


def place_model(model: Model, device: str | None, dtype: str | None) -> None:
    """Move a model, and cast its floating tensors, in place."""
    import torch

    if device is not None:
        model.to(device=_checked_device(device))
    if dtype is not None:
        model.to(dtype=getattr(torch, dtype))


def placed_layer(layer: Model, device: str | None, dtype: str | None) -> Callable[..., Any]:
    """Let a copy of the layer answer there, in that precision; what it returns comes back as the layer's own would."""
    import torch

    copied = copy.deepcopy(layer)
    place_model(copied, device, dtype)
    wanted = None if dtype is None else getattr(torch, dtype)

    def answer(*args: Any, **kwargs: Any) -> Any:
        given = [leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf)]
        like = next((leaf for leaf in given if leaf.is_floating_point()), next(iter(layer.parameters()), None))
        there = with_leaves((args, kwargs), lambda _, leaf: _moved(leaf, device, wanted))
        output = copied(*there[0], **there[1])
        return output if like is None else with_leaves(output, lambda _, leaf: _moved(leaf, like.device, like.dtype))

    return answer


def widened_model(model: Model, width: str) -> Model:
    """Copy a model in another precision; whatever its code casts, layers with tensors of their own are given it."""
    wide = getattr(copy.deepcopy(model), width)()
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
    return with_leaves((args, kwargs), lambda _, leaf: _moved(leaf, None, dtype))


def _moved(leaf: Any, device: Any, dtype: Any) -> Any:
    import torch

    if not torch.is_tensor(leaf):
        return leaf
    return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() else None)


def _checked_device(name: str) -> Any:
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
