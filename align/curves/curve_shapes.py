"""The shape of one curve: its running median, the size of its noise, its levels, and where it leaves them upwards.

Medians throughout: a spike must not hide itself in the figures that it is judged by. Points that are not finite are
taken as the last finite one before them; whoever needs them looks for them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from align.curves.judging_thresholds import (
    EXCURSION_NOISES,
    EXCURSION_POINTS,
    EXCURSION_SHARE,
    MEDIAN_WIDTH,
    MOST_EXCURSIONS,
    NOISE_BLOCK,
    NOISE_SAMPLING,
    OF_NORMAL,
    STAYING_POINTS,
    SUM_ROUNDING,
)

if TYPE_CHECKING:
    from align.curves.loss_log import Booleans, Floats, Integers


class Excursion(NamedTuple):
    """Points `start` to `end` (not itself) above the level before them, by `height` at most; `returns`: it comes back.

    All are indices of points, `peak` that of the highest one.
    """

    start: int
    end: int
    peak: int
    height: float
    returns: bool


def fill_non_finite(values: Floats) -> Floats:
    """Replace what is not finite by the last finite value before it, or by the first one after."""
    finite = np.isfinite(values)
    if finite.all() or not finite.any():
        return values
    latest = np.maximum.accumulate(np.where(finite, np.arange(len(values)), 0))
    latest[: int(np.argmax(finite))] = int(np.argmax(finite))
    latest_values: Floats = values[latest]
    return latest_values


def running_median(values: Floats, width: int = MEDIAN_WIDTH) -> Floats:
    """Return the median of `width` points around each; a monotone curve is its own, at its ends too."""
    width = min(width, (len(values) - 1) // 2 * 2 + 1)
    if width < 3:
        return values
    half = width // 2
    padded = np.pad(values, half, mode="reflect", reflect_type="odd")
    medians: Floats = scipy.ndimage.median_filter(padded, width)[half:-half]
    return medians


def noise_size(values: Floats) -> float:
    """Return the standard deviation of independent noise on a curve of any slope, as second differences tell it."""
    second = np.abs(np.diff(values, 2))
    return OF_NORMAL * float(np.median(second)) / 6.0**0.5 if len(second) else 0.0


def part_means(values: Floats, parts: int) -> Floats:
    """Return the means of `parts` parts of about equal length, along the last axis, in order; needs a point in each."""
    count = values.shape[-1]
    edges = np.arange(parts + 1) * count // parts
    means: Floats = np.add.reduceat(values, edges[:-1], axis=-1) / (edges[1:] - edges[:-1])
    return means


def runs_of(flags: Booleans) -> tuple[Integers, Integers]:
    """Return where each run of true flags starts, and how long it is."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    return edges[::2], edges[1::2] - edges[::2]


def find_excursions(values: Floats, resolution: float = 0.0) -> tuple[Excursion, ...]:
    """Find where a curve leaves the median of the points before, upwards, by many times its noise and a tenth.

    Few points tell little of their noise: then it takes more. An excursion ends at the first point that is back half
    of the way to that level; one that does not end and is not sudden is a slow rise and none. At most
    `MOST_EXCURSIONS`.
    """
    if len(values) < EXCURSION_POINTS or not np.isfinite(values).any():
        return ()
    values = fill_non_finite(values)
    smooth = running_median(values)
    before = _level_before(values, smooth)
    outlying = EXCURSION_NOISES * (1.0 + EXCURSION_POINTS / len(values) ** 0.5)
    allowed = np.maximum(outlying * _local_noise(np.abs(values - smooth)), resolution)
    allowed = np.maximum(allowed, EXCURSION_SHARE * np.abs(before))
    excursions: list[Excursion] = []
    end = 0
    for start in np.flatnonzero(values - before > allowed).tolist():
        if start < end:
            continue
        end = _first_at_most(values, start + 1, before[start] + allowed[start] / 2)
        peak = start + int(np.argmax(values[start:end]))
        returns = end < len(values) or end - start < STAYING_POINTS
        if returns or _is_sudden(values, start, before[start]):
            excursions.append(Excursion(start, end, peak, float(values[peak] - before[start]), returns))
        if len(excursions) == MOST_EXCURSIONS:
            break
    return tuple(excursions)


