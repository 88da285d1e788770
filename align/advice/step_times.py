"""Evidence from the times of steps: the first one, steps that are slow like it, regularly, at epochs, or more and more.

A slow step counts for one kind of evidence only: for the first of these in that order that explains it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.advice.evidence import Evidence, StepPart, share_of
from align.advice.thresholds import (
    EPOCHS_SLOW,
    FAR_SLOWER,
    FEWEST_GROWING,
    FEWEST_SLOW,
    FEWEST_STEPS,
    GROWTH,
    REGULAR,
    SLOW_AS_FIRST,
    SLOWER_STEP,
)
from align.curves.compare_losses import warm_up
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.parameters import Array


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The steps of a training: seconds and waits for data (NaN where not told), each the mean of `spans` steps.

    `place` names a step; `epochs` is None where no epochs are told; `whole` tells whether it begins with step 1.
    """

    seconds: Array
    waits: Array
    spans: Array
    place: Callable[[int], str]
    epochs: Array | None
    whole: bool

    @property
    def total(self) -> float:
        """The time of all steps."""
        return float(np.sum(self.seconds * self.spans))

    @property
    def steady(self) -> Array:
        """Which times are those of usual steps: all but the first ones."""
        return np.arange(len(self.seconds)) >= (warm_up(self.seconds) if len(self.seconds) > 1 else 0)

    @property
    def step(self) -> float:
        """The usual time of a step."""
        return float(np.median(self.seconds[self.steady]))

    def parts(self) -> tuple[StepPart, ...]:
        """What waits for data of a mean step, and what does not."""
        seconds, waits = self.seconds[self.steady], self.waits[self.steady]
        if not np.isfinite(waits).any():
            return (StepPart("whole", "", float(np.mean(seconds))),)
        data = float(np.nanmean(waits))
        return StepPart("data", "", data), StepPart("whole", "", float(np.mean(seconds)) - data)


def step_evidence(series: StepSeries) -> Iterator[Evidence]:
    """All that the times of steps show."""
    yield from _first(series)
    yield from _waiting(series)
    if series.seconds.size < FEWEST_STEPS:
        return
    own = np.where(np.isfinite(series.waits), series.seconds - series.waits, series.seconds)
    slow = series.steady & (series.seconds > SLOWER_STEP * series.step)
    for ask in (_growing, _at_epochs, _like_the_first, _regular, _irregular):
        for evidence, explained in ask(series, own, slow):
            yield evidence
            slow = slow & ~explained


def _excess(series: StepSeries, which: Array) -> float:
    """What these steps take beyond the usual one, in seconds."""
    return float(np.sum((series.seconds[which] - series.step) * series.spans[which]))


def _first(series: StepSeries) -> Iterator[Evidence]:
    starts = ~series.steady
    if not series.whole or not starts.any():
        return
    cost = _excess(series, starts)
    ratio = float(series.seconds[0] * series.spans[0] / series.step)
    if ratio < FAR_SLOWER or cost <= 0:
        return
    share = share_of(cost, series.total)
    count = int(np.sum(series.spans))
    told = sentence("advice_seen.first_step", seconds=cost, ratio=ratio, usual=series.step, count=count)
    yield Evidence("first step", cost, share, series.place(0), told, values={"ratio": ratio, "steps": count})


def _waiting(series: StepSeries) -> Iterator[Evidence]:
    """Waiting for data, without the first steps, in which a loader starts."""
    known = series.steady & np.isfinite(series.waits)
    if not known.any():
        return
    waits = float(np.sum(series.waits[known] * series.spans[known]))
    total = float(np.sum(series.seconds[known] * series.spans[known]))
    if waits <= 0:
        return
    worst = int(np.flatnonzero(known)[np.argmax(series.waits[known])])
    told = sentence("advice_seen.data_wait", seconds=waits, step=waits / float(np.sum(series.spans[known])))
    yield Evidence("data wait", waits, share_of(waits, total), series.place(worst), told, values={"source": "log"})


def _growing(series: StepSeries, computing: Array, _slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """Steps that get slower all the time: each quarter is slower than the one before it."""
    steady = np.flatnonzero(series.steady)
    if len(steady) < FEWEST_GROWING:
        return
    quarters = [float(np.median(computing[part])) for part in np.array_split(steady, 4)]
    if quarters[3] < GROWTH * quarters[0] or any(np.diff(quarters) < (GROWTH - 1.0) / 8 * quarters[0]):
        return
    cost = float(np.sum((computing[steady] - quarters[0]) * series.spans[steady]))
    told = sentence("advice_seen.growing", first=quarters[0], last=quarters[3])
    share = share_of(cost, series.total)
    yield Evidence("growing steps", cost, share, series.place(int(steady[-1])), told), np.ones_like(series.steady)


def _at_epochs(series: StepSeries, _own: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """The first step of each epoch, as where workers are started anew."""
    if series.epochs is None:
        return
    first = np.append(False, np.diff(series.epochs) != 0)
    at = first & slow
    if int(at.sum()) < FEWEST_SLOW or at.sum() < EPOCHS_SLOW * first.sum():
        return
    cost = _excess(series, at)
    told = sentence("advice_seen.epochs", seconds=cost, count=int(at.sum()))
    place = series.place(int(np.flatnonzero(at)[0]))
    yield Evidence("slow first steps of epochs", cost, share_of(cost, series.total), place, told), at


def _like_the_first(series: StepSeries, computing: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """Steps that take far longer than usual without waiting for data, nearly as long as the first one."""
    usual = float(np.median(computing[series.steady]))
    first = float(computing[0] * series.spans[0]) if series.whole else np.inf
    own_excess = (computing - usual) * series.spans
    like = slow & (computing > FAR_SLOWER * usual) & (own_excess > SLOW_AS_FIRST * (first - usual))
    if int(like.sum()) < FEWEST_SLOW:
        return
    cost = float(np.sum(own_excess[like]))
    count, place = int(like.sum()), series.place(int(np.flatnonzero(like)[0]))
    told = sentence("advice_seen.like_first", count=count, seconds=cost, first=first)
    values = {"count": float(count), "each": cost / count}
    yield Evidence("slow as the first step", cost, share_of(cost, series.total), place, told, values=values), like


def _regular(series: StepSeries, computing: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    """Slow steps at equal distances: as many workers as lie between two, or something done each so many steps."""
    at = np.flatnonzero(slow)
    if len(at) <= FEWEST_SLOW:
        return
    (period, often), *_ = Counter(np.diff(at).tolist()).most_common(1)
    if period < 2 or often < REGULAR * (len(at) - 1):
        return
    cost = _excess(series, slow)
    by_data = float(np.sum(computing[slow])) / float(np.sum(series.seconds[slow])) < 1.0 / SLOWER_STEP
    told = sentence("advice_seen.regular", period=period, count=len(at), seconds=cost)
    values: dict[str, float | str] = {"period": float(period), "waits": str(by_data)}
    place = series.place(int(at[0]))
    yield Evidence("periodic slow steps", cost, share_of(cost, series.total), place, told, values=values), slow


def _irregular(series: StepSeries, _own: Array, slow: Array) -> Iterator[tuple[Evidence, Array]]:
    if int(slow.sum()) < FEWEST_SLOW:
        return
    cost, at = _excess(series, slow), np.flatnonzero(slow)
    told = sentence("advice_seen.irregular", count=len(at), seconds=cost)
    worst = series.place(int(at[np.argmax(series.seconds[at])]))
    yield Evidence("slow steps", cost, share_of(cost, series.total), worst, told), slow
