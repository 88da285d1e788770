"""The limits of conversions and of `align diff`. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# casts

CAST_BLOCK_ELEMENTS: Final = 1 << 16
"""What a cast costs is counted in blocks of so many elements.
Choice: the arrays that a count makes then stay in the cache; smaller blocks cost more calls, larger ones more
memory."""

# states of optimizers

DEEPEST_STATE: Final = 6
"""The state of an optimizer is looked for under so many keys, one inside the other.
Choice: trainers keep it one to three keys down; a larger number only looks through more of what is no state."""
MOST_ORDERS: Final = 20_000
"""So many readings of which weight went into which group of an optimizer are followed side by side.
Choice: groups of weights and biases leave one or a few; with more of them the order is open in any case."""

# records

MOST_KEPT_ELEMENTS: Final = 64
"""A dropped tensor of no more elements is kept in the record, for the way back.
Choice: counters are so small and weights are not; a larger number would make records long."""

# adapters

ROWS_AT_ONCE: Final = 64
"""A pass over all rows of a matrix makes so many at a time.
Choice: with 10,000 columns they have 2.5 MB; a smaller number takes more calls, a larger one more memory."""

# writing

FLUSH_BYTES: Final = 64 << 20
"""A file is flushed to the disk each time so many bytes have been written.
Choice: the disk is then busy all the time; a smaller number takes more calls, a larger one leaves more for the end."""

# threads

READING_THREADS: Final = 2
"""So many threads read and compare tensors.
Measured: more of them wait for each other where NumPy works, and for the memory where numba does."""
PART_ELEMENTS: Final = 1 << 22
"""Larger tensors are compared in parts of so many elements, so that all threads have work.
Choice: smaller parts cost more calls, larger ones leave a thread without work at the end."""

# pairs

FEW_EQUAL_NAMES: Final = 0.5
"""Where a smaller share of the names of the smaller side is equal, a prefix or a map is proposed.
Choice: two forms of one model share nearly all names or hardly any; the number between decides little."""
REASONS_SHOWN: Final = 12
"""So many reasons why a map has no counterpart for a name are shown.
Choice: a map has few of them; more lines would hide what differs."""

# relations of tensors that differ

MOST_RELATED_ELEMENTS: Final = 1 << 32
"""No more elements are asked together.
Choice: a model of 4 billion weights; a larger number would read files of many GB again, for minutes."""

# updates

UPDATE_TOLERANCE: Final = 0.1
"""Two updates are alike up to this difference, relative to the reference's update in the L2 norm: gradients of two
frameworks differ by rounding that a network has gathered.
Measured: over clean pairs of convolutional nets with BatchNorm and 1 to 10 steps the difference is up to 1e-3 with SGD.
Adam makes whole steps of gradients that are rounding alone: up to 0.05."""
TURNED_ELEMENT: Final = 0.6
"""In a vector one element may turn, by which an update may differ by this over the square root of its elements.
Measured: over clean pairs of convolutional nets with Adam."""
UPDATE_FACTOR_TOLERANCE: Final = 4e-3
"""The factor between two updates is 1 up to this: what is one figure for all elements is known far better than each.
Choice: it lies above the 1e-3 by which clean updates differ; a larger number would hide small changes of a rate."""
FACTOR_OF_ONE_ELEMENT: Final = 0.02
"""Of few elements the factor is known less well: by this over their number.
Choice: as UPDATE_FACTOR_TOLERANCE; more would hide other rates of vectors, less would invent some."""
PROPORTIONAL_COSINE: Final = 0.9
"""From this cosine on the difference of two updates is proportional to the values, as another weight decay makes it.
Choice: chance gives such a cosine to no more than a few elements; a smaller number would call other rules a decay."""
FEWEST_FOR_DECAY: Final = 16
"""A decay is looked for in tensors of at least so many elements.
Choice: fewer elements are proportional to the values by chance."""
LEAST_DECAY_UNITS: Final = 4.0
"""A decay that takes off less than this many rounding units of the values is rounding.
Choice: a running variance of a BatchNorm, which is multiplied by 0.9, loses a unit or two; a larger number would hide
small decays."""
UNRELATED_DEVIATIONS: Final = 4.0
"""Updates whose cosine is below so many standard deviations, each 1 / sqrt(elements), are unrelated.
Choice: chance passes four of them once in 16,000 times."""
