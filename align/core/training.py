"""Training steps of a model: what takes them, and who sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.traces import Capture


@dataclass(frozen=True, slots=True)
class Training:
    """A model with what trains it, all of one framework.

    `loss(outputs, *targets)` returns a scalar; None if the model itself does: alone, first of several, or as `loss`.
    `optimizer` is one optimizer, several, or None. `step(batch)`, if given, is the user's own step: it is handed the
    batch as tensors by name, calls the optimizer itself, and may return the loss.

    >>> Training(model=None, loss=None).step is None
    True
    """

    model: Any
    loss: Callable[..., Any] | None = None
    optimizer: Any = None
    step: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def optimizers(self) -> tuple[Any, ...]:
        """All of them."""
        if self.optimizer is None:
            return ()
        return tuple(self.optimizer) if isinstance(self.optimizer, (list, tuple)) else (self.optimizer,)


@dataclass(frozen=True, slots=True)
class BatchParts:
    """One batch of arrays by name: `inputs` go to the model, `targets` to the loss, in their order."""

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]


@runtime_checkable
class MomentReader(Protocol):
    """Reads what a live optimizer keeps of each parameter from step to step: its moments."""

    def read_moments(self, optimizer: Any, model: Any) -> Iterator[tuple[str, str, Array]]:
        """Yield the parameter's name in the model, what the optimizer calls the moment, and its value.

        Left out is what has another shape than the parameter, as counts of steps have. Arrays may be reused.
        """
        ...


class StepSink(Protocol):
    """Sees training steps and may change what happens in them. Arrays may be reused after a call: copy what is kept.

    Names of parameters and buffers are those of `read_values`.
    """

    @property
    def layers(self) -> bool:
        """Tell whether tensors and gradients of layers are to be seen; else only which layers run."""
        ...

    def begin(self, step: int, held: Sequence[tuple[str, float | None]]) -> Mapping[str, Array]:
        """A step begins, counted from 0; return the values of parameters and buffers that are to be others.

        `held` are names and rates of all parameters in the groups of the optimizers, "" for one that is not the
        model's; a rate is None where a schedule gives it.
        """
        ...

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> Mapping[str, Array] | None:
        """Take the tensors that a call is given, as an InputSink does; what is returned takes their place."""
        ...

    def add(self, capture: Capture, value: Array) -> None:
        """Take a tensor that a call returned."""
        ...

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return what is to take the place of it; None: it stays."""
        ...

    def awaited(self, capture: Capture) -> None:
        """A gradient may come back to this tensor."""
        ...

    def arrived(self, capture: Capture, gradient: Array) -> None:
        """Take the gradient that came back to a tensor: to an input from this call alone, to an output from all."""
        ...

    def sent_back(self, capture: Capture) -> Array | None:
        """Return the gradient to go back from a tensor that gave way to another one; None for none."""
        ...

    def computed(self, name: str, gradient: Array) -> None:
        """Take the gradient of a parameter that one way back gave; a step may have several."""
        ...

    def update(self, gradients: Mapping[str, Array | None]) -> Mapping[str, Array]:
        """An optimizer is called with these gradients; return those that it is to get instead."""
        ...

    def end(self, step: int, loss: float | None, values: Iterable[tuple[str, Array]]) -> None:
        """A step ended; `values` are all parameters and buffers, `loss` None where a user's step returns none."""
        ...
