"""Points missing inside a log, by the log's own cadence.

A log may print every tenth step, the ends of epochs, or all steps at first and some later: that is its cadence, and
nothing is missing. A distance that is wider without a pattern is a hole, if the other log has points in it.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.thresholds import NARROW_DISTANCES, PERIODS_TRIED

if TYPE_CHECKING:
    from align.curves.loss_log import Integers


class MissingSteps(NamedTuple):
    """Nothing between two steps of a log, although `missing` points are expected there, as the other log has them."""

    before: int
    after: int
    missing: int


def find_missing_steps(steps: Integers, other: Integers | None = None) -> tuple[MissingSteps, ...]:
    """Find the holes in the increasing `steps` of a log against those of the other; None: against every step."""
    if len(steps) < 2:
        return ()
    wide, expected = _unexplained(steps)
    inside = steps[wide] - steps[wide - 1] - 1
    if other is not None:
        inside = np.searchsorted(other, steps[wide], "left") - np.searchsorted(other, steps[wide - 1], "right")
    missing = np.minimum(inside, expected)
    columns = (column[missing > 0].tolist() for column in (steps[wide - 1], steps[wide], missing))
    return tuple(starmap(MissingSteps, zip(*columns, strict=True)))


def places_after_missing_steps(steps: Integers) -> Integers:
    """Return the places of points before which others seem to be missing; the first if the log starts late."""
    if len(steps) < 2:
        return np.zeros(0, np.int64)
    wide, _ = _unexplained(steps)
    return np.append(0, wide) if steps[0] > usual_distance(steps) else wide


def starts_late(steps: Integers, other: Integers) -> bool:
    """Tell whether a log lacks its beginning: it starts later than its distances explain, and after the other."""
    return bool(len(steps) and len(other) and steps[0] > max(usual_distance(steps), other[0]))


def usual_distance(steps: Integers) -> int:
    """Return the distance that half of the points keep from the one before, or from step 0; 1 for fewer than two."""
    gaps, middle = np.diff(steps, prepend=0), (len(steps) - 1) // 2
    return int(np.partition(gaps, middle)[middle]) if len(gaps) > 1 else 1


def _unexplained(steps: Integers) -> tuple[Integers, Integers]:
    """Return the places after distances wider than the cadence that follow no pattern, and how many points each lacks.

    A lost point leaves twice the cadence; less is what an epoch's end leaves of it, if a log counts anew in each epoch.
    A log that prints its first step and then every n-th has one distance that is shorter by one: it counts as n. The
    distance from step 0 to the first point is none.
    """
    gaps = np.diff(steps, prepend=0)
    if gaps.min() == gaps.max():
        return gaps[:0], gaps[:0]
    cadence = np.maximum(usual_distance(steps), _width_of_runs(gaps))
    twice = gaps + (steps - gaps == 1) >= 2 * cadence
    wide = np.flatnonzero(twice & (gaps > cadence + (cadence > 1)))
    wide = wide[wide > 0]
    if _repeats_with_epochs(gaps, wide):
        wide = wide[:0]
    return wide, -(-gaps[wide] // cadence[wide]) - 1


def _width_of_runs(gaps: Integers) -> Integers:
    """Return for each place the distance that was last kept three times in a row, or is from the next place on."""
    run = np.zeros(len(gaps), np.bool_)
    same = np.flatnonzero((gaps[:-2] == gaps[1:-1]) & (gaps[1:-1] == gaps[2:]))
    for offset in range(3):
        run[same + offset] = True
    latest = np.maximum.accumulate(np.where(run, np.arange(len(gaps)), -1))
    width = np.where(latest >= 0, gaps[latest], 0)
    widest: Integers = np.maximum(width, np.append(np.where(run, gaps, 0)[1:], 0))
    return widest


def _repeats_with_epochs(gaps: Integers, wide: Integers) -> bool:
    """Tell whether the distances repeat, two times or more, as the first, every n-th and the last of an epoch do."""
    periods = wide[1:] - wide[:1]
    for period in periods[(wide[:1] < periods) & (periods <= len(gaps) // 2)][:PERIODS_TRIED].tolist():
        first = gaps[:period]
        narrow = np.count_nonzero(first < first.max() - 1)
        once = narrow <= NARROW_DISTANCES and np.array_equal(first, gaps[period : 2 * period])
        if once and np.array_equal(gaps[period:], gaps[:-period]):
            return True
    return False
