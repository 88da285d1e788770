"""Between which points a difference sets in, with a credible interval.

The posterior of a change point under normal noise and flat priors (Smith, Biometrika 62, 407, 1975), over all shapes in
which a difference may set in (Carlin, Gelfand and Smith, Applied Statistics 41, 389, 1992). Neighbouring points are
alike, so the likelihood takes the long-run variance of the noise, as Bai (Rev. Econ. Stat. 79, 551, 1997) does. What
comes long after the onset tells nothing of it, and is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.change_test import (
    find_mean_change,
    find_size_change,
    independent_blocks,
    lasts_longer_than_chance,
    score_points,
)
from align.curves.criteria.curve_shapes import noise_size, running_median
from align.curves.criteria.onset_shapes import Cells, even_edges, fit_shapes, shapes_of, take_cells, what_is_left
from align.curves.criteria_thresholds import (
    AT_ONCE_SHARE,
    CLEAR_NOISES,
    CUT_NOISES,
    IMMATERIAL_AT_ZERO,
    IMMATERIAL_SHARE,
    LARGER_NOISE,
    LEVEL_BEFORE,
    LEVEL_POINTS,
    OF_NORMAL,
    ONE_SIDED_SHARE,
    ONSET_POINTS,
    ONSET_POSTERIOR,
    POINTS_AFTER_CLEAR,
    POINTS_BEFORE,
    QUIET_NOISES,
    ZOOM_ROUNDS,
)

if TYPE_CHECKING:
    from align.curves.criteria.change_test import Stretch
    from align.curves.criteria.onset_shapes import Fits
    from align.curves.loss_log import Floats, Integers


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
    located = _fact(values, floor, stretch)
    if located is None and stretch is not None and stretch.ended:
        # The end was chosen by the values: a test of what stands before it would not know that.
        lasts = lasts_longer_than_chance(score_points(difference, limit), stretch.first, stretch.last)
        located = _at_stretch(values, stretch) if lasts else None
    elif located is None:
        located = _tested(values, floor)
    return None if located is None else _posterior(values, floor, located)


def _jumps_at(values: Floats, floor: Floats, at: int) -> bool:
    """Tell whether a point is beyond its limit, and the ones right before it do not differ by anything that matters."""
    before = np.abs(values[max(0, at - POINTS_BEFORE) : at])
    noise = noise_size(values[:at] if at >= POINTS_BEFORE else values)
    quiet = bool(np.all(before <= floor[at - len(before) : at])) and noise <= float(np.median(floor))
    return quiet and bool(abs(values[at]) > floor[at] / IMMATERIAL_SHARE)


def _fact(values: Floats, floor: Floats, stretch: Stretch | None) -> _Located | None:
    """Return the change that is plain without a test, as its noise is small beside the limit or beside itself."""
    if stretch is not None and (noise_size(values) <= float(np.median(floor)) or _is_clear(values, stretch)):
        return _at_stretch(values, stretch)
    return None


def _at_stretch(values: Floats, stretch: Stretch) -> _Located:
    """Take a stretch for the change; of sizes alone where the values keep to no side in it."""
    return _Located(stretch.first, noise_size(values), not _one_sided(values[stretch.first :]))


def _tested(values: Floats, floor: Floats) -> _Located | None:
    """Find whether there is a change, and of what: of sizes alone where the values keep to no side after it."""
    noise = noise_size(values)
    mean = find_mean_change(np.arcsinh(values / np.maximum(noise, floor)))
    # Of one unit for all points: limits go down with the loss, and noise that stays would seem to grow.
    size = find_size_change(np.arcsinh(values / float(np.median(floor))))
    of_sizes = size is not None and not _one_sided(values[size.at :])
    change = size if of_sizes else mean or size
    if change is None:
        return None
    before = values[: change.at]
    if len(before) >= POINTS_BEFORE:
        # Most values of coarse digits are equal, and their median is no noise.
        noise = max(OF_NORMAL * float(np.median(np.abs(before))), noise_size(before))
    return _Located(change.at, noise, of_sizes)


def _is_clear(values: Floats, stretch: Stretch) -> bool:
    """Tell whether most points of a stretch are so far beyond all that was there before it that no test is needed."""
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
        held = np.argsort(-chances, kind="stable")
        held = held[: int(np.searchsorted(np.cumsum(chances[held]), ONSET_POSTERIOR)) + 1]
        first, last = int(held.min()), int(held.max())
        finer = _finer(edges, first, last)
        if len(finer) <= len(edges):
            break
        edges = finer
    return Onset(int(edges[first]), int(edges[last + 1]) - 1, int(edges[held[0]]), gradual)


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
