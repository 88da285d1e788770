"""The noise around an onset: of one size throughout, or much smaller before the difference sets in.

Two trainings that start alike differ by rounding until something sets in, and by noise of their own from there on: that
the noise grows tells of the onset, too. For each size of the noise before it an onset is as likely as normal noise of
two variances makes it (Inclan and Tiao, J. Am. Stat. Assoc. 89, 913, 1994), the second being the one that fits best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.criteria.change_test import independent_blocks
from align.curves.criteria.onset_shapes import fit_shapes, shapes_of, what_is_left
from align.curves.criteria_thresholds import LARGER_NOISE, QUIET_NOISES

if TYPE_CHECKING:
    from align.curves.criteria.onset_shapes import Cells, Fits
    from align.curves.loss_log import Floats


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
    """Noise of the size `before` up to the onset, and one that is larger from there on."""

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
