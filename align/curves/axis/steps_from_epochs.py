"""Steps of a log that tells only the share of epochs that are done, `'epoch': 0.27`.

Shares are printed with few digits, so several steps may print the same. Then only an even distance can tell them
apart, and only if it is so wide that a lost line would show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.curves.thresholds import (
    EPOCH_SHARE_DIGITS,
    EPOCH_SHARE_ROUNDING,
    LAST_STEP_SHARE,
    SHARE_LEAST_DECIMALS,
    SHARE_MOST_DECIMALS,
)
from align.errors import StepsPerEpochError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.loss_log import Floats, Integers

_DECIMALS = range(SHARE_LEAST_DECIMALS, SHARE_MOST_DECIMALS)
KEEP_MORE_HINT = "compare a log that tells steps: the trainer's state file, or its output with the progress bars"


def steps_from_shares(label: str, shares: Floats, length: float) -> tuple[Integers, tuple[str, ...]]:
    """Return the global step of each share of epochs of `length` steps, and notes; raises StepsPerEpochError.

    A share tells its step if no other step rounds to it: the unit of its last digit is at most one step. With a
    fraction (1001 batches, 8 of them a step: 125.125) the last step of an epoch has fewer batches.
    """
    units = _printed_units(shares) * length
    if units.max() > 1 + EPOCH_SHARE_ROUNDING:
        return _evenly(label, shares * length, units, length)
    epochs = np.floor(shares) if length != int(length) else np.zeros(len(shares))
    exact = (shares - epochs) * length
    off = np.abs(exact - np.rint(exact)) > units / 2 + EPOCH_SHARE_ROUNDING * length
    if not off.any():
        return (epochs * np.ceil(length) + np.rint(exact)).astype(np.int64), ()
    share = shares[off][0]
    reason = sentence("axis_fault.no_whole_number", share=share, length=length)
    return _evenly(label, shares * length, units, length, LAST_STEP_SHARE, reason)


def _printed_units(shares: Floats) -> Floats:
    """Return the unit of the last digit of each share, 0.0 if all digits are printed.

    All have as many decimals as the one that needs most, unless none needs more than four significant digits.
    """
    unit = next((10.0**-decimals for decimals in _DECIMALS if _needs_no_more(shares, decimals)), 0.0)
    magnitudes = np.floor(np.log10(np.maximum(shares, unit or 1.0)))
    units = np.full(len(shares), unit)
    if unit and _needs_no_more(shares, EPOCH_SHARE_DIGITS - 1 - magnitudes):
        units = np.maximum(units, 10.0 ** (magnitudes + 1 - EPOCH_SHARE_DIGITS))
    return units


def _needs_no_more(shares: Floats, decimals: Floats | int) -> bool:
    scale = 10.0**decimals
    return np.allclose(shares, np.rint(shares * scale) / scale, rtol=0, atol=10.0**-SHARE_MOST_DECIMALS)


def _evenly(
    label: str, exact: Floats, units: Floats, length: float, slack: float = 0.0, reason: str = ""
) -> tuple[Integers, tuple[str, ...]]:
    """Take the one distance that explains all: point i, from 1, is within half a unit, and the slack, of i times it.

    A log that is printed again, or of a run that was begun anew, counts its points from 1 again.
    """
    anew = np.append(True, (exact[1:] == exact[0]) & (exact[1:] < exact[:-1]))
    at = np.arange(len(exact))
    places, unit = at - np.maximum.accumulate(np.where(anew, at, 0)) + 1, units.max()
    least, most = (exact - units / 2 - slack) / places, (exact + units / 2 + slack) / places
    distance = int(np.ceil(least.max() - EPOCH_SHARE_ROUNDING))
    if not (distance > unit + 2 * slack and distance <= most.min() + EPOCH_SHARE_ROUNDING < distance + 1):
        coarse = sentence("axis_fault.printed_alike", length=length, steps=unit)
        raise StepsPerEpochError(label, reason or coarse, KEEP_MORE_HINT)
    return places * distance, (sentence("axis_note.even_distance", distance=distance),)
