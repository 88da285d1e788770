"""Drift told apart from jitter: whether a difference keeps to one side, or moves.

Without drift the sides could change places, so the difference is symmetric about zero. Neighbouring points are alike,
so the tests look at averages over blocks that are not (align.steps.blocks). A curve too short for `FEWEST` such blocks
is not tested: there a wandering difference cannot be told from a drifting one.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, stdtr

from align.core.curve_results import DriftTest
from align.steps.blocks import block_means, centred_times, independent_length

if TYPE_CHECKING:
    from align.core.curves import Floats

# The false-alarm rate of both tests together; each is held to half of it (Bonferroni).
LEVEL = 0.01
FEWEST = 16


def find_drift(difference: Floats) -> tuple[DriftTest, ...]:
    """Test a difference, candidate - reference, shape (points,), all finite; () where too little is independent.

    The sign test asks whether the block averages keep to one side, the slope test whether they move: the slope of a
    straight line, with the standard error HC3 of MacKinnon and White (J. Econometrics 29, 305, 1985), as the jitter of
    a training grows or shrinks.
    """
    length = independent_length(difference, FEWEST, detrend=True)
    if length is None:
        return ()
    means = block_means(difference, length)
    slope, statistic, slope_p = _slope(means)
    sign, sign_p = _sign(means)
    change = slope * len(means)
    told = f"{len(means)} averages over {length} points are independent"
    return tuple(
        DriftTest(name, value, p, LEVEL / 2, p < LEVEL / 2, change, assumption)
        for name, value, p, assumption in (
            ("sign test", sign, sign_p, f"{told} and symmetric about zero"),
            ("slope", statistic, slope_p, f"{told} and normally distributed about a line"),
        )
    )


def drift_note(tests: tuple[DriftTest, ...], difference: Floats) -> str:
    """Say how the difference drifts, "" if no test finds that it does."""
    found = [f"{test.name} p = {test.p_value:.2g}" for test in tests if test.drifts]
    if not found:
        return ""
    mean = float(np.mean(difference))
    return (
        f"the difference drifts ({', '.join(found)}; level {tests[0].level:g} each): "
        f"{mean:+.2g} on average, changing by {tests[0].slope:+.2g} over the curve"
    )


def _sign(means: Floats) -> tuple[float, float]:
    """Return the share of averages above zero, of those that are not zero, and the p-value of the exact sign test."""
    above, count = int(np.count_nonzero(means > 0.0)), int(np.count_nonzero(means))
    if not count:
        return 0.5, 1.0
    return above / count, min(1.0, 2.0 * float(bdtr(min(above, count - above), count, 0.5)))


def _slope(means: Floats) -> tuple[float, float, float]:
    """Return the slope a block, its t value with the standard error HC3, and the two-sided p-value."""
    count, times = len(means), centred_times(len(means))
    spread = float(times @ times)
    slope = float(times @ means) / spread
    residual = means - means.mean() - slope * times
    leverage = 1.0 / count + times * times / spread
    error = sqrt(float(np.sum((times * residual / (1.0 - leverage)) ** 2))) / spread
    if error == 0.0:
        return slope, 0.0 if slope == 0.0 else float(np.copysign(np.inf, slope)), 1.0 if slope == 0.0 else 0.0
    return slope, slope / error, 2.0 * float(stdtr(count - 2, -abs(slope / error)))
