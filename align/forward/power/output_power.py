"""How much compared tensors of the reference move when it is given other inputs, and which of them are at an end.

Other inputs are drawn from the values that the input has: word indices stay words, pixels stay in their range. What
looks like a mask or an order (two values; whole numbers that rise or fall) may not be mixed: samples exchange theirs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.core.dtypes import is_float
from align.core.measurements import smallest_factor
from align.forward.power_result import OutputPower
from align.forward.thresholds import LEAST_SATURATED_ELEMENTS, MOST_INPUTS_ALONE, SATURATED_SHARE
from align.measure.limits import rounding_limit
from align.measure.measure_arrays import measure
from align.measure.slices import slices_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.measurements import Limit
    from align.core.traces import Capture, Trace
    from align.forward.power_result import OutputState

_SEED = 0  # no limit: of its own generator


class MovementSink:
    """A CaptureSink that measures, in multiples of their limits, how far tensors lie from those of an ordinary run.

    Tensors without a limit were not compared: they do not count. Another shape is a movement without bound; NaN and Inf
    that the ordinary run lacks are none, for a strange input may make them anywhere.
    """

    def __init__(self, ordinary: Trace, limits: Mapping[str, Limit]) -> None:
        self._ordinary, self._limits = ordinary, limits
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self.factors: dict[str, float] = {}

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same, limit = self._captures.get(capture.key), self._limits.get(capture.key)
        if same is None or limit is None:
            return
        if same.shape != capture.shape:
            self.factors[capture.key] = float("inf")
            return
        self.factors[capture.key] = max(self._factors(same, value, limit))

    def _factors(self, same: Capture, value: Array, limit: Limit) -> Iterator[float]:
        """How far the whole has moved, and its parts that are judged apart, by what rounding may do to them."""
        ordinary = self._ordinary.value(same)
        yield smallest_factor(replace(measure(ordinary, value), non_finite_mismatch=0), limit)
        flat = ordinary.reshape(-1), value.reshape(-1)
        for part in slices_of(ordinary):
            own = replace(measure(*(one[part.elements] for one in flat)), non_finite_mismatch=0)
            yield smallest_factor(own, rounding_limit(own, same.dtype))


def output_powers(
    trace: Trace, limits: Mapping[str, Limit], runs: Sequence[Mapping[str, float]]
) -> Iterator[OutputPower]:
    """Yield one row for each compared tensor: the farthest that it moved in any of the runs, and its state."""
    for c in trace.captures:
        if c.key in limits:
            moved = max((run[c.key] for run in runs if c.key in run), default=None)
            yield OutputPower(c.module, c.call, c.output, c.class_name, moved, _state(trace.value(c), limits[c.key]))


def _state(value: Array, limit: Limit) -> OutputState:
    """Whether differences inside a tensor are too small for its limit, all of them or all but those of two ends."""
    finite = value[np.isfinite(value)] if is_float(value.dtype.name) else np.empty(0)
    if finite.size < 2:  # one element differs from nothing
        return ""
    low, high = finite.min(), finite.max()
    if high - low <= limit.max_abs:
        return "constant"
    inside = np.count_nonzero((finite > low + limit.max_abs) & (finite < high - limit.max_abs))
    return (
        "saturated" if finite.size >= LEAST_SATURATED_ELEMENTS and inside <= (1 - SATURATED_SHARE) * finite.size else ""
    )


def unrelated_inputs(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Other values for those inputs that have any; masks and orders are mixed only if nothing else can be changed."""
    generator = np.random.default_rng(_SEED)
    gentle = {n: _exchanged(v) if _is_structure(v) else _redrawn(v, generator) for n, v in inputs.items()}
    changed = _changed(inputs, gentle)
    return changed or _changed(inputs, {name: _redrawn(value, generator) for name, value in inputs.items()})


def replaced_in_turn(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Inputs of one run each, by the names of those that are replaced: the first few alone, all further ones together.

    So a model with many inputs, as with a cache, costs no more than MOST_INPUTS_ALONE runs.
    """
    names = list(others)
    alone = MOST_INPUTS_ALONE if len(names) <= MOST_INPUTS_ALONE else MOST_INPUTS_ALONE - 1
    groups = [[name] for name in names[:alone]] + ([names[alone:]] if names[alone:] else [])
    return {", ".join(group): {**inputs, **{name: others[name] for name in group}} for group in groups}


def _is_structure(value: Array) -> bool:
    if not value.size:
        return True
    low, high = value.min(), value.max()
    if low != high and ((value == low) | (value == high)).all():
        return True
    if value.dtype.kind not in "iu" or not value.ndim or value.shape[-1] < 2:
        return bool(value.dtype.kind == "b")
    earlier, later = value[..., :-1], value[..., 1:]
    return bool((earlier <= later).all() or (earlier >= later).all())


def _exchanged(value: Array) -> Array:
    return np.roll(value, 1, axis=0) if value.ndim else value


def _redrawn(value: Array, generator: np.random.Generator) -> Array:
    """Draw each element from all of them; floats that are all alike become normal ones of that size."""
    flat = value.reshape(-1)
    if not flat.size:
        return value
    if value.dtype.kind in "fcV" and (flat == flat[0]).all():
        size = abs(flat[0].astype(np.complex128)) or 1.0
        normal: Array = (size * generator.standard_normal(value.shape)).astype(value.dtype)
        return normal
    drawn: Array = flat[generator.integers(0, flat.size, flat.size)].reshape(value.shape)
    return drawn


def _changed(inputs: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, Array]:
    return {name: other for name, other in others.items() if not np.array_equal(other, inputs[name])}
