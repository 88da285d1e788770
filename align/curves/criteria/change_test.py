"""Whether a difference changes at all, whatever its noise: tests that compare it with what chance makes of it.

Without a change the sides could change places at any time, so the signs of independent blocks may be flipped, and
sizes could stand in another order, so blocks of them may be moved. Both are exact for noise of any distribution
(Hemerik and Goeman, TEST 27, 811, 2018). How long a block has to be is taken from what the best shape leaves of the
difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.thresholds import FLOAT64_ROUNDING
from align.curves.criteria.onset_shapes import even_edges, fit_shapes, shapes_of, take_cells, what_is_left
from align.curves.criteria_thresholds import (
    AGREEING_SCORE,
    ARRANGEMENT_ROUNDS,
    CHANGE_BLOCKS,
    EXCURSION_WEIGHT,
    FALSE_ALARM_RATE,
    ONSETS_TRIED,
    REARRANGEMENTS,
    STRETCH_CELLS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.curves.criteria.onset_shapes import Cells
    from align.curves.loss_log import Booleans, Floats


class Change(NamedTuple):
    """A change that was found: the index of the point where it seems to begin, and the p-value."""

    at: int
    p_value: float


class Blocks(NamedTuple):
    """So many cells are worth an independent one (`worth`, 1 or more); averages over `length` are not alike.

    `alike`: no length does that, as the values wander.
    """

    length: int
    worth: float
    alike: bool


def find_mean_change(values: Floats) -> Change | None:
    """Test whether values, shape (points,), that are symmetric about zero leave it; None if they do not surely."""
    return _find(values, sizes=False)


def find_size_change(values: Floats) -> Change | None:
    """Test whether the sizes of values, shape (points,), grow; None if they do not surely."""
    return _find(np.abs(values), sizes=True)


def lasts_longer_than_chance(scores: Floats, first: int, last: int) -> bool:
    """Test whether the points from `first` to `last`, with the largest sum of scores, have one that is no chance.

    Such a stretch chose its own ends, so it is held against any stretch of all of the curve, shape (points,), with its
    blocks in other orders.
    """
    count = min(len(scores), STRETCH_CELLS)
    edges, left = np.arange(count + 1) * len(scores) // count, scores.copy()
    for part in (slice(None, first), slice(first, last + 1), slice(last + 1, None)):
        left[part] -= np.mean(scores[part]) if len(scores[part]) else 0.0
    cells, blocks = take_cells(scores, edges), independent_blocks(take_cells(left, edges).values)
    values = cells.values * cells.sizes
    found, arrangements = _largest_stretch(values[None]), _moved(values, blocks.length, np.random.default_rng(0))
    p_value = _share_as_large(float(found[0]), map(_largest_stretch, arrangements), FALSE_ALARM_RATE)
    return not blocks.alike and p_value <= FALSE_ALARM_RATE


def independent_blocks(left: Floats) -> Blocks:
    """Find how many neighbouring values, shape (cells,), are worth an independent one, by averages over blocks.

    A correlation within half of its standard error is taken for none: blocks that are too long cannot show a change.
    """
    length, means, whole = 1, left, float(np.mean(left**2))
    while _is_alike(means) and len(means) // 2 >= CHANGE_BLOCKS:
        means = means[: len(means) // 2 * 2].reshape(-1, 2).mean(1)
        length *= 2
    spread = float(np.mean(means**2)) * len(means) / max(len(means) - 2, 1)
    return Blocks(length, max(1.0, length * spread / whole) if whole else 1.0, _is_alike(means))


def _find(values: Floats, *, sizes: bool) -> Change | None:
    cells = take_cells(values, even_edges(len(values)))
    shapes = shapes_of(cells.edges)
    from_zero, free = fit_shapes(cells, shapes)
    fits = free if sizes or free.left.min() < from_zero.left.min() else from_zero
    blocks = independent_blocks(what_is_left(cells, shapes, fits))
    if blocks.alike:
        return None
    p_value = _p_value(cells, shapes, blocks.length, sizes=sizes)
    at = int(np.argmin(fits.left.min(axis=0)))
    return Change(int(cells.edges[at]), p_value) if p_value <= FALSE_ALARM_RATE / 2 else None


def _p_value(cells: Cells, shapes: Floats, length: int, *, sizes: bool) -> float:
    """Compare the largest standardised sum along a shape with that of `REARRANGEMENTS` arrangements of the blocks."""
    values, source, shapes = cells.values, np.random.default_rng(0), shapes[:, :: -(-len(shapes[0]) // ONSETS_TRIED)]
    if sizes:
        values = values - np.average(values, weights=cells.sizes)
        shapes = shapes - (shapes @ cells.sizes / cells.sizes.sum())[..., None]
    spread = np.sqrt((shapes * shapes) @ cells.sizes)[..., None]
    along = np.divide(shapes, spread, out=np.zeros_like(shapes), where=spread > FLOAT64_ROUNDING) * cells.sizes
    along = along.reshape(-1, len(values))
    found, rearranged = _largest(along, values[None], sizes=sizes)[0], (_moved if sizes else _flipped)
    largest = (_largest(along, arrangement, sizes=sizes) for arrangement in rearranged(values, length, source))
    return _share_as_large(found, largest, FALSE_ALARM_RATE / 2)


def _share_as_large(found: float, arranged: Iterable[Floats], level: float) -> float:
    """Return the share of arrangements with as large a value, the one that was found among them: the p-value.

    Where there are so many that the rest could not help, the share of those that were looked at.
    """
    seen, as_large = 1, 1
    for largest in arranged:
        seen, as_large = seen + len(largest), as_large + int(np.sum(largest >= found * (1.0 - FLOAT64_ROUNDING)))
        if as_large > level * (REARRANGEMENTS + 1):
            break
    return as_large / seen


def _largest_stretch(scores: Floats) -> Floats:
    """Return the largest sum of neighbouring scores of each row, shape (rows, points)."""
    totals = np.pad(np.cumsum(scores, axis=1), ((0, 0), (1, 0)))
    largest: Floats = (totals - np.minimum.accumulate(totals, axis=1)).max(axis=1)
    return largest


def _largest(along: Floats, values: Floats, *, sizes: bool) -> Floats:
    """Return the largest sum along a shape of each arrangement, shape (arrangements,)."""
    sums = along @ values.T
    largest: Floats = sums.max(axis=0) if sizes else np.maximum(sums.max(axis=0), -sums.min(axis=0))
    return largest


def _flipped(values: Floats, length: int, source: np.random.Generator) -> Iterator[Floats]:
    blocks = -(-len(values) // length)
    for count in ARRANGEMENT_ROUNDS:
        signs = 2.0 * source.integers(0, 2, (count, blocks)) - 1.0
        yield np.repeat(signs, length, axis=1)[:, : len(values)] * values


def _moved(values: Floats, length: int, source: np.random.Generator) -> Iterator[Floats]:
    blocks = -(-len(values) // length)
    for count in ARRANGEMENT_ROUNDS:
        places = np.argsort(source.random((count, blocks)), axis=1)
        starts = np.repeat(places * length, length, axis=1) + np.tile(np.arange(length), blocks)
        # Only the last block may reach beyond the end, by as much in each arrangement.
        yield values[starts[starts < len(values)].reshape(count, -1)]


def _is_alike(values: Floats) -> bool:
    """Tell whether neighbours are correlated, by half a standard error and what fitting a shape takes away."""
    whole, count = float(values @ values), len(values)
    correlation = float(values[1:] @ values[:-1]) / whole if whole else -1.0
    return bool(correlation + 2.0 / count > 0.5 / count**0.5)


class Stretch(NamedTuple):
    """The indices of the first and the last point of a stretch that is outside; `ended`: what follows it agrees."""

    first: int
    last: int
    ended: bool = False


def find_stretch(difference: Floats, limit: Floats, within: Booleans) -> Stretch | None:
    """Find the stretch over which sizes of `difference` are most beyond `limit`; None if there are only excursions.

    Each point scores by how far it is outside or inside, at most 1 either way, so that no single one outweighs another.
    The stretch with the largest sum is the one that a CUSUM chart (Page, Biometrika 41, 100, 1954) would mark. All have
    shape (points,). A point without a limit (NaN) counts by `within` alone. Where the difference is zero up
    to a step and outside its limit from there on, the stretch starts exactly there.
    """
    totals = np.concatenate([[0.0], np.cumsum(score_points(difference, limit, within))])
    lowest = np.minimum.accumulate(totals)
    end = int(np.argmax(totals - lowest))
    if not totals[end] - lowest[end] > (0.0 if end == len(difference) else EXCURSION_WEIGHT):
        return None
    first = int(np.flatnonzero(totals[:end] == lowest[end])[-1])
    rest = totals[-1] - totals[end]
    return Stretch(first, end - 1, bool(rest < -EXCURSION_WEIGHT and rest < AGREEING_SCORE * (len(difference) - end)))


def score_points(difference: Floats, limit: Floats, within: Booleans | None = None) -> Floats:
    """Return how far each point, shape (points,), is beyond its limit, in limits, from -1 to 1.

    What has no such score is 1, or -1 where it is `within` its limit.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        beyond = np.abs(difference) / limit - 1.0
    extreme = 1.0 if within is None else np.where(within, -1.0, 1.0)
    scores: Floats = np.clip(np.where(np.isnan(beyond), extreme, beyond), -1.0, 1.0)
    return scores
