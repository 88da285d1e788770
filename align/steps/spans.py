"""Which steps each value of a curve is the mean of, and means over wider spans made from them.

A mean is made only of values that fill its span, without a gap or an overlap, so it is what a log would have printed
but for rounding. A span that a log does not tell, as after a lost line, is never guessed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.curves import RAW
from align.steps.loss_holes import places_after_holes

if TYPE_CHECKING:
    from align.core.curves import Booleans, Curve, Floats, Integers

UNKNOWN = -1
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
    """A curve over wider spans; `used` counts the points that went in, `means` the values made of several."""

    curve: Curve
    used: int
    means: int


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


def average(curve: Curve, tiles: Tiles, *, with_skipped: bool = False) -> Averages:
    """Average a curve's values over the spans that they fill, each by the number of steps that it stands for.

    Steps that changed no weight are left out of a mean unless `with_skipped`; how many of them are in a printed mean is
    not known, so none is made of such. A mean of rounded values is rounded no more than they are.
    """
    spans = spans_of(curve)
    weights = (spans.ends - spans.starts).astype(np.float64)
    if curve.skipped is not None and not with_skipped:
        weights[curve.skipped] = 0.0 if curve.window == RAW else np.nan
    total = range_sums(weights, tiles)
    usable = ~tiles.many | (total > 0)
    tiles, total = tiles.take(usable), total[usable]
    made = replace(
        curve,
        steps=tiles.ends,
        values=_means(curve.values, weights, tiles, total),
        resolution=_means(curve.resolution, weights, tiles, total),
        skipped=_any(curve.skipped, tiles),
        resumed=_any(curve.resumed, tiles),
    )
    return Averages(made, _count_used(tiles, len(weights)), int(np.count_nonzero(tiles.many)))


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


def _since_previous(curve: Curve) -> Integers:
    """Return the step of the point before each, 0 before the first; UNKNOWN after a resume or a hole."""
    starts: Integers = np.append(0, curve.steps)[: len(curve.steps)]
    starts[places_after_holes(curve.steps)] = UNKNOWN
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


def _count_used(tiles: Tiles, count: int) -> int:
    """Count the values that are in one range or more."""
    begun = np.bincount(tiles.first, minlength=count + 1) - np.bincount(tiles.stop, minlength=count + 1)
    return int(np.count_nonzero(np.cumsum(begun)))
