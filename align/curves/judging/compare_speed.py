"""Whether the candidate is slower, and in what: its first steps, its data, its computation, or a few slow steps.

The mean step is split into three parts that sum up to it, and the one by which the candidate is slower most is the
answer: data = mean waiting for data; compute = median step - median waiting; tail = what slow steps add to that.
Where the steps take alike, the first ones can still make the difference: they are paid once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.global_steps import number_steps
from align.curves.axis.missing_steps import usual_distance
from align.curves.criteria_thresholds import (
    FEW_TIMES,
    MOST_WARM_UP,
    SLOWER_RATIO,
    TAIL_PERCENTILE,
    WARM_UP_SHARE,
    WARMING_UP,
)
from align.curves.curve_result import SideSpeed, SpeedComparison
from align.curves.loss_log import RAW, SINCE_LAST_PRINT
from align.errors import StepsPerEpochError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.curve_result import Bound
    from align.curves.loss_log import Floats, Integers, LossLog, Series


class _Times(NamedTuple):
    """The step times of one side in seconds, without the first steps, and how long each waited for data.

    `waits` is NaN where the log does not tell, `spans` says how many steps each time stands for; `start` is what the
    first steps took beyond the mean of the others.
    """

    steady: Floats
    waits: Floats
    spans: Integers
    start: float
    series: Series
    speed: SideSpeed


class _Parts(NamedTuple):
    data: float
    compute: float
    tail: float


def compare_speed(
    reference: LossLog, candidate: LossLog, steps_per: tuple[int, int] = (1, 1)
) -> SpeedComparison | None:
    """Compare the step times of two logs; None unless both tell them.

    `steps_per` says how many steps each side takes for the same samples: (2, 1) if the reference has half the batch.
    `ratio` and `slow_in` hold for the same samples, the figures of a side for its own steps.
    """
    left, right = _times_of(reference), _times_of(candidate)
    if left is None or right is None:
        return None
    slow_in = _slow_in(left, right, steps_per)
    return SpeedComparison(
        reference=left.speed,
        candidate=right.speed,
        ratio=right.speed.median * steps_per[1] / (left.speed.median * steps_per[0]),
        slow_in=slow_in,
        notes=(*_notes("reference", left), *_notes("candidate", right), *_doubts(left, right, slow_in)),
    )


def _times_of(log: LossLog) -> _Times | None:
    series = _step_times(log)
    if series is None or series.phase != "training":
        return None
    usable = np.isfinite(series.values) & (series.values > 0)
    if not usable.any():
        return None
    spans, from_start = _spans(log, series)
    times, spans = series.values[usable], spans[usable]
    waits = _waits(log, series)[usable]
    first = _warm_up(times)
    steady = times[first:]
    speed = SideSpeed(
        median=float(np.median(steady)),
        tail=float(np.percentile(steady, TAIL_PERCENTILE)),
        first_step=_first_step(times, spans, series) if first and from_start and usable[0] else None,
        warm_up=int(spans[:first].sum()),
        data_share=float(np.nanmean(waits[first:]) / np.mean(steady)) if np.isfinite(waits[first:]).any() else None,
        total=float(np.sum(times * spans)),
    )
    start = float(np.sum((times[:first] - np.mean(steady)) * spans[:first]))
    return _Times(steady, waits[first:], spans[first:], start, series, speed)


def _step_times(log: LossLog) -> Series | None:
    """Return the time of a step, or its mean since the last print where the log tells the time of all these steps."""
    series, together = log.series("step_time"), log.series("interval_time")
    if series is not None or together is None:
        return series
    return replace(together, values=together.values / _spans(log, together)[0], window=SINCE_LAST_PRINT)


def _spans(log: LossLog, series: Series) -> tuple[Integers, bool]:
    """Return how many steps each time stands for, and whether the first one's begin at step 1.

    They are those since the time before, one if the log leaves that open. A log that begins later than its own distance
    explains, or whose first mean begins later, tells nothing of step 1.
    """
    ones = np.ones(len(series.rows), np.int64)
    try:
        numbering = number_steps(log, series)
    except StepsPerEpochError:
        return ones, False
    if numbering.axis == "epoch":
        return ones, False
    steps, apart = numbering.steps, usual_distance(numbering.steps)
    spans = np.maximum(np.diff(steps, prepend=0), 1)
    of_last = series.window.length if series.window.length > 1 else int(spans[0])
    late = steps[0] > apart or of_last < steps[0]
    if late:
        spans[0] = min(int(spans[0]), apart)
    return spans, not late


def _waits(log: LossLog, series: Series) -> Floats:
    """Return the time that each step waited for data, NaN where the log tells none, or more than the step took."""
    waits = np.full(len(log.table.steps), np.nan)
    data = log.series("data_time")
    if data is None or data.phase != "training":
        return waits[series.rows]
    waits[data.rows] = data.values
    waits = waits[series.rows]
    return np.where((waits >= 0) & (waits <= series.values), waits, np.nan)


def _warm_up(times: Floats) -> int:
    """Return how many first times to leave out: the first one, and all slow ones that follow it at once."""
    most = min(MOST_WARM_UP, max(1, int(WARM_UP_SHARE * len(times))), len(times) - 1)
    slow = times[:most] > WARMING_UP * np.median(times[len(times) // 2 :])
    return max(int(np.argmin(np.append(slow, False))), min(most, 1))


def _first_step(times: Floats, spans: Integers, series: Series) -> float | None:
    """Return the time of step 1; of a mean, what the first one is above the median of the others falls to it."""
    if series.window == RAW:
        return float(times[0]) if spans[0] == 1 else None
    return float(times[0] + (spans[0] - 1) * max(times[0] - np.median(times[1:]), 0.0))


def _slow_in(left: _Times, right: _Times, steps_per: tuple[int, int]) -> Bound:
    both_wait = np.isfinite(left.waits).any() and np.isfinite(right.waits).any()
    alike = left.series.window == right.series.window
    parts = [_parts(side, count, bool(both_wait), alike) for side, count in zip((left, right), steps_per, strict=True)]
    excess = _Parts(*(own - other for own, other in zip(parts[1], parts[0], strict=True)))
    if sum(parts[1]) >= SLOWER_RATIO * sum(parts[0]):
        names: tuple[Bound, ...] = ("data", "compute", "tail")
        return names[int(np.argmax(excess))]
    groups = min(int(side.spans.sum()) / count for side, count in zip((left, right), steps_per, strict=True))
    return "start" if right.start - left.start >= (SLOWER_RATIO - 1.0) * groups * sum(parts[0]) else "none"


def _parts(side: _Times, steps: int, by_data: bool, with_tail: bool) -> _Parts:
    """Split the mean time of `steps` steps; without data times, or times of one kind, parts are left in `compute`."""
    mean, median = float(np.mean(side.steady)), float(np.median(side.steady))
    waits = side.waits[np.isfinite(side.waits)] if by_data else np.zeros(1)
    data = float(np.mean(waits))
    compute = median - float(np.median(waits)) if with_tail else mean - data
    return _Parts(data * steps, compute * steps, (mean - data - compute) * steps)


def _notes(name: str, side: _Times) -> list[str]:
    notes: list[str] = []
    if len(side.steady) < FEW_TIMES:
        notes.append(sentence("speed_note.few_times", count=len(side.steady), side=name))
    if side.series.window != RAW and side.speed.first_step is not None:
        notes.append(sentence("speed_note.first_of_means", side=name))
    return notes


def _doubts(left: _Times, right: _Times, slow_in: Bound) -> list[str]:
    notes: list[str] = []
    if left.series.window != right.series.window:
        notes.append(sentence("speed_note.unlike_spans"))
    if slow_in == "compute" and not all(np.isfinite(side.waits).any() for side in (left, right)):
        notes.append(sentence("speed_note.waiting_untold"))
    return notes
