"""Settings of live MindSpore cells and optimizers.

Some cells keep a setting only in an operator that they built from it, which is where it counts: changing the cell's
attribute later would do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from align.core.layer_settings import LayerSettings, plain_settings

if TYPE_CHECKING:
    from align.core.layer_settings import Setting
    from align.core.protocols import Model


def cell_settings(cell: Model) -> dict[str, Setting]:
    """Settings of a cell: its attributes and its operators'; a parameter is True, a tensor of one number that."""
    import mindspore

    found: dict[str, object] = {}
    for name, value in vars(cell).items():
        if isinstance(value, mindspore.ops.Primitive):
            found |= {f"{name}.{key}": item for key, item in plain_settings(vars(value)).items()}
        else:
            found[name] = _plain(value)
    own = cell.parameters_and_names(expand=False)
    return plain_settings({**found, **{name.rpartition(".")[2]: _plain(value) for name, value in own}})


def group_settings(optimizer: Model, classes: tuple[str, ...]) -> list[LayerSettings]:
    """Settings of each group of parameters of an optimizer; those of `mindspore.nn` have one."""
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list):
        return [LayerSettings("", classes, cell_settings(optimizer))]
    named = ["", *(f"group {number}" for number in range(1, len(groups)))]
    plain = [plain_settings({key: _plain(value) for key, value in group.items()}) for group in groups]
    return [LayerSettings(path, classes, values) for path, values in zip(named, plain, strict=True)]


def _plain(value: Any) -> object:
    import mindspore

    if isinstance(value, mindspore.common.initializer.Initializer):
        return _initializer(value)
    if not isinstance(value, mindspore.Tensor):
        return value
    single = value.size == 1 and (value.ndim == 0 or not isinstance(value, mindspore.Parameter))
    return value.asnumpy().item() if single and value.dtype != mindspore.bfloat16 else True


def _initializer(value: Any) -> str:
    """Write an initializer as code would: `Normal(sigma=0.01, mean=0)`."""
    settings = plain_settings(vars(value)).items()
    told = (f"{name}={item:g}" if isinstance(item, float) else f"{name}={item}" for name, item in settings)
    return f"{type(value).__name__}({', '.join(told)})"
