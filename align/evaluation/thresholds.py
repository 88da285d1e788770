"""The limits of validation. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# validation

METRIC_ROUNDING: Final = 1e-6
"""What a metric may move by, beside what is measured: its own sums, in whatever precision the user adds them up.
Choice: ten units of float32; a smaller number blames the metric for the order of a sum."""

METRIC_LIMIT_WITHOUT_NOISE: Final = 1e-4
"""The same where the reference's noise is not known.
Choice: the outputs are then judged by a limit of 1e-4 of their scale as well."""

MOST_WORST_SAMPLES: Final = 10
"""So many of the samples that differ most are kept.
Choice: what a reader looks at."""

MOST_FLIPPED_INDEXES: Final = 1000
"""So many indexes of samples that another class wins are kept.
Choice: it bounds the size of the result; all of them are counted."""

SAME_SAMPLE_TOLERANCE: Final = 1e-5
"""Two samples are one if their figures agree to this share of the sample's norm.
Choice: far above the rounding of float32 (1e-7), far below one grey value of 255 in each pixel (4e-3)."""
