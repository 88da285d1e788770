"""The limits of what is watched inside a training loop. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

KEPT_STEPS: Final = 5
"""Steps of which figures are kept and shown before what was found.
Choice: fewer show no trend, more make a table that no terminal holds."""
STEPS: Final = 20
"""Steps that a training takes that a function builds, by default.
Choice: what shows on a few batches shows by then; more take minutes on a processor."""
EXPLOSION_FACTOR: Final = 1000.0
"""A tensor explodes whose root mean square is so many times its running median.
Choice: gradients of clean trainings vary by 100 between batches; what overflows grows by far more within a step."""
EXPLOSION_HISTORY: Final = 32
"""Steps that the running median is taken over.
Choice: fewer follow a slow explosion, more remember what a tensor was before a warm-up."""
EXPLOSION_FEWEST_STEPS: Final = 4
"""Steps before a tensor can be said to explode: a median of fewer says little.
Choice: with 2, what starts at zero (a last layer, an adapter) explodes in its second step."""
EXPLOSION_FLOOR: Final = 1e-3
"""A tensor's median counts as at least this share of the median of all tensors of its direction in that step.
Choice: what is nearly zero may grow by any factor without harm; without a floor dead layers that wake explode."""
PARAMETER_FLOOR: Final = 1.0
"""The median of a parameter's gradient counts as at least this share of the median of those of all parameters.
Choice: those of parameters differ by far more than those of layers' outputs; one that wakes must be beyond others."""
NEAR_OVERFLOW: Final = 0.25
"""A float16 value beyond this share of the largest one, 65504, is about to overflow.
Choice: two doublings of a loss scale away; a share of 0.5 tells only one step before it happens."""
FLOAT16_LARGEST: Final = 65504.0
"""The largest number of float16.
Source: IEEE 754 half precision."""
SKIPPED_IN_A_ROW: Final = 25
"""So many steps one after another that end in infinities, and in no update, are no search for a loss scale.
Source: MindSpore's DynamicLossScaleManager starts at 2 ** 24 and halves: below 1 after 25 steps."""
FIGURES_BEFORE: Final = 5
"""Calls just before what was found that are shown with their figures.
Choice: a block of a network; more push the reason off the screen."""
FEW_SAMPLES: Final = 3
"""So many samples of a batch at most are said to be to blame.
Choice: what most samples have is not in the data of one."""
NEAR_SHOWN: Final = 5
"""Tensors about to overflow that are kept, the largest ones.
Choice: one loss scale helps all; the list is to show where."""
EXP_LARGEST: Final = {"float16": 11.08, "bfloat16": 88.7, "float32": 88.72, "float64": 709.78}
"""Above which number exp is infinite.
Source: the logarithm of the largest number of each dtype."""


# The limits of dumps out of training loops. Each says why it is there, and where its number comes from.

DUMP_HEADER_BYTES: Final = 1 << 16
"""Room for the header of an iteration's tensors, which is written last; a longer one is left out of the file.
Choice: it holds some 400 tensors; the usual 4 MB of a trace would be most of what an iteration writes."""

PERSISTENT_OVERFLOWS: Final = 5
"""So many iterations one after another that overflow, to the end, are persistent.
Choice: a scale that doubles too early overflows once; five halvings bring it down by 32, which sound gradients bear."""

SMALLEST_USEFUL_SCALE: Final = 1.0
"""A loss scale at or below this scales nothing up: what still overflows is no number by itself.
Source: the floor of MindSpore's DynamicLossScaler and of its update cell."""
