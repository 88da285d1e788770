"""Steps that changed no weight, as gradients overflowed: kept on the axis though they may have no loss.

A log tells of single steps, or of how many there were since its last print; then which ones is not known, and what
is counted of two logs is what they may have in common at most.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.loss_log import Skips
from align.curves.metric_names import is_loss
from align.curves.thresholds import SKIPS_AT_THE_END

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Curve, Integers, LossLog, Series

NO_STEPS = np.zeros(0, np.int64)
NO_SKIPS = Skips(NO_STEPS, NO_STEPS, NO_STEPS)


class SkippedByOneSide(NamedTuple):
    """Steps that one log alone skipped: how many, and the first; if not `exact` it is that one or one before."""

    steps: int
    first: int
    exact: bool


class SkipComparison(NamedTuple):
    """Skipped steps of two logs: those that each has alone, and how many both have, at most where a log names none."""

    reference: SkippedByOneSide
    candidate: SkippedByOneSide
    shared: int


class SkippedRuns(NamedTuple):
    """Skipped steps in a row: `counts` from `first` to `last`, all that the log tells of these where `whole`."""

    first: Integers
    last: Integers
    counts: Integers
    whole: Booleans

    @property
    def steps(self) -> Integers:
        """The first step of each; of a print that counts some of many, its own."""
        return np.where(self.whole, self.first, self.last)


def with_skipped(log: LossLog, series: Series, metric: str) -> tuple[Series, Booleans]:
    """Add NaN for records without a loss, as all their steps were skipped, and tell which values are the log's own."""
    if log.table.skipped is None or series.phase != "training" or not is_loss(metric):
        return series, np.ones(len(series.rows), np.bool_)
    rows = np.union1d(series.rows, np.flatnonzero(log.table.skipped))
    printed = np.isin(rows, series.rows, assume_unique=True)
    at = np.searchsorted(series.rows, rows[printed])
    values, resolution = np.full(len(rows), np.nan), np.zeros(len(rows))
    values[printed], resolution[printed] = series.values[at], series.resolution[at]
    return replace(series, rows=rows, values=values, resolution=resolution), printed


def skips_of(log: LossLog, rows: Integers, steps: Integers) -> Skips | None:
    """Return the spans of records, at increasing steps, with skipped steps; the loss tells how wide they are."""
    counts = NO_STEPS if log.table.skipped is None else log.table.skipped[rows].astype(np.int64)
    if not counts.any():
        return None
    some = counts > 0
    ends, counts = steps[some], counts[some]
    if log.skips_between:
        before = np.append(max(int(steps[0] - counts[0]), 0) if some[0] else 0, steps[:-1])[some]
        return Skips(before, ends, np.minimum(counts, np.maximum(ends - before, 1)), left_out=False)
    loss = log.series("loss")
    width = loss.window.length if loss else 1
    return Skips(np.maximum(ends - np.maximum(width, counts), 0), ends, counts)


