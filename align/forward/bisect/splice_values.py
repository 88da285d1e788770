"""The reference's values put into a run of the port at chosen points, and what comes of them measured at others."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from align.core.measurements import smallest_factor
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Capture, Trace


@dataclass(frozen=True, slots=True)
class Point:
    """Tensors of the two runs that are taken for the same."""

    reference: Capture
    candidate: Capture


class Splice:
    """An Intervention that puts the reference's values in at some points, and measures what is made at others.

    `factors` are the multiples of their limits, by the candidate's keys, of what the port itself makes at the others.
    """

    def __init__(
        self,
        reference: Trace,
        noise: Mapping[str, Measurement] | None,
        points: Iterable[Point],
        spliced: Set[str] = frozenset(),
    ) -> None:
        self._trace, self._noise, self._spliced = reference, noise, spliced
        self._points = {point.candidate.key: point.reference for point in points}
        self.factors: dict[str, float] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Leave the inputs as they are."""

    def add(self, capture: Capture, value: Array) -> None:
        """Measure a tensor at a point."""
        if (mine := self._points.get(capture.key)) is not None and capture.key not in self._spliced:
            self.factors[capture.key] = self._factor(mine, value)

    def instead(self, capture: Capture, value: Array) -> Array | None:
        """Return the reference's value at a point where it is to be put in."""
        mine = self._points.get(capture.key)
        if mine is None or capture.key not in self._spliced or mine.shape != value.shape:
            return None
        return self._trace.value(mine)

    def _factor(self, mine: Capture, value: Array) -> float:
        if mine.shape != value.shape:
            return inf
        measurement = measure(self._trace.value(mine), value)
        noise = None if self._noise is None else self._noise.get(mine.key)
        return smallest_factor(measurement, limit_for(measurement, (mine.dtype, value.dtype.name), noise))


def worst_factor(factors: Mapping[str, float], points: Sequence[Point]) -> float:
    """The worst at these points; infinite where one was not reached."""
    return max(factors.get(point.candidate.key, inf) for point in points)
