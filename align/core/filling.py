"""The check before a model is filled: frameworks' own loaders are too lenient with names and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors import InputsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.parameters import Shape


def check_fill(shapes: Mapping[str, Shape], values: Mapping[str, Array], what: str) -> None:
    """Raise InputsError listing every missing and unexpected name and every shape that differs.

    MindSpore's loader takes a parameter by its suffix, and even when strict a (2, 3, 1, 1) array for a (2, 3) one.
    """
    faults = [f"missing: {name} {list(shape)}" for name, shape in shapes.items() if name not in values]
    faults += [f"unexpected: {name} {list(value.shape)}" for name, value in values.items() if name not in shapes]
    faults += [
        f"shape: {name} is {list(values[name].shape)}, the model has {list(shape)}"
        for name, shape in shapes.items()
        if name in values and tuple(values[name].shape) != tuple(shape)
    ]
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise InputsError(
            f"the weights do not fit the {what}:\n{listed}", "convert the checkpoint with the map of these two models"
        )
