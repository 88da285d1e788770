"""The limits of the comparison of settings. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# schedules

RATE_TOLERANCE: Final = 1e-4
"""Two learning rates are equal up to this share of the larger one.
Measured: MindSpore computes schedules in float32 from the number of the step, and is off by up to 3e-5 in 1000
steps."""

USUAL_STEPS: Final = 1000
"""Learning rates are compared over this many steps where a schedule has no end and names no larger number.
Choice: fewer steps would not reach the end of a usual warm-up, more would take longer and show the same."""

PERIODS_COMPARED: Final = 2
"""Of a schedule with periods, at least this many of the longest are compared.
Choice: in one period, a change at its end, and what follows on it, would not be seen; more would show the same
again."""
