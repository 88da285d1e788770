"""Where a learning-rate schedule changes: its level jumps, or the kind of its slope does (the end of a warm-up).

Schedules are smooth between such steps, so there the slope changes far more than around them. Printed digits turn a
slope into stairs: a change of a few units of the last digit is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.criteria.curve_shapes import fill_non_finite

if TYPE_CHECKING:
    from align.curves.loss_log import Curve, Floats, Integers

FAR_MORE = 10.0
UNITS = 4.0
# What float32 leaves of a rate.
ROUNDING = 1e-6
LASTS = 3
AROUND = 5


def find_boundaries(rate: Curve) -> Integers:
    """Return the indices of the points that are the first of another level or slope."""
    if len(rate.values) < LASTS or not np.isfinite(rate.values).any():
        return np.zeros(0, np.int64)
    values, gaps = fill_non_finite(rate.values), np.diff(rate.steps)
    slopes = np.diff(values) / gaps
    changes = np.abs(np.diff(slopes)) * np.minimum(gaps[1:], gaps[:-1])
    noise = max(UNITS * float(rate.resolution.max()), ROUNDING * float(np.abs(values).max()))
    found = _outstanding(changes, noise)
    if not rate.resolution.any():
        found = np.union1d(found, _starts_and_stops(slopes))
    return found[np.diff(found, prepend=-LASTS) >= LASTS] + 2


def _outstanding(changes: Floats, noise: float) -> Integers:
    """Return where the slope changes by more than `noise`, and by far more than around."""
    large = np.flatnonzero(changes > noise)
    around = np.clip(large[:, None] + np.arange(-AROUND, AROUND + 1), 0, len(changes) - 1)
    outstanding: Integers = large[changes[large] > FAR_MORE * np.median(changes[around], axis=1)]
    return outstanding


def _starts_and_stops(slopes: Floats) -> Integers:
    """Return where the sign of the slope changes, and is kept `LASTS` times on each side: a smooth decay sets in."""
    kinds = np.sign(slopes)
    at = np.flatnonzero(kinds[1:] != kinds[:-1])
    before, after = np.diff(at, prepend=-1), np.diff(at, append=len(slopes) - 1)
    return at[(before >= LASTS) & (after >= LASTS)]
