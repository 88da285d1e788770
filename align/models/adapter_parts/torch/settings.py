"""Settings of live torch modules and optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.layer_settings import LayerSettings, group_paths, plain_settings, weights_as_setting
from align.models.adapter_parts.torch.arrays import to_array

if TYPE_CHECKING:
    from align.core.layer_settings import Setting
    from align.core.protocols import Model


def module_settings(module: Model) -> dict[str, Setting]:
    """Settings of one module; a registered parameter is True if it is there and None if it is not."""
    parameters = vars(module).get("_parameters", {})
    present = {name: None if value is None else True for name, value in parameters.items()}
    return plain_settings({**vars(module), **present, **_weights(module)})


def public_classes(cls: type) -> tuple[str, ...]:
    """Names of the class and its bases below torch.nn.Module, as `torch.nn.X` where that is the class."""
    from torch import nn

    bases = [base for base in cls.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]
    return tuple(
        f"torch.nn.{base.__name__}"
        if getattr(nn, base.__name__, None) is base
        else f"{base.__module__}.{base.__qualname__}"
        for base in bases
    )


def group_settings(optimizer: Model) -> list[LayerSettings]:
    """Settings of each group of parameters of an optimizer."""
    classes = tuple(_optimizer_name(cls) for cls in type(optimizer).__mro__ if _is_optimizer(cls))
    groups = [{key: _number(value) for key, value in group.items()} for group in optimizer.param_groups]
    paths = group_paths(len(groups))
    return [LayerSettings(path, classes, plain_settings(group)) for path, group in zip(paths, groups, strict=True)]


def _weights(module: Model) -> dict[str, Setting]:
    from torch.nn.modules.loss import _Loss

    buffers = vars(module).get("_buffers", {}) if isinstance(module, _Loss) else {}
    values = {name: None if value is None else to_array(value) for name, value in buffers.items()}
    return {name: weights_as_setting(value) for name, value in values.items()}


def _is_optimizer(cls: type) -> bool:
    import torch

    return issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer


def _optimizer_name(cls: type) -> str:
    import torch

    public = getattr(torch.optim, cls.__name__, None) is cls
    return f"torch.optim.{cls.__name__}" if public else f"{cls.__module__}.{cls.__qualname__}"


def _number(value: Any) -> object:
    """A learning rate may be a tensor of one number."""
    import torch

    return value.item() if torch.is_tensor(value) and value.numel() == 1 else value
