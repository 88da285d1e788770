"""The limits of advice. Each says why it is there, and where its number comes from.

From which share of the time something is worth telling stands with its rule in `mappings/advice/`.
"""

from __future__ import annotations

from typing import Final

PROFILE_HEAD_BYTES: Final = 1 << 16
"""So many bytes of a file tell what it is.
Choice: the header of a trace with the properties of eight devices takes 10 KB; no table has its header later."""
READ_AT_ONCE: Final = 1 << 22
"""Letters of a trace that are read at once.
Measured: from 1 MB on, the time per event of a 500 MB trace stays the same; twice as many add memory alone."""
LONGEST_EVENT: Final = 1 << 25
"""Letters that an event of a trace may take.
Choice: a file that has no end of an event for 32 MB is damaged; without a limit it would be read into memory whole."""
MOST_FILES: Final = 2000
"""Files of a folder that are looked at.
Choice: a profile of 64 ranks has fewer; more are a folder of data that was given by mistake."""
LONGEST_MESSAGES_BYTES: Final = 1 << 28
"""So much of a log is searched for messages.
Choice: messages that end a training stand at its end, and a log of 256 MB has them within it."""
SLOW_AS_FIRST: Final = 0.2
"""Steps that take this share of the first one, and far more than the usual one, do again what the first did.
Choice: a graph of other shapes compiles as long as the first, in which the kernels of operators are loaded besides."""
FAR_SLOWER: Final = 4.0
"""So many times the median of all, a step was no usual one.
Measured: of ten healthy trainings on two shared cores no step but the first ones took more than three times."""
SLOWER_STEP: Final = 1.5
"""So many times the median of all, a step counts as slow.
Choice: the noise of a shared machine stays below; a loader that is waited for doubles a step."""
FEWEST_SLOW: Final = 3
"""Slow steps that make a rule.
Choice: two may be two accidents."""
FEWEST_STEPS: Final = 8
"""Steps of which it can be said that some are slow.
Choice: a median of fewer moves with each of them."""
REGULAR: Final = 0.7
"""This share of the distances between slow steps must be the same to be called regular.
Choice: by chance, distances of steps of which one in ten is slow are equal for less than half."""
GROWTH: Final = 1.3
"""So many times the first quarter, the last quarter of steps is slower.
Choice: a machine that warms up, or is shared, moves a quarter by less than a fifth."""
EPOCHS_SLOW: Final = 0.8
"""This share of epochs must begin with a slow step for the beginning of an epoch to be slow.
Choice: all of them where workers are started anew; one or two of ten by accident."""
SMALL_KERNEL: Final = 1e-5
"""Seconds below which a kernel takes less than to launch it.
Source: a launch costs 5 to 10 microseconds on the host (NVIDIA's CUDA guide; Ascend's of host bound trainings)."""
SHAPES_CHANGE: Final = 3
"""So many different sets of shapes in the steps of a profile are changing shapes.
Choice: a last batch that is smaller makes two."""
MATRIX_UNIT: Final = 16
"""Matrix units compute in tiles of so many rows and columns.
Source: Ascend's cube unit takes 16 x 16 x 16 float16 (FRACTAL_NZ in its documentation); NVIDIA's multiples of 8."""
SMALL_SIDE: Final = 64
"""Sides of matrices from which on a rest matters.
Choice: a head of 10 classes costs nothing; of a vocabulary of 50,257 the whole product is slowed."""
LONGEST_GAP: Final = 1e-3
"""Seconds between two reads of a tensor that still belong to one loop.
Choice: Python needs some microseconds for a turn of a loop; a forward pass takes longer."""
SHOWN_PLACES: Final = 3
"""Places of one piece of advice that are kept beside the first.
Choice: they are of one cause; more push other advice off the screen."""
COVERED: Final = 0.5
"""Advice of a narrower rule that explains this share of what a general one costs stands alone.
Choice: most of it is the same time then; a smaller part leaves something that only the general rule tells."""
FEWEST_GROWING: Final = 40
"""Steps of which it can be said that they get slower and slower.
Measured: of ten profiled steps of healthy trainings, quarters rose by a third by chance; of 40 never."""
GAP_EXPLAINED: Final = 0.9
"""From this share on, the gap of two profiles counts as explained.
Source: the share that this tool promises; below it, it says how much is not explained."""
SLOWER_PORT: Final = 1.2
"""So many times the reference's step, by default, the rung of the ladder takes the port's as slow.
Choice: that of the comparison of logs."""
STRAGGLER: Final = 1.15
"""So many times the median of all ranks, a rank that computes longer holds the others up.
Choice: ranks of one machine differ by some percent."""
MOST_KEYS: Final = 400_000
"""Different names with shapes that are kept of a trace; later ones lose their shapes.
Choice: a trace of 500 MB with a shape of its own at each step has a quarter of them."""
