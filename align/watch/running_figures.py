"""Figures of the last steps: the ring that is shown, running medians, what comes near the end of float16."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite, log2
from statistics import median
from typing import TYPE_CHECKING, Literal

from align.watch.find_explosion import UsualSizes, find_explosion, sizes_of
from align.watch.nonfinite_result import CallFigures, NearOverflow
from align.watch.thresholds import (
    EXPLOSION_FEWEST_STEPS,
    EXPLOSION_HISTORY,
    FIGURES_BEFORE,
    FLOAT16_LARGEST,
    NEAR_SHOWN,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from align.watch.find_explosion import Explosion
    from align.watch.recorded_pass import Arrival, Record, RecordedPass

Key = tuple[str, str, int, str, int]
Way = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One tensor of a step that is shown: what made it, and on which way; `arrival` is the gradient."""

    key: Key
    direction: Way
    record: Record
    arrival: Arrival | None
    rms: float


class RunningFigures:
    """Keeps the figures of `keep` steps, and medians over more."""

    def __init__(self, keep: int, factor: float) -> None:
        self.factor = factor
        self.ring: deque[tuple[int, dict[Key, float]]] = deque(maxlen=keep)
        self.near: list[NearOverflow] = []
        self._history: dict[Hashable, deque[float]] = {}

    def explosion(self, seen: RecordedPass) -> Explosion | None:
        """What made the first tensor of the pass that is above the factor."""
        sizes = [*sizes_of(seen)]
        long = {one.same for one in sizes if len(self._history.get(one.same, ())) >= EXPLOSION_FEWEST_STEPS}
        medians = {one.same: median(self._history[one.same]) for one in sizes if one.same in self._history}
        return find_explosion(seen, UsualSizes(sizes, medians, long), self.factor)

    def add(self, step: int, seen: RecordedPass) -> None:
        """Take the figures of a step that was sound."""
        self.ring.append((step, {one.key: one.rms for one in figures_of(seen)}))
        for same, rms in {one.same: one.rms for one in sizes_of(seen)}.items():
            self._history.setdefault(same, deque(maxlen=EXPLOSION_HISTORY)).append(rms)

    def note_near(self, step: int, seen: RecordedPass, loss_scale: float) -> None:
        """Keep what comes near the end of float16, the largest first, each tensor once."""
        for one in figures_of(seen):
            largest = one.arrival.largest if one.arrival is not None else one.record.largest
            if largest is not None and largest > FLOAT16_LARGEST / 4 and isfinite(largest):
                back = one.direction == "backward"
                scale = scale_for(largest, loss_scale) if back else None
                self.near.append(
                    NearOverflow(
                        one.record.path,
                        one.record.name,
                        one.direction,
                        step,
                        largest,
                        loss_scale if back else None,
                        scale,
                    )
                )
        best: dict[tuple[str, str, str], NearOverflow] = {}
        for near in sorted(self.near, key=lambda each: -each.largest):
            best.setdefault((near.layer, near.operator, near.direction), near)
        self.near = [*best.values()][:NEAR_SHOWN]

    def before(
        self, step: int, seen: RecordedPass, record: Record | None, arrival: Arrival | None, way: str
    ) -> tuple[tuple[int, ...], tuple[CallFigures, ...]]:
        """The calls up to the one at fault, with their figures of the last steps; steps, and rows."""
        figures = [one for one in figures_of(seen, failing=True) if one.direction == way or way == "update"]
        place = next((n for n, one in enumerate(figures) if _is(one, record, arrival)), len(figures) - 1)
        shown = figures[max(0, place - FIGURES_BEFORE + 1) : place + 1]
        steps = [(number, known) for number, known in self.ring if number != step]
        steps = steps[-(self.ring.maxlen or 1) + 1 :] if self.ring.maxlen != 1 else []
        rows = tuple(_row(one, [known.get(one.key) for _, known in steps]) for one in shown)
        return (*(number for number, _ in steps), step), rows


def figures_of(seen: RecordedPass, *, failing: bool = False) -> Iterator[Figure]:
    """All tensors of a pass, forward in order of return, then gradients in order of coming; those of calls only."""
    for record in seen.records:
        if failing or isfinite(record.norm):
            yield Figure(("forward", *record.key), "forward", record, None, record.rms)
    for one in seen.arrivals:
        if one.parameter or one.again or one.changed:
            continue
        maker = one.place.producer or next(iter(one.place.consumers), None)
        if maker is not None and (failing or isfinite(one.norm)):
            name = "" if one.place.producer is not None else "input of "
            yield Figure(
                ("backward", maker.path, maker.call, name + maker.name, maker.index), "backward", maker, one, one.rms
            )


def scale_for(largest: float, loss_scale: float) -> float:
    """The largest power of two that keeps a gradient of this size, under this loss scale, below a quarter of 65504."""
    return float(2.0 ** int(log2(max(loss_scale * FLOAT16_LARGEST / 4 / largest, 2.0**-24)) // 1))


def _is(figure: Figure, record: Record | None, arrival: Arrival | None) -> bool:
    return figure.arrival is arrival if arrival is not None else figure.record is record and figure.arrival is None


def _row(figure: Figure, earlier: Sequence[float | None]) -> CallFigures:
    made = figure.record
    return CallFigures(made.path, made.call, made.name, made.line, figure.direction, (*earlier, figure.rms))
