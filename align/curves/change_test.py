"""Between which points a difference sets in, with a credible interval.

The posterior of a change point under normal noise and flat priors (Smith, Biometrika 62, 407, 1975), over all shapes in
which a difference may set in (Carlin, Gelfand and Smith, Applied Statistics 41, 389, 1992). Neighbouring points are
alike, so the likelihood takes the long-run variance of the noise, as Bai (Rev. Econ. Stat. 79, 551, 1997) does. What
comes long after the onset tells nothing of it, and is left out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.core.thresholds import FLOAT64_ROUNDING
from align.curves.curve_shapes import noise_size, running_median
from align.curves.judging_thresholds import (
    AGREEING_SCORE,
    ARRANGEMENT_ROUNDS,
    AT_ONCE_SHARE,
    CHANGE_BLOCKS,
    CLEAR_NOISES,
    CUT_NOISES,
    EXCURSION_WEIGHT,
    FALSE_ALARM_RATE,
    IMMATERIAL_AT_ZERO,
    IMMATERIAL_SHARE,
    LARGER_NOISE,
    LEVEL_BEFORE,
    LEVEL_POINTS,
    OF_NORMAL,
    ONE_SIDED_SHARE,
    ONSET_CELLS,
    ONSET_POINTS,
    ONSET_POSTERIOR,
    ONSETS_TRIED,
    POINTS_AFTER_CLEAR,
    POINTS_BEFORE,
    QUIET_NOISES,
    REARRANGEMENTS,
    SATURATING,
    STRETCH_CELLS,
    SUM_ROUNDING,
    ZOOM_ROUNDS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from align.curves.loss_log import Booleans, Floats, Integers


class Onset(NamedTuple):
    """Indices of points: the difference sets in from `first` to `last`, most likely at `likely`; gradually or not."""

    first: int
    last: int
    likely: int
    gradual: bool = False


class _Located(NamedTuple):
    """A change that is there: about where it begins, the noise before it, and whether only the sizes change."""

    at: int
    noise: float
    of_sizes: bool


def find_onset(difference: Floats, limit: Floats, stretch: Stretch | None) -> Onset | None:
    """Find where a difference sets in, shape (points,); None where chance may have made all of it, or points are few.

    `stretch` is where it is beyond its limit. Points that are not finite are left out: a value put in the place of one
    would be one more that agrees with its neighbour.
    """
    known = np.flatnonzero(np.isfinite(difference) & np.isfinite(limit))
    onset = _onset_of_finite(difference[known], limit[known], _stretch_among(known, stretch))
    if onset is None:
        return None
    first = int(known[onset.first - 1]) + 1 if onset.first > 0 else 0
    return Onset(first, int(known[onset.last]), int(known[onset.likely]), onset.gradual)


def _stretch_among(known: Integers, stretch: Stretch | None) -> Stretch | None:
    """Count a stretch in the points that are known; None if none of them is in it."""
    if stretch is None:
        return None
    first, last = (int(at) for at in np.searchsorted(known, [stretch.first, stretch.last + 1]))
    return stretch._replace(first=first, last=last - 1) if first < last else None


def _onset_of_finite(difference: Floats, limit: Floats, stretch: Stretch | None) -> Onset | None:
    """Find the same of finite points. Where the noise of a stretch is small beside the limit, no test is needed.

    What follows a stretch that has ended is left out.
    """
    end = len(difference) if stretch is None or not stretch.ended else stretch.last + 1
    scale = float(np.abs(difference[:end]).max(initial=0.0))
    if end < ONSET_POINTS or scale == 0.0:
        return None
    values, floor = difference[:end] / scale, np.maximum(IMMATERIAL_SHARE * limit[:end] / scale, IMMATERIAL_AT_ZERO)
    if stretch is not None and _jumps_at(values, floor, stretch.first):
        return Onset(stretch.first, stretch.first, stretch.first)
    located: _Located | None
    if stretch is not None and _is_plain(values, floor, stretch):
        located = _at_stretch(values, stretch)
    elif stretch is not None and stretch.ended:
        # The end was chosen by the values: a test of what stands before it would not know that.
        lasts = lasts_longer_than_chance(score_points(difference, limit), stretch.first, stretch.last)
        located = _at_stretch(values, stretch) if lasts else None
    else:
        located = _tested(values, floor)
    return None if located is None else _posterior(values, floor, located)


def _jumps_at(values: Floats, floor: Floats, at: int) -> bool:
    """Tell whether a point is beyond its limit, and the ones right before it do not differ by anything that matters."""
    before = np.abs(values[max(0, at - POINTS_BEFORE) : at])
    noise = noise_size(values[:at] if at >= POINTS_BEFORE else values)
    quiet = bool(np.all(before <= floor[at - len(before) : at])) and noise <= float(np.median(floor))
    return quiet and bool(abs(values[at]) > floor[at] / IMMATERIAL_SHARE)


def _at_stretch(values: Floats, stretch: Stretch) -> _Located:
    """Take a stretch for the change; of sizes alone where the values keep to no side in it."""
    return _Located(stretch.first, noise_size(values), not _one_sided(values[stretch.first :]))


def _tested(values: Floats, floor: Floats) -> _Located | None:
    """Find whether there is a change, and of what: of sizes alone where the values keep to no side after it."""
    noise = noise_size(values)
    mean = find_change(np.arcsinh(values / np.maximum(noise, floor)), sizes=False)
    # Of one unit for all points: limits go down with the loss, and noise that stays would seem to grow.
    size = find_change(np.abs(np.arcsinh(values / float(np.median(floor)))), sizes=True)
    of_sizes = size is not None and not _one_sided(values[size.at :])
    change = size if of_sizes else mean or size
    if change is None:
        return None
    before = values[: change.at]
    if len(before) >= POINTS_BEFORE:
        # Most values of coarse digits are equal, and their median is no noise.
        noise = max(OF_NORMAL * float(np.median(np.abs(before))), noise_size(before))
    return _Located(change.at, noise, of_sizes)


def _is_plain(values: Floats, floor: Floats, stretch: Stretch) -> bool:
    """Tell whether no test is needed: noise is small beside the limit, or most points are far beyond those before."""
    if noise_size(values) <= float(np.median(floor)):
        return True
    before, inside = values[: stretch.first], np.abs(values[stretch.first : stretch.last + 1])
    enough = len(before) >= POINTS_BEFORE and len(inside) >= POINTS_BEFORE
    return enough and bool(np.median(inside) > CLEAR_NOISES * np.sqrt(np.mean(before**2)))


def _one_sided(values: Floats) -> bool:
    return bool(abs(float(np.sum(values))) >= ONE_SIDED_SHARE * float(np.sum(np.abs(values))))


def _posterior(values: Floats, floor: Floats, located: _Located) -> Onset:
    """Give the onset with its interval from the points up to where the difference is clear."""
    end = _clear_from(values, floor, located)
    unit = np.maximum(located.noise, floor[:end])
    wanted = (np.abs(values[:end]) if located.of_sizes else values[:end]) / unit
    smooth = running_median(wanted)
    # A point is outlying by the noise that there is where it stands, and that may be larger from the onset on.
    outlying = CUT_NOISES * np.maximum(noise_size(values[located.at : end]) / unit, 1.0)
    wanted = smooth + np.clip(wanted - smooth, -outlying, outlying)
    return _zoom_in(wanted, float(np.mean(floor[:end] / unit)), of_sizes=located.of_sizes)


def _clear_from(values: Floats, floor: Floats, located: _Located) -> int:
    """Return the number of points up to where the difference is beyond its limit and far beyond its noise."""
    clear = np.maximum(floor / IMMATERIAL_SHARE, CLEAR_NOISES * located.noise)[located.at :]
    smooth = running_median(np.abs(values)) if located.of_sizes else np.abs(running_median(values))
    beyond = np.flatnonzero(smooth[located.at :] > clear)
    end = located.at + int(beyond[0]) + POINTS_AFTER_CLEAR if len(beyond) else len(values)
    return min(max(end, ONSET_POINTS), len(values))


def _zoom_in(values: Floats, floor: float, *, of_sizes: bool) -> Onset:
    """Take the posterior over cells, smaller and smaller ones where it lies; `floor` is noise that is always there."""
    edges, noises = even_edges(len(values)), None
    for _ in range(ZOOM_ROUNDS):
        cells = take_cells(values, edges)
        if noises is None:
            noises = possible_noises(cells, floor, of_sizes=of_sizes)
        chances, gradual = _chances(cells, noises, floor, of_sizes=of_sizes)
        likely = np.argsort(-chances, kind="stable")
        likely = likely[: int(np.searchsorted(np.cumsum(chances[likely]), ONSET_POSTERIOR)) + 1]
        first, last = int(likely.min()), int(likely.max())
        finer = _finer(edges, first, last)
        if len(finer) <= len(edges):
            break
        edges = finer
    return Onset(int(edges[first]), int(edges[last + 1]) - 1, int(edges[likely[0]]), gradual)


def _chances(cells: Cells, noises: Noises, floor: float, *, of_sizes: bool) -> tuple[Floats, bool]:
    """Return how likely each cell is the one in which the difference sets in, and whether it does so gradually.

    A level before the change costs as much as a parameter does in the criterion of Schwarz. One of the difference
    itself is within the limit, as a normal prior: it is one more value, 0, of a weight that says so.
    """
    shapes = shapes_of(cells.edges)
    even, quiet = noises
    level = 0.0 if of_sizes else even.variance / (LEVEL_BEFORE * floor / IMMATERIAL_SHARE) ** 2
    from_zero, free = fit_shapes(cells, shapes, zero=level)
    logs = [noise.log_likelihoods(cells, from_zero) for noise in quiet]
    if not of_sizes:
        logs.append(even.log_likelihoods(cells, from_zero))
    logs.append(even.log_likelihoods(cells, free) - 0.5 * np.log(len(cells.values)))
    logs[-1][:, :LEVEL_POINTS] = -np.inf
    highest = max(float(one.max()) for one in logs)
    chances = np.exp(np.stack(logs) - highest)
    chances /= chances.sum()
    at_onset = float(np.sum(chances * np.diagonal(shapes, axis1=1, axis2=2)))
    return chances.sum(axis=(0, 1)), at_onset < AT_ONCE_SHARE


def _finer(edges: Integers, first: int, last: int) -> Integers:
    """Cut the cells from `first` to `last`, and some around, into as many as a whole curve has."""
    first, last = max(0, first - 2), min(len(edges) - 1, last + 3)
    start, stop = int(edges[first]), int(edges[last])
    within = start + even_edges(stop - start)
    finer: Integers = np.unique(np.concatenate([edges[:first], within, edges[last:]]))
    return finer


class EvenNoise(NamedTuple):
    """Noise of one size: a point has that `variance` in sums of many, so many cells are `worth` an independent one."""

    variance: float
    worth: float

    def log_likelihoods(self, cells: Cells, fits: Fits) -> Floats:
        """Return the logarithm of how likely the cells are, shape (shapes, onsets), but for a term that all share."""
        size = len(cells.values) / (2.0 * self.worth) * np.log(self.variance / self.worth)
        likelihoods: Floats = -fits.left / (2.0 * self.variance) - size
        return likelihoods


class QuietNoise(NamedTuple):
    """Noise of the size `before` up to the onset, and one that is larger from there on.

    Two trainings that start alike differ by rounding until something sets in, and by noise of their own from there on.
    For each size of the noise before it an onset is as likely as normal noise of two variances makes it (Inclan and
    Tiao, J. Am. Stat. Assoc. 89, 913, 1994), the second being the one that fits best.
    """

    before: float
    worth: float

    def log_likelihoods(self, cells: Cells, from_zero: Fits) -> Floats:
        """Return the same for shapes from zero, each with the size that fits best from its onset on."""
        count = len(cells.values)
        quiet, rest = np.arange(count), np.arange(count, 0, -1)
        squares = np.append(0.0, np.cumsum(cells.sizes * cells.values**2)[:-1])
        left = np.maximum(from_zero.left - squares, 0.0)
        variance = np.maximum(left / np.maximum(rest - 1, 1), (LARGER_NOISE * self.before) ** 2)
        of_quiet = squares / (2.0 * self.before**2) + quiet * np.log(self.before)
        likelihoods: Floats = -(of_quiet + left / (2.0 * variance) + rest / 2.0 * np.log(variance)) / self.worth
        return likelihoods


class Noises(NamedTuple):
    """What the noise may be: of one size, or much smaller before the onset."""

    even: EvenNoise
    quiet: tuple[QuietNoise, ...]


def possible_noises(cells: Cells, floor: float, *, of_sizes: bool) -> Noises:
    """Return noise of one size, and noises of `floor` and 2, 4, 8 ... times that before the onset.

    `of_sizes`: the values are sizes, which have a level of their own before the onset.
    """
    shapes = shapes_of(cells.edges)
    from_zero, free = fit_shapes(cells, shapes)
    left = what_is_left(cells, shapes, free if of_sizes or free.left.min() < from_zero.left.min() else from_zero)
    worth, count = independent_blocks(left).worth, len(left)
    variance = worth * float(np.mean(cells.sizes * left**2)) * count / max(count - 3, 1)
    sizes = (floor * 2.0**power for power in range(QUIET_NOISES))
    largest = float(np.abs(cells.values).max())
    quiet = tuple(QuietNoise(size, worth) for size in sizes if LARGER_NOISE * size <= largest)
    return Noises(EvenNoise(max(variance, floor**2), worth), quiet)


# Whether a difference changes at all, whatever its noise: tests that compare it with what chance makes of it.
#
# Without a change the sides could change places at any time, so the signs of independent blocks may be flipped, and
# sizes could stand in another order, so blocks of them may be moved. Both are exact for noise of any distribution
# (Hemerik and Goeman, TEST 27, 811, 2018). How long a block has to be is taken from what the best shape leaves of the
# difference.


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


def find_change(values: Floats, *, sizes: bool) -> Change | None:
    """Test whether values, shape (points,), that are symmetric about zero leave it, or whether `sizes` grow.

    None if they do not surely.
    """
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


def _share_as_large(observed: float, arranged: Iterable[Floats], level: float) -> float:
    """Return the share of arrangements with as large a value, the one that was found among them: the p-value.

    Where there are so many that the rest could not help, the share of those that were looked at.
    """
    seen, as_large = 1, 1
    for largest in arranged:
        seen, as_large = seen + len(largest), as_large + int(np.sum(largest >= observed * (1.0 - FLOAT64_ROUNDING)))
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


# How a difference may set in: at once, along a power of time, or towards a level; and what each shape leaves of it.
#
# A curve is looked at in cells of neighbouring points, small ones where it matters. Each shape is zero up to an
# onset, so the least squares of a shape at every onset are one matrix product.


class Cells(NamedTuple):
    """Means of `values`, and how many points each cell has, shape (cells,); `edges` are indices of points."""

    edges: Integers
    values: Floats
    sizes: Floats


class Fits(NamedTuple):
    """The weighted sums of squares that are left, shape (shapes, onsets); `free`: with a level before the change."""

    free: bool
    left: Floats


def even_edges(points: int) -> Integers:
    """Return the edges of at most `ONSET_CELLS` cells of about equal size."""
    cells = min(points, ONSET_CELLS)
    return np.arange(cells + 1) * points // cells


def take_cells(values: Floats, edges: Integers) -> Cells:
    """Average the points between each two edges."""
    sizes = np.diff(edges).astype(np.float64)
    return Cells(edges, np.add.reduceat(values, edges[:-1]) / sizes, sizes)


def shapes_of(edges: Integers) -> Floats:
    """Return each shape that sets in with each cell, shape (shapes, onsets, cells)."""
    return _even_shapes(int(edges[-1])) if np.array_equal(edges, even_edges(int(edges[-1]))) else _shapes(edges)


def fit_shapes(cells: Cells, shapes: Floats, zero: float = 0.0) -> tuple[Fits, Fits]:
    """Fit each shape at each onset: from zero, and from a level of its own.

    `zero` is the weight of one more value, 0, of the shapes with a level: how surely they are zero before the onset.
    """
    values, weights = cells.values, cells.sizes
    along, sums = shapes @ (weights * values), shapes @ weights
    squares, total, whole = (shapes * shapes) @ weights, float(weights @ values), float(weights.sum()) + zero
    of_values = float((weights * values) @ values)
    from_zero = Fits(False, np.maximum(of_values - _explained(along, squares, whole), 0.0))
    explained = _explained(along - sums * (total / whole), squares - sums**2 / whole, whole)
    explained[:, :LEVEL_POINTS] = 0.0
    return from_zero, Fits(True, np.maximum(of_values - total**2 / whole - explained, 0.0))


def _explained(along: Floats, squares: Floats, whole: float) -> Floats:
    explained: Floats = np.divide(along**2, squares, out=np.zeros_like(squares), where=squares > SUM_ROUNDING * whole)
    return explained


def what_is_left(cells: Cells, shapes: Floats, fits: Fits) -> Floats:
    """Return the values without the shape that fits best, shape (cells,)."""
    shape, onset = np.unravel_index(int(np.argmin(fits.left)), fits.left.shape)
    columns = [shapes[shape, onset], *([np.ones(len(cells.values))] if fits.free else [])]
    root = np.sqrt(cells.sizes)
    known = np.stack(columns, axis=1)
    fitted = known @ np.linalg.lstsq(known * root[:, None], cells.values * root, rcond=None)[0]
    left: Floats = cells.values - fitted
    left[np.abs(left) <= SUM_ROUNDING * np.abs(cells.values).max()] = 0.0
    return left


@lru_cache(maxsize=4)
def _even_shapes(points: int) -> Floats:
    return _shapes(even_edges(points))


def _shapes(edges: Integers) -> Floats:
    middles, starts = (edges[:-1] + edges[1:] - 1) / 2.0, edges[:-1, None]
    after = (middles[None, :] - starts + 0.5) / np.maximum(edges[-1] - starts, 1)
    begun = np.tri(len(middles), dtype=np.bool_).T
    after = np.where(begun, np.maximum(after, 1e-9), 0.0)
    saturating = (np.cbrt(np.minimum(after / soon, 1.0)) ** 2 for soon in SATURATING)
    return np.stack([begun, np.sqrt(after), after, after**2, after * after * after, *saturating])
