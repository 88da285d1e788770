"""One training step of a model: what takes it, and what was seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from align.core.dtypes import EPSILON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array

StepPart = Literal["input", "output", "loss", "gradient", "parameter", "buffer"]


class StepSink(Protocol):
    """Receives the tensors of one training step in the order in which they arise; copy what is kept.

    What modules are given and return comes under the keys of captures, call by call, the loss under "", and then
    gradients as the optimizers saw them, parameters and buffers after the step by their names.
    """

    def add(self, part: StepPart, name: str, value: Array) -> None:
        """Take one tensor."""
        ...


@dataclass(frozen=True, slots=True)
class Training:
    """A model with what trains it, all of one framework.

    `loss(outputs, *targets)` returns a scalar; None if the model itself does. `optimizer` is one optimizer, several, or
    None. `step(batch)`, if given, is the user's own step: it is handed the batch as tensors by name, calls the
    optimizer itself, and may return the loss.

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
    """One batch of arrays by name: `inputs` go to the model, `targets` to the loss, in their order.

    `all` is the batch as it was given, for a step of the user's own.
    """

    inputs: Mapping[str, Array]
    targets: Mapping[str, Array]

    @property
    def all(self) -> dict[str, Array]:
        """Inputs and targets."""
        return {**self.inputs, **self.targets}


@dataclass(frozen=True, slots=True)
class ParameterStep:
    """What one step did to a parameter, in figures of all its elements.

    `gradient` is the largest absolute value of the gradient that the optimizers, or whoever asked, saw; None where the
    framework gave none. `moved` is the largest change, `units` the same in units in the last place of each element.
    `zero_share` is the share of elements whose gradient is exactly zero. `holders` counts the parameter's places in the
    groups of all optimizers, and `rate` is that of the first one, None if there is none or it is a schedule's.
    """

    gradient: float | None
    zero_share: float
    moved: float
    units: float
    holders: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What was seen of one step: the loss, None if a step of the user's own does not return it.

    `parameters` are by name, `buffers` the largest change of each; `called` are the paths of modules that ran,
    `updates` is how often an optimizer was called, `strangers` how many parameters of the optimizers are none of the
    model.
    """

    loss: float | None
    parameters: Mapping[str, ParameterStep]
    buffers: Mapping[str, float]
    called: frozenset[str]
    updates: int
    strangers: int


def parameter_step(
    before: Array, after: Array, gradient: Array | None, holders: int, rate: float | None
) -> ParameterStep:
    """Sum up what a step did: values before and after, and the gradient, all of one shape."""
    old = before.astype(np.float64)
    change = np.abs(after.astype(np.float64) - old)
    last_place = np.ldexp(EPSILON.get(before.dtype.name, 1.0), np.frexp(old)[1] - 1)
    largest = None if gradient is None else float(np.abs(gradient.astype(np.float64)).max(initial=0.0))
    zeros = float(np.mean(gradient == 0)) if gradient is not None and gradient.size else 0.0
    units = float((change / last_place).max(initial=0.0))
    return ParameterStep(largest, zeros, float(change.max(initial=0.0)), units, holders, rate)
