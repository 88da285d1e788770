"""Which steps each value of a curve is the mean of, and means over wider spans made from them.

A mean is made only of values that fill its span, without a gap or an overlap, so it is what a log would have printed
but for rounding. A span that a log does not tell, as after a lost line, is never guessed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.axis.missing_steps import places_after_missing_steps
from align.curves.axis.skipped_steps import left_out_within
from align.curves.loss_log import RAW

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Curve, Floats, Integers

UNKNOWN = -1  # format: the mark of a start that is not known
MEDIAN = "median of last"


class Spans(NamedTuple):
    """Value i is the mean over the steps in (starts[i], ends[i]]; a start is UNKNOWN where the log does not tell it."""

    starts: Integers
    ends: Integers


class Tiles(NamedTuple):
    """Spans that values of a finer curve fill: values [first, stop) fill the one that stops at `ends`."""

    first: Integers
    stop: Integers
    ends: Integers

    @property
    def many(self) -> Booleans:
        """Tell which spans take more than one value."""
        return self.stop - self.first > 1

    def take(self, which: Booleans) -> Tiles:
        """Return some of them."""
        return Tiles(self.first[which], self.stop[which], self.ends[which])


class Averages(NamedTuple):
    """A curve over wider spans; `used` counts the points that went in, `means` the values made of several.

    `unlike` counts those that were not made, as other steps are left out of them on the other side.
    """

    curve: Curve
    used: int
    means: int
    unlike: int = 0


def spans_of(curve: Curve) -> Spans:
    """Return the span of each value on the step axis, by the curve's window."""
    steps, kind, length = curve.steps, curve.window.kind, curve.steps_per_epoch
    if kind == "raw":
        return Spans(steps - 1, steps)
    if kind in ("mean of last", MEDIAN):
        return Spans(np.maximum(steps - curve.window.length, 0), steps)
    if kind == "since last print" or (kind == "epoch mean" and length is None):
        return Spans(_since_previous(curve), steps)
    return Spans(np.full(len(steps), UNKNOWN) if length is None else (steps - 1) // length * length, steps)


def tile(fine: Spans, wide: Spans) -> Tiles:
    """Find the wide spans that fine ones fill, side by side; one of the same span does so alone."""
    if not len(fine.ends):
        return Tiles(fine.ends, fine.ends, fine.ends)
    last = np.minimum(np.searchsorted(fine.ends, wide.ends), len(fine.ends) - 1)
    after_start = np.minimum(np.searchsorted(fine.ends, wide.starts, "right"), last)
    first = np.where(fine.starts[last] == wide.starts, last, after_start)
    breaks = np.concatenate([[0], np.cumsum(fine.starts[1:] != fine.ends[:-1])])
    filled = (fine.ends[last] == wide.ends) & (fine.starts[first] == wide.starts) & (breaks[first] == breaks[last])
    filled &= wide.starts != UNKNOWN
    return Tiles(first[filled], last[filled] + 1, wide.ends[filled])


def average(curve: Curve, tiles: Tiles, without: Booleans | None = None, printed: Booleans | None = None) -> Averages:
    """Average a curve's values over the spans that they fill, each by the number of steps that it stands for.

    `without` tells which means are to be made without the steps that changed no weight; all others are made with them,
    where they have values: those `printed`. A mean of rounded values is rounded no more than they are.
    """
    printed = np.ones(len(curve.steps), np.bool_) if printed is None else printed
    weights = np.where(printed, _weights(curve, skipped=True), np.nan)
    total = range_sums(weights, tiles)
    values, resolution = (_means(column, weights, tiles, total) for column in (curve.values, curve.resolution))
    if without is not None and without.any():
        weights = _weights(curve, skipped=False)
        part = tiles.take(without)
        total[without] = range_sums(weights, part)
        values[without] = _means(curve.values, weights, part, total[without])
        resolution[without] = _means(curve.resolution, weights, part, total[without])
    usable = np.where(tiles.many, total > 0, printed[tiles.first])
    tiles = tiles.take(usable)
    made = replace(
        curve,
        steps=tiles.ends,
        values=values[usable],
        resolution=resolution[usable],
        resumed=_any(curve.resumed, tiles),
    )
    return Averages(made, _count_used(tiles, printed), int(np.count_nonzero(tiles.many)))


def range_sums(values: Floats, tiles: Tiles) -> Floats:
    """Return sum(values[first:stop]) for many ranges that may overlap.

    Sums of 1, 2, 4, ... neighbours are put together, so that one NaN or huge value stays in the ranges that hold it,
    which it would not in differences of running sums.
    """
    sums, at, left = np.zeros(len(tiles.first)), tiles.first.copy(), tiles.stop - tiles.first
    blocks, width = values, 1
    while left.any():
        odd = np.flatnonzero(left & 1)
        sums[odd] += blocks[at[odd]]
        at[odd] += width
        left >>= 1
        blocks, width = blocks[:-width] + blocks[width:], 2 * width
    return sums


def _weights(curve: Curve, *, skipped: bool) -> Floats:
    """Count the steps of each value; NaN for a printed mean that lacks some of them, where it should not.

    A printed mean is one without the `skipped` steps, which the value of a single step is not.
    """
    spans = spans_of(curve)
    weights = (spans.ends - spans.starts).astype(np.float64)
    lacking = left_out_within(curve.skips, spans.starts, spans.ends)
    if not skipped:
        return np.asarray(weights - lacking)
    if curve.window != RAW:
        weights[lacking > 0] = np.nan
    return weights


def _since_previous(curve: Curve) -> Integers:
    """Return the step of the point before each, 0 before the first; UNKNOWN after a resume or a hole."""
    starts: Integers = np.append(0, curve.steps)[: len(curve.steps)]
    starts[places_after_missing_steps(curve.steps)] = UNKNOWN
    if curve.resumed is not None:
        starts[curve.resumed] = UNKNOWN
    return starts


def _any(column: Booleans | None, tiles: Tiles) -> Booleans | None:
    """Tell which ranges hold a marked point."""
    return None if column is None else range_sums(column.astype(np.float64), tiles) > 0


def _means(values: Floats, weights: Floats, tiles: Tiles, total: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        weighted = np.where(weights == 0.0, 0.0, values * weights)
        means: Floats = np.where(tiles.many, range_sums(weighted, tiles) / total, values[tiles.first])
    return means


def _count_used(tiles: Tiles, printed: Booleans) -> int:
    """Count the printed values that are in one range or more."""
    count = len(printed) + 1
    begun = np.bincount(tiles.first, minlength=count) - np.bincount(tiles.stop, minlength=count)
    return int(np.count_nonzero(np.cumsum(begun)[:-1] * printed))
