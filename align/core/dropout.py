"""Layers that set values to 0 at random in training: what they are, their calls, and who gives them their masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from align.core.protocols import ModelFreezer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from align.core.dtypes import Array
    from align.core.parameters import Shape
    from align.core.protocols import Model


@dataclass(frozen=True, slots=True)
class DropoutLayer:
    """A framework's own layer for dropout, and the share in 0..1 that it sets to 0; the rest is scaled by 1/(1-share).

    `spatial` is 0 where single values are dropped, else the number of axes behind the channels that are dropped whole.
    """

    path: str
    module: Any
    share: float
    spatial: int = 0


@dataclass(frozen=True, slots=True)
class DropoutCall:
    """A call of such a layer, the `place`-th of one run of the model, counted from 0; `share` 0 if it drops nothing."""

    place: int
    path: str
    class_name: str
    shape: Shape
    share: float
    spatial: int


class DropoutSink(Protocol):
    """Sees the calls of layers for dropout while the model runs, and gives them their masks."""

    def begin(self) -> None:
        """The model itself is called."""
        ...

    def mask(self, layer: DropoutLayer, shape: Shape, *, active: bool) -> Array | None:
        """Return what a layer's output is multiplied by, in float64; None: it stays. `active` in training mode."""
        ...

    def end(self) -> None:
        """The call of the model is over."""
        ...


@runtime_checkable
class DropoutReader(ModelFreezer, Protocol):
    """Finds a framework's own layers for dropout, and lets masks take the place of what they draw."""

    def dropout_layers(self, model: Model) -> list[DropoutLayer]:
        """List those that compute what the framework's class does; what is derived and computes otherwise is none."""
        ...

    def masked(self, layers: Iterable[DropoutLayer], model: Model, sink: DropoutSink) -> AbstractContextManager[None]:
        """Multiply what these layers of a model return by the sink's masks, gradients too; they must drop nothing.

        What else looks at their outputs later sees them after the mask. A copy of the model asks the same sink.
        """
        ...
