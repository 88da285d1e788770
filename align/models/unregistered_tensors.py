"""Tensors that a model keeps as plain attributes: in no checkpoint, trained by no optimizer.

A model may well keep constants so; it is worth a word only where the other side has a parameter of that shape alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.models.describe_sides import WALKS
from align.models.source_lines import made_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from align.core.parameters import Shape
    from align.core.protocols import Model

CHANGES = {"torch": "nn.Parameter(...)", "mindspore": "Parameter(...)"}


@dataclass(frozen=True, slots=True)
class UnregisteredTensor:
    """A tensor at `path` of a shape, the line that makes it ("" if unknown), and what to write."""

    path: str
    shape: Shape
    line: str
    change: str


def unregistered_tensors(model: Model, framework: str, shapes: Collection[Shape]) -> tuple[UnregisteredTensor, ...]:
    """Find tensors of these shapes that layers of a live model hold and their framework has not registered.

    Models of frameworks without such a register have none.
    """
    walk = WALKS.get(framework, "")
    if not hasattr(model, walk):
        return ()
    return tuple(
        UnregisteredTensor(own, shape, made_at(model, own), CHANGES[framework])
        for path, layer in getattr(model, walk)()
        for name, shape in _tensors(layer, framework)
        if shape in shapes
        for own in [f"{path}.{name}".lstrip(".")]
    )


def _tensors(layer: Any, framework: str) -> Iterator[tuple[str, Shape]]:
    """The attributes of one layer that are tensors of the framework and none of its parameters or buffers."""
    for name, value in vars(layer).items():
        kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__]
        if (framework, "Tensor") in kinds and (framework, "Parameter") not in kinds:
            yield name, tuple(int(size) for size in value.shape)
