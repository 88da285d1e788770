"""The check before a model is filled: frameworks' own loaders are too lenient with names and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.errors import InputsError
from align.words.catalogue import say, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.parameters import Shape


def check_state_dict(shapes: Mapping[str, Shape], values: Mapping[str, Array], what: str) -> None:
    """Raise InputsError listing every missing and unexpected name and every shape that differs.

    MindSpore's loader takes a parameter by its suffix, and even when strict a (2, 3, 1, 1) array for a (2, 3) one.
    """
    faults = state_dict_faults(shapes, {name: tuple(value.shape) for name, value in values.items()})
    if faults:
        raise InputsError(*texts("model_fault.other_weights", what=what), faults=faults)


def state_dict_faults(shapes: Mapping[str, Shape], given: Mapping[str, Shape]) -> list[str]:
    """Every name that is missing or unexpected among the given ones, and every shape that differs."""
    faults = [f"missing: {name} {list(shape)}" for name, shape in shapes.items() if name not in given]
    faults += [f"unexpected: {name} {list(shape)}" for name, shape in given.items() if name not in shapes]
    return faults + [
        say("model_fault.other_shape", name=name, given=list(given[name]), shape=str(list(shape)))
        for name, shape in shapes.items()
        if name in given and tuple(given[name]) != tuple(shape)
    ]
