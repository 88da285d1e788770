"""Drift distinguished from jitter: whether a difference keeps to one side, or moves.

Without drift the sides could change places, so the difference is symmetric about zero. Neighbouring points are alike,
so the tests look at averages over blocks that are not (`block_averages`); what correlation is left in the longest
blocks is allowed for. A curve too short for that is not tested: there a wandering difference cannot be known from a
drifting one.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded where they are first used

from align.curves.criteria.block_averages import average_blocks, centred_times
from align.curves.criteria_thresholds import DRIFT_BLOCKS, DRIFT_CORRELATION, FALSE_ALARM_RATE, SUM_ROUNDING
from align.curves.curve_result import DriftTest
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from align.curves.criteria.block_averages import Blocks
    from align.curves.loss_log import Floats


def find_drift(difference: Floats) -> tuple[DriftTest, ...]:
    """Test a difference, candidate - reference, shape (points,), all finite; () where too little is independent.

    The sign test asks whether the block averages keep to one side, the slope test whether they move: the slope of a
    straight line, with the standard error HC3 of MacKinnon and White (J. Econometrics 29, 305, 1985), as the jitter of
    a training grows or shrinks.
    """
    scale = float(np.abs(difference).max(initial=0.0)) or 1.0
    blocks = average_blocks(difference / scale, DRIFT_BLOCKS, detrend=True)
    count, correlation = len(blocks.means), _at_most(blocks)
    if correlation > DRIFT_CORRELATION:
        return ()
    worth = int(count * (1.0 - correlation) / (1.0 + correlation))
    slope, *slope_test = _slope(blocks.means, worth)
    facts = {"length": blocks.length, "worth": worth}
    sign, line = sentence("drift_test.symmetric", **facts), sentence("drift_test.about_a_line", **facts)
    return tuple(
        DriftTest(name, statistic, p, FALSE_ALARM_RATE / 2, p < FALSE_ALARM_RATE / 2, slope * count * scale, assumption)
        for name, (statistic, p), assumption in (
            (sentence("drift_test.sign"), _sign(blocks.means, worth / count), sign),
            (sentence("drift_test.slope"), slope_test, line),
        )
    )


def drift_note(tests: tuple[DriftTest, ...], difference: Floats, *, within_limits: bool = False) -> str:
    """Say how the difference drifts, "" if no test finds that it does."""
    found = [sentence("drift_test.found", test=test.name, p_value=test.p_value) for test in tests if test.drifts]
    if not found:
        return ""
    return sentence(
        "drift_test.note",
        found=found,
        level=tests[0].level,
        mean=float(np.mean(difference)),
        change=tests[0].slope,
        within=within_limits,
    )


def _at_most(blocks: Blocks) -> float:
    """Return what the correlation may be: without the bias of taking a line out, and a standard error more."""
    count = len(blocks.means)
    if count < DRIFT_BLOCKS:
        return 1.0
    return max(0.0, (blocks.correlation * count + 2) / (count - 4) + 1 / sqrt(count))


def _sign(means: Floats, worth: float) -> tuple[float, float]:
    """Return the share of averages above zero, of those that are not zero, and the p-value of the exact sign test.

    `worth` is how many independent ones each average is worth.
    """
    above, count = int(np.count_nonzero(means > 0.0)), int(np.count_nonzero(means))
    independent = int(count * worth)
    if not independent:
        return 0.5, 1.0
    fewer = min(ceil(min(above, count - above) * worth), independent)
    return above / count, min(1.0, 2.0 * float(scipy.special.bdtr(fewer, independent, 0.5)))


def _slope(means: Floats, worth: int) -> tuple[float, float, float]:
    """Return the slope a block, its t value with the standard error HC3, and the two-sided p-value.

    `worth` is how many independent averages the `means` are worth.
    """
    count, times = len(means), centred_times(len(means))
    spread = float(times @ times)
    slope = float(times @ means) / spread
    residual = means - means.mean() - slope * times
    leverage = 1.0 / count + times * times / spread
    error = sqrt(float(np.sum((times * residual / (1.0 - leverage)) ** 2)) * count / worth) / spread
    if abs(slope) * count <= SUM_ROUNDING * float(np.abs(means).max()):
        return 0.0, 0.0, 1.0
    if error == 0.0:
        return slope, float(np.copysign(np.inf, slope)), 0.0
    return slope, slope / error, 2.0 * float(scipy.special.stdtr(worth - 2, -abs(slope / error)))
