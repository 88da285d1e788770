"""The limits of dumps out of training loops. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

DUMP_HEADER_BYTES: Final = 1 << 16
"""Room for the header of an iteration's tensors, which is written last; a longer one is left out of the file.
Choice: it holds some 400 tensors; the usual 4 MB of a trace would be most of what an iteration writes."""

PERSISTENT_OVERFLOWS: Final = 5
"""So many iterations one after another that overflow, to the end, are persistent.
Choice: a scale that doubles too early overflows once; five halvings bring it down by 32, which sound gradients bear."""

SMALLEST_USEFUL_SCALE: Final = 1.0
"""A loss scale at or below this scales nothing up: what still overflows is no number by itself.
Source: the floor of MindSpore's DynamicLossScaler and of its update cell."""
