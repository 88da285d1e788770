"""Settings of live torch modules and optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.layer_settings import LayerSettings, plain_settings

if TYPE_CHECKING:
    from align.core.layer_settings import Setting
    from align.core.protocols import Model


def module_settings(module: Model) -> dict[str, Setting]:
    """Settings of one module; a registered parameter is True if it is there and None if it is not."""
    return plain_settings({**vars(module), **_presence(vars(module).get("_parameters", {}))})


def group_settings(optimizer: Model) -> list[LayerSettings]:
    """Settings of each group of parameters of an optimizer."""
    classes = tuple(f"torch.optim.{cls.__name__}" for cls in type(optimizer).__mro__ if _is_public(cls))
    groups = [{key: _number(value) for key, value in group.items()} for group in optimizer.param_groups]
    named = ["", *(f"group {number}" for number in range(1, len(groups)))]
    return [LayerSettings(path, classes, plain_settings(group)) for path, group in zip(named, groups, strict=True)]


def _presence(parameters: dict[str, Any]) -> dict[str, bool | None]:
    return {name: None if value is None else True for name, value in parameters.items()}


def _is_public(cls: type) -> bool:
    import torch

    return cls is not torch.optim.Optimizer and getattr(torch.optim, cls.__name__, None) is cls


def _number(value: Any) -> object:
    """A learning rate may be a tensor of one number."""
    import torch

    return value.item() if torch.is_tensor(value) and value.numel() == 1 else value