def _is_sudden(values: Floats, start: int, before: float) -> bool:
    """Tell whether half of a rise is made within a twentieth of the curve, or it is ten times the level before it."""
    soon = max(2 * MEDIAN_WIDTH, len(values) // 20)
    height = float(values[start:].max()) - before
    return float(values[start : start + soon].max()) - before >= height / 2 or height >= abs(before) / EXCURSION_SHARE


def _level_before(values: Floats, smooth: Floats) -> Floats:
    """Return the median of MEDIAN_WIDTH points before each, of fewer at the beginning; the first stands for itself."""
    shifted = np.empty_like(values)
    for at in range(min(MEDIAN_WIDTH, len(values))):
        shifted[at] = np.median(values[: max(at, 1)])
    if len(values) > MEDIAN_WIDTH:
        shifted[MEDIAN_WIDTH:] = smooth[MEDIAN_WIDTH // 2 : -(MEDIAN_WIDTH // 2) - 1]
    return shifted


def _local_noise(sizes: Floats) -> Floats:
    """Return the size of the noise around each point, the larger one of its block and the neighbouring blocks."""
    if len(sizes) < NOISE_BLOCK:
        return np.full(len(sizes), OF_NORMAL * np.median(sizes))
    blocks = len(sizes) // NOISE_BLOCK
    medians = np.median(sizes[: blocks * NOISE_BLOCK].reshape(blocks, NOISE_BLOCK)[:, ::NOISE_SAMPLING], axis=1)
    padded = np.pad(medians, 1, mode="edge")
    local = np.repeat(np.maximum(np.maximum(padded[:-2], padded[2:]), medians), NOISE_BLOCK)
    return OF_NORMAL * np.pad(local, (0, len(sizes) - len(local)), mode="edge")


def _first_at_most(values: Floats, start: int, level: float) -> int:
    """Return the first index from `start` whose value is at most `level`, the length if there is none."""
    length = NOISE_BLOCK
    while start < len(values):
        low = np.flatnonzero(values[start : start + length] <= level)
        if len(low):
            return start + int(low[0])
        start, length = start + length, 2 * length
    return len(values)


# Neighbouring values of a curve are alike: they are averaged over blocks until the averages are not.
#
# The blocking of Flyvbjerg and Petersen (J. Chem. Phys. 91, 461, 1989): blocks of 1, 2, 4 ... values, until
# neighbouring averages are not positively correlated. Stopping at zero instead of at "not significant" makes blocks
# rather too long, which costs power and keeps the false-alarm rate, but for a slow wander that fast jitter hides
# (docs/loss-statistics.md).


class Blocks(NamedTuple):
    """Averages over blocks of `length` values, shape (..., blocks), and the correlation of neighbours."""

    length: int
    means: Floats
    correlation: float


def average_blocks(values: Floats, fewest: int, *, detrend: bool) -> Blocks:
    """Average the last axis of `values` over the shortest blocks that are uncorrelated with their neighbours.

    Correlations are taken over all other axes together. `detrend` takes a straight line out first: what goes up or down
    steadily is no correlation. Where no length does that leaves `fewest` blocks, the correlation stays above 0.
    """
    length, means = 1, values
    correlation = _correlation(means, detrend)
    while correlation > 0.0 and means.shape[-1] // 2 >= fewest:
        pairs = means.shape[-1] // 2
        length, means = 2 * length, means[..., : 2 * pairs].reshape(*means.shape[:-1], pairs, 2).mean(-1)
        correlation = _correlation(means, detrend)
    return Blocks(length, means, correlation)


def centred_times(count: int) -> Floats:
    """Return 0 ... count - 1 around their mean."""
    return np.arange(count) - (count - 1) / 2


def _correlation(values: Floats, detrend: bool) -> float:
    around = values - _line(values) if detrend and values.shape[-1] > 1 else values
    whole = float(np.vdot(around, around))
    if whole <= SUM_ROUNDING**2 * float(np.vdot(values, values)):
        return 0.0
    return float(np.vdot(around[..., 1:], around[..., :-1])) / whole


def _line(values: Floats) -> Floats:
    times = centred_times(values.shape[-1])
    slope = values @ times / (times @ times)
    fitted: Floats = values.mean(-1, keepdims=True) + slope[..., None] * times
    return fitted
