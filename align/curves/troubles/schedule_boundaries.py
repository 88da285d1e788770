"""Where a learning-rate schedule changes: its level jumps, or the kind of its slope does (the end of a warm-up).

Schedules are smooth between such steps, so there the slope changes far more than around them. Printed digits turn a
slope into stairs: a change of a few units of the last digit is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.thresholds import FLOAT32_ROUNDING
from align.curves.criteria.curve_shapes import fill_non_finite
from align.curves.trouble_thresholds import POINTS_AROUND, RATE_UNITS, SLOPE_CHANGES, SLOPE_POINTS

if TYPE_CHECKING:
    from align.curves.loss_log import Curve, Floats, Integers


def find_boundaries(rate: Curve) -> Integers:
    """Return the indices of the points that are the first of another level or slope."""
    if len(rate.values) < SLOPE_POINTS or not np.isfinite(rate.values).any():
        return np.zeros(0, np.int64)
    values, gaps = fill_non_finite(rate.values), np.diff(rate.steps)
    slopes = np.diff(values) / gaps
    changes = np.abs(np.diff(slopes)) * np.minimum(gaps[1:], gaps[:-1])
    noise = max(RATE_UNITS * float(rate.resolution.max()), FLOAT32_ROUNDING * float(np.abs(values).max()))
    found = _outstanding(changes, noise)
    if not rate.resolution.any():
        found = np.union1d(found, _starts_and_stops(slopes))
    return found[np.diff(found, prepend=-SLOPE_POINTS) >= SLOPE_POINTS] + 2


def _outstanding(changes: Floats, noise: float) -> Integers:
    """Return where the slope changes by more than `noise`, and by far more than around."""
    large = np.flatnonzero(changes > noise)
    around = np.clip(large[:, None] + np.arange(-POINTS_AROUND, POINTS_AROUND + 1), 0, len(changes) - 1)
    outstanding: Integers = large[changes[large] > SLOPE_CHANGES * np.median(changes[around], axis=1)]
    return outstanding


def _starts_and_stops(slopes: Floats) -> Integers:
    """Return where the sign of the slope changes, and stays for `SLOPE_POINTS` on each side: a smooth decay sets in."""
    kinds = np.sign(slopes)
    at = np.flatnonzero(kinds[1:] != kinds[:-1])
    before, after = np.diff(at, prepend=-1), np.diff(at, append=len(slopes) - 1)
    return at[(before >= SLOPE_POINTS) & (after >= SLOPE_POINTS)]
