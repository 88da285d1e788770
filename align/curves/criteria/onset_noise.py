"""The noise around an onset: of one size throughout, or much smaller before the difference sets in.

Two trainings that start alike differ by rounding until something sets in, and by noise of their own from there on: that
the noise grows tells of the onset, too. For each ratio of both sizes an onset is as likely as normal noise of two
variances makes it (Inclan and Tiao, J. Am. Stat. Assoc. 89, 913, 1994), the variance being the one that fits best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.change_test import independent_blocks
from align.curves.criteria.onset_shapes import fit_shapes, shapes_of, what_is_left

if TYPE_CHECKING:
    from align.curves.criteria.onset_shapes import Cells, Fits
    from align.curves.loss_log import Floats

# Noise before the onset is smaller by these powers of two: half of it is none that few points could tell.
POWERS_OF_TWO = range(2, 40)
TINY = 1e-300


class OnsetNoise(NamedTuple):
    """Noise that is `ratio` times as large before the onset, 1 at most, as it is from there on.

    `variance` is that of a point from the onset on, as sums over many points have it; so many cells are `worth` an
    independent one.
    """

    ratio: float
    variance: float
    worth: float

    def log_likelihoods(self, cells: Cells, fits: Fits) -> Floats:
        """Return the logarithm of how likely the cells are, shape (shapes, onsets), but for a term that all share."""
        count = len(cells.values)
        quieter = np.arange(count) * np.log(self.ratio) + count / 2.0 * np.log(self.variance)
        likelihoods: Floats = -_squares(cells, fits, self.ratio) / (2.0 * self.variance) - quieter / self.worth
        return likelihoods


def possible_noises(cells: Cells, floor: float, *, of_sizes: bool) -> list[OnsetNoise]:
    """Return noise of one size, then noise that is 4, 8, 16 ... times smaller before the onset and never below `floor`.

    `of_sizes`: the values are sizes, which have a level of their own before the onset.
    """
    shapes = shapes_of(cells.edges)
    from_zero, free = fit_shapes(cells, shapes)
    best = free if of_sizes or free.left.min() < from_zero.left.min() else from_zero
    left = what_is_left(cells, shapes, best)
    worth = independent_blocks(left).worth
    noises = [OnsetNoise(1.0, _variance(cells, left, worth, floor), worth)]
    for ratio in (0.5**power for power in POWERS_OF_TWO):
        quieter = OnsetNoise(ratio, _variance(cells, _left(cells, from_zero, shapes, ratio), worth, floor), worth)
        if ratio * (quieter.variance / worth) ** 0.5 < floor:
            break
        noises.append(quieter)
    return noises


def _left(cells: Cells, from_zero: Fits, shapes: Floats, ratio: float) -> Floats:
    """Return what the likeliest shape leaves, in units of the noise after its onset."""
    count, squares = len(cells.values), _squares(cells, from_zero, ratio)
    unlikely = count / 2.0 * np.log(np.maximum(squares, TINY)) + np.arange(count) * np.log(ratio)
    left = what_is_left(cells, shapes, from_zero._replace(left=unlikely))
    left[: int(np.argmin(unlikely.min(axis=0)))] /= ratio
    return left


def _squares(cells: Cells, fits: Fits, ratio: float) -> Floats:
    """Return the sums of squares that are left, in units of the noise from the onset on, shape (shapes, onsets)."""
    if ratio == 1.0:
        return fits.left
    before = np.append(0.0, np.cumsum(cells.sizes * cells.values**2)[:-1])
    squares: Floats = np.maximum(fits.left - before, 0.0) + before / ratio**2
    return squares


def _variance(cells: Cells, left: Floats, worth: float, floor: float) -> float:
    count = len(left)
    return max(worth * float(np.mean(cells.sizes * left**2)) * count / max(count - 3, 1), floor**2)
