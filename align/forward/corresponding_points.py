"""Points of two runs that may be the same: those of paired layers, and by shape and order what lies between them.

Where many tensors have one shape, their order alone says little; their values say more: a fault changes them, but what
comes of it still resembles what it should be more than another layer's output does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from align.core.align_sequences import align_sequences
from align.core.measurements import smallest_factor
from align.errors import InputsError
from align.forward.layers.compare_traces import paired_outputs, shapes_differ
from align.forward.thresholds import MOST_ALIGNED_CELLS, PAIRED_POINT_SCORE
from align.measure.limits import limit_for
from align.measure.measure_arrays import measure
from align.measure.thresholds import SAMPLED_ELEMENTS
from align.words.catalogue import sentence, texts
from align.words.message_words import close_names, first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from align.core.dtypes import Array
    from align.core.measurements import Measurement
    from align.core.traces import Capture, Trace
    from align.forward.bisect_result import PointOrigin
    from align.traces.module_calls import CallPair


@dataclass(frozen=True, slots=True)
class CorrespondingPoints:
    """Points in the order of the run with their origins, and why others cannot be used."""

    points: tuple[Point, ...]
    origins: tuple[PointOrigin, ...]
    unusable: tuple[str, ...] = ()


def points_of_runs(reference: Trace, candidate: Trace, pairs: Iterable[CallPair]) -> CorrespondingPoints:
    """Points of certain pairs, and of tensors of one shape in between, in an order that both runs have."""
    left, right = ([one for one in trace.captures if one.module] for trace in (reference, candidate))
    anchors = {
        (a.key, b.key)
        for pair in pairs
        if pair.certain
        for a, b, obstacle in paired_outputs(pair.reference, pair.candidate)
        if not obstacle
    }
    if len(left) * len(right) > MOST_ALIGNED_CELLS:
        mine, theirs = {a for a, _ in anchors}, {b for _, b in anchors}
        left = [one for one in left if one.key in mine]
        right = [one for one in right if one.key in theirs]
    scores = _likeness(reference, left, candidate, right)
    rows, columns = ({one.key: n for n, one in enumerate(side)} for side in (left, right))
    for a, b in anchors:
        if a in rows and b in columns:
            scores[rows[a], columns[b]] = PAIRED_POINT_SCORE
    found = align_sequences(scores)
    points = tuple(Point(left[i], right[j]) for i, j in found)
    origins: list[PointOrigin] = ["paired" if scores[i, j] == PAIRED_POINT_SCORE else "shape" for i, j in found]
    return CorrespondingPoints(points, tuple(origins))


def points_as_given(reference: Trace, candidate: Trace, given: Mapping[str, str]) -> CorrespondingPoints:
    """Points that the user names as `PATH`, `PATH#CALL` or `PATH#CALL:OUTPUT`; raises InputsError listing unknown ones.

    Those of unequal shapes, and those that run in another order than the ones before them, are unusable.
    """
    faults: list[str] = []
    found = [
        Point(a, b)
        for one, other in given.items()
        if (a := _found(reference, one, faults)) and (b := _found(candidate, other, faults))
    ]
    if faults:
        message, hint = texts("forward_error.points_not_in_runs")
        raise InputsError(message, hint, faults)
    found.sort(key=lambda point: point.reference.order)
    usable: list[Point] = []
    unusable = []
    for point in found:
        if obstacle := _obstacle(point, usable):
            mine, theirs = point.reference.key, point.candidate.key
            why = sentence("bisect_finding.point_unusable", reference=mine, candidate=theirs, obstacle=obstacle)
            unusable.append(why)
        else:
            usable.append(point)
    origins: list[PointOrigin] = ["given" for _ in usable]
    return CorrespondingPoints(tuple(usable), tuple(origins), tuple(unusable))


def _obstacle(point: Point, before: Sequence[Point]) -> str:
    if point.reference.shape != point.candidate.shape:
        return shapes_differ(point.reference.shape, point.candidate.shape)
    if before and before[-1].candidate.order >= point.candidate.order:
        return sentence("bisect_finding.other_order", point=point.candidate.key, before=before[-1].candidate.key)
    return ""


def _found(trace: Trace, named: str, faults: list[str]) -> Capture | None:
    path, _, rest = named.partition("#")
    call, _, output = rest.partition(":")
    own = [one for one in trace.captures if one.module == path and str(one.call) == (call or "0")]
    chosen = [one for one in own if one.output == output] if output or len(own) > 1 else own
    if not chosen:
        outputs = f"; its outputs: {', '.join(one.key for one in own)}" if own else ""
        close = close_names([path], {one.module for one in trace.captures})[path]
        hint = f"; close to it: {first_few(close)}" if close and not own else ""
        faults.append(f"{named}{outputs}{hint}")
        return None
    return chosen[0]


def _likeness(reference: Trace, left: Sequence[Capture], candidate: Trace, right: Sequence[Capture]) -> Array:
    """Scores (rows, columns): 0 for unlike shapes, else 1 and up to 1 more for values that vary alike."""
    scores = np.zeros((len(left), len(right)))
    for shape in sorted({one.shape for one in left} & {one.shape for one in right}):
        rows, columns = ([n for n, one in enumerate(side) if one.shape == shape] for side in (left, right))
        mine = np.stack([*_directions(reference, (left[n] for n in rows))])
        theirs = np.stack([*_directions(candidate, (right[n] for n in columns))])
        scores[np.ix_(rows, columns)] = 1.0 + np.clip(mine @ theirs.T, 0.0, 1.0)
    return scores


def _directions(trace: Trace, captures: Iterable[Capture]) -> Iterator[Array]:
    """Some elements of each tensor, without their mean and of norm 1."""
    for one in captures:
        value = trace.value(one).reshape(-1)
        some_of = value[:: max(value.size // SAMPLED_ELEMENTS, 1)][:SAMPLED_ELEMENTS]
        real = np.abs(some_of) if some_of.dtype.kind == "c" else some_of.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # of NaN and Inf, which vary like nothing
            varying = real - (real.mean() if real.size else 0.0)
            norm = float(np.sqrt((varying * varying).sum()))
        yield varying / norm if 0.0 < norm < np.inf else np.zeros(real.shape)


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
        spliced: Set[str],
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
