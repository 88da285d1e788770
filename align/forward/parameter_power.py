"""Which parameters compared tensors show, and from which change on: suspects by gradient, condemned by a run.

One backward pass from a random mix of all compared tensors, each in units of its limit, gives the root of the sum of
squares of what a change moves. The largest is at least that divided by the root of the number of tensors: from there on
a change shows. Where no gradient arrives it need not show, but may: a router chooses without one. So suspects are
changed, and run.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import rounded_as
from align.forward.forward_result import ParameterPower
from align.forward.thresholds import (
    LEAST_POWER_LIMIT,
    MOST_POWER_RUNS,
    NO_GRADIENT,
    SUSPECT_PARAMETER_MOVE,
    WEAK_CHANGE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.core.traces import Trace
    from align.forward.forward_result import ParameterState

_SEED = 1  # no limit: of its own generator


def tensor_scales(trace: Trace, limits: Mapping[str, Limit]) -> dict[str, float]:
    """Scale of each compared tensor by its key: in that unit its difference has length 1 at the limit."""
    compared = [capture for capture in trace.captures if capture.key in limits and rounded_as(capture.dtype)]
    return {c.key: (limits[c.key].rmse or LEAST_POWER_LIMIT) * sqrt(prod(c.shape)) for c in compared if prod(c.shape)}


def parameter_rms(value: Array) -> float:
    """Root mean square of a parameter; 1 for one that is all zero or empty, of which no change is relative."""
    return float(np.sqrt(np.mean(np.square(np.abs(value).astype(np.float64))))) or 1.0 if value.size else 1.0


def suspect_elements(values: Mapping[str, Array], gradients: Mapping[str, Array]) -> dict[str, NDArray[np.bool_]]:
    """Mask, by parameter, of the elements that seem to move nothing, for parameters that have such."""
    masks = {name: _seems_blind(np.abs(gradient), parameter_rms(values[name])) for name, gradient in gradients.items()}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _seems_blind(gradient: Array, size: float) -> NDArray[np.bool_]:
    largest = float(gradient.max(initial=0.0))
    threshold = largest if largest * size < SUSPECT_PARAMETER_MOVE else largest * NO_GRADIENT * (gradient.ndim == 1)
    blind: NDArray[np.bool_] = gradient <= threshold
    return blind


def perturb_elements(values: Mapping[str, Array], masks: Mapping[str, NDArray[np.bool_]]) -> dict[str, Array]:
    """The values with the masked elements changed at random by the size of their parameter."""
    generator = np.random.default_rng(_SEED)
    steps = {name: parameter_rms(values[name]) * generator.standard_normal(mask.shape) for name, mask in masks.items()}
    return {
        name: np.where(masks[name], value + steps[name], value).astype(value.dtype) if name in masks else value
        for name, value in values.items()
    }


def names_without_effect(names: Sequence[str], has_effect: Callable[[Sequence[str]], bool]) -> set[str]:
    """All names, if they have no effect together, else those of each half; MOST_POWER_RUNS trials at most."""
    found: set[str] = set()
    groups = [names]
    for _ in range(MOST_POWER_RUNS):
        if not groups:
            break
        group = groups.pop(0)
        if group and has_effect(group):
            half = len(group) // 2
            groups += [group[:half], group[half:]] if half else []
        else:
            found |= set(group)
    return found


def parameter_powers(
    values: Mapping[str, Array],
    gradients: Mapping[str, Array],
    blind: Mapping[str, NDArray[np.bool_]],
    tensors: int,
) -> Iterator[ParameterPower]:
    """Yield one row for each parameter with elements; `tensors` is the number of compared ones."""
    for name, gradient in gradients.items():
        if gradient.size:
            moved = parameter_rms(values[name]) * float(np.linalg.norm(gradient))
            shows_at = sqrt(tensors) / moved if moved > SUSPECT_PARAMETER_MOVE else None
            count = int(np.count_nonzero(blind[name])) if name in blind else 0
            yield ParameterPower(name, gradient.size, count, shows_at, _state(count, gradient.size, shows_at))


def _state(blind: int, elements: int, shows_at: float | None) -> ParameterState:
    if blind == elements:
        return "blind"
    if shows_at is None:
        return "unknown"
    if shows_at > WEAK_CHANGE:
        return "weakly seen"
    return "partly blind" if blind else "seen"
