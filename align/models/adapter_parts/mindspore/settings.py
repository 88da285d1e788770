"""Settings of live MindSpore cells and optimizers.

Some cells keep a setting only in an operator that they built from it, which is where it counts: changing the cell's
attribute later would do nothing.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from align.core.layer_settings import plain_settings, weights_as_setting

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
        elif _is_loss(cell) and isinstance(value, mindspore.Tensor) and value.ndim:
            found[name] = weights_as_setting(value.float().asnumpy())
        else:
            found[name] = plain_value(value)
    own = cell.parameters_and_names(expand=False)
    return plain_settings({**found, **{name.rpartition(".")[2]: plain_value(value) for name, value in own}})


def _is_loss(cell: Model) -> bool:
    import mindspore

    mint = sys.modules["mindspore.mint.nn"]
    return isinstance(cell, mindspore.nn.LossBase) or (
        type(cell).__name__.endswith("Loss") and getattr(mint, type(cell).__name__, None) is type(cell)
    )


def public_classes(cls: type) -> tuple[str, ...]:
    """Names of the class and its bases below nn.Cell, as users write them."""
    import mindspore

    public = _public_names()
    bases = [base for base in cls.__mro__ if issubclass(base, mindspore.nn.Cell) and base is not mindspore.nn.Cell]
    return tuple(public.get(base, f"{base.__module__}.{base.__qualname__}") for base in bases)


def plain_value(value: Any) -> object:
    """Return an attribute as a plain value: a tensor of one number that, another True, an initializer as code."""
    import mindspore

    if isinstance(value, mindspore.common.initializer.Initializer):
        return _initializer(value)
    if not isinstance(value, mindspore.Tensor):
        return value
    single = value.size == 1 and (value.ndim == 0 or not isinstance(value, mindspore.Parameter))
    return _number(value.asnumpy().reshape(())[()]) if single and value.dtype != mindspore.bfloat16 else True


def _number(value: Any) -> object:
    """A number of an array in the digits of its own precision: 1e-5 of float32, not 9.99999974e-06."""
    return float(str(value)) if value.dtype.kind == "f" else value.item()


def _initializer(value: Any) -> str:
    """Write an initializer as code would: `Normal(sigma=0.01, mean=0)`."""
    settings = plain_settings(vars(value)).items()
    written = (f"{name}={item:g}" if isinstance(item, float) else f"{name}={item}" for name, item in settings)
    return f"{type(value).__name__}({', '.join(written)})"


@cache
def _public_names() -> dict[type, str]:
    import mindspore

    names: dict[type, str] = {}
    spaces = {
        "nn": mindspore.nn, "mint.nn": mindspore.mint.nn, "mint.optim": mindspore.mint.optim,
        "experimental.optim": mindspore.experimental.optim,
    }  # fmt: skip
    for prefix, space in ((f"mindspore.{name}", space) for name, space in spaces.items()):
        for name in sorted(vars(space)):
            value = getattr(space, name)
            if isinstance(value, type) and issubclass(value, mindspore.nn.Cell):
                names.setdefault(value, f"{prefix}.{name}")
    return names