def group_skips(skips: Skips | None, size: int) -> Skips | None:
    """Take every `size` steps as one; a group is skipped if one of its steps is."""
    if skips is None:
        return None
    ends, at = np.unique(-(-skips.ends // size), return_inverse=True)
    starts = np.full(len(ends), np.iinfo(np.int64).max)
    np.minimum.at(starts, at, skips.starts // size)
    counts = -(-np.bincount(at, weights=skips.counts).astype(np.int64) // size)
    return replace(skips, starts=starts, ends=ends, counts=counts)


def printed_steps(curve: Curve) -> Integers:
    """Return the steps that a log tells of: those with a value, and those without one as all since the last skipped."""
    return curve.steps if curve.skips is None else np.union1d(curve.steps, curve.skips.ends[curve.skips.whole])


def fill_skipped(curve: Curve) -> tuple[Curve, Booleans]:
    """Put NaN at steps without a value, as all since the last were skipped; tell which points are the log's own."""
    steps = printed_steps(curve)
    if len(steps) == len(curve.steps):
        return curve, np.ones(len(steps), np.bool_)
    printed = np.isin(steps, curve.steps, assume_unique=True)
    values, resolution = np.full(len(steps), np.nan), np.zeros(len(steps))
    values[printed], resolution[printed] = curve.values, curve.resolution
    resumed = None if curve.resumed is None else np.isin(steps, curve.steps[curve.resumed])
    return replace(curve, steps=steps, values=values, resolution=resolution, resumed=resumed), printed


def steps_to_the_end(curve: Curve) -> Integers:
    """Return the steps that a log tells of, up to the last value if nothing but skipped steps comes after it."""
    steps, runs = printed_steps(curve), skipped_runs(curve)
    at_the_end = (runs.last == steps[-1:]) & runs.whole & (runs.counts >= SKIPS_AT_THE_END)
    return curve.steps if at_the_end.any() else steps


def count_within(skips: Skips | None, starts: Integers, ends: Integers) -> Integers:
    """Count the skipped steps in each (start, end]."""
    if skips is None:
        return np.zeros(len(ends), np.int64)
    running = np.append(0, np.cumsum(skips.counts))
    upto = running[np.searchsorted(skips.ends, ends, "right")]
    counts: Integers = upto - running[np.searchsorted(skips.ends, starts, "right")]
    return counts


def left_out_within(skips: Skips | None, starts: Integers, ends: Integers) -> Integers:
    """Count the skipped steps in each (start, end] that a printed mean over it lacks."""
    return count_within(skips if skips is not None and skips.left_out else None, starts, ends)


def until_step(skips: Skips | None, last_step: int) -> Skips | None:
    """Leave out what was skipped after a step; None if nothing is left."""
    return None if skips is None or skips.ends[0] > last_step else skips.take(skips.ends <= last_step)


def skipped_runs(curve: Curve) -> SkippedRuns:
    """Put together what was skipped in all prints in a row."""
    skips = curve.skips
    if skips is None:
        return SkippedRuns(NO_STEPS, NO_STEPS, NO_STEPS, NO_STEPS > 0)
    place, whole = np.searchsorted(printed_steps(curve), skips.ends), skips.whole
    joins = whole[1:] & whole[:-1] & (np.diff(place) == 1)
    first, last = np.append(True, ~joins), np.append(~joins, True)
    counts = np.add.reduceat(skips.counts, np.flatnonzero(first))
    return SkippedRuns(skips.starts[first] + 1, skips.ends[last], counts, whole[first])


def compare_skips(reference: Skips | None, candidate: Skips | None) -> SkipComparison:
    """Count the steps that one side alone skipped, and those that both may have, in stretches that no span leaves."""
    sides = reference or NO_SKIPS, candidate or NO_SKIPS
    starts, ends = (np.concatenate([getattr(side, name) for side in sides]) for name in ("starts", "ends"))
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    begins = starts[order][np.append(True, starts[order][1:] >= reach[:-1])[: len(order)]]
    places = [np.searchsorted(begins, side.starts, "right") - 1 for side in sides]
    counts = [
        np.bincount(place, weights=side.counts, minlength=len(begins)).astype(np.int64)
        for place, side in zip(places, sides, strict=True)
    ]
    both = np.minimum(*counts)
    left, right = (_lone(side, place, own, both) for side, place, own in zip(sides, places, counts, strict=True))
    return SkipComparison(left, right, int(both.sum()))


def _lone(skips: Skips, place: Integers, counts: Integers, both: Integers) -> SkippedByOneSide:
    """Tell what a side skipped beyond `both`, by the stretch that each of its spans is in."""
    alone = counts - both
    if not alone.any():
        return SkippedByOneSide(0, 0, exact=True)
    inside = np.flatnonzero(place == np.argmax(alone > 0))
    first, last = inside[0], inside[-1]
    exact = bool(skips.whole[first] and not both[place[first]])
    return SkippedByOneSide(int(alone.sum()), int(skips.starts[first] + 1 if exact else skips.ends[last]), exact)
