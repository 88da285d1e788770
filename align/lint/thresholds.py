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

# follow_memory

MEMORY_WARM_UP: Final = 1 / 3
"""So much of the beginning of what was followed is not judged.
Choice: imports, caches and the first batches fill memory in every training; a leak goes on behind them."""

LONGEST_WAIT: Final = 86_400.0
"""So many seconds may lie between two samples of memory.
Choice: a day; twenty of them take three weeks, and a slip of the keys would wait for years."""

LEAST_MEMORY_SAMPLES: Final = 20
"""So many samples must be left to judge a growth.
Choice: the interval of Theil and Sen's slope is wide below; a longer wait would be asked of short runs."""

MOST_MEMORY_SAMPLES: Final = 500
"""A slope is taken over at most twice so many samples, evenly spread.
Measured: it looks at each pair: 1000 samples take a twentieth of a second, a day of them would take hours."""

LEAK_NOISES: Final = 4.0
"""Memory must have grown by so many times the scatter of its samples to be a leak.
Choice: the scatter is a median; in steady runs that were simulated as noise, growth stayed below twice of it."""

LEAK_SHARE: Final = 0.005
"""Memory must have grown by this share of itself to be a leak.
Choice: heaps of steady runs drift by a tenth of that; a leak of this share in minutes fills any machine in a day."""

LEAST_LEAK_BYTES: Final = 2_000_000
"""Memory must have grown by so many bytes to be a leak.
Choice: allocators take memory in pieces of a megabyte; less is one of them."""

LEAK_HALVES: Final = 0.25
"""Each half of what is judged must grow by at least this share of the whole growth a second.
Choice: a cache that is filled once stands in one half; a leak goes on in both."""
