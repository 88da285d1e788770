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


# The limits of records of whole trainings. Each says why it is there, and where its number comes from.

SEGMENT_STEPS: Final = 100
"""Steps of a segment of a record: a killed process loses at most so many.
Choice: a file of fewer steps is mostly its own head; more are minutes of a large model."""
SEGMENT_ROWS: Final = 200_000
"""Rows of parameters at which a segment is written before it has its steps.
Choice: some 30 MB in memory; a model of 10,000 parameters has segments of 20 steps."""
LARGE_TENSOR: Final = 65_536
"""A tensor with more elements is large: of these only norms are taken in each step.
Choice: 256 KB stay in a core's cache, where all figures cost less than the call that takes them."""
TINY_TENSOR: Final = 4_096
"""Tensors of parameters with no more elements are read together.
Choice: of one so small a call takes longer than its elements; a bias or a norm has fewer in most models."""
LARGE_EVERY: Final = 2
"""Of so many steps one has the norms of large tensors.
Measured: those of 105 million parameters and of what layers return are 3 % of a step of 512 tokens on a processor."""
FULL_EVERY: Final = 40
"""Of so many steps one has all figures of large tensors.
Measured: all figures of 105 million parameters lengthen a step of 512 tokens on a processor by 17 %."""


# The limits of two records compared. Each says why it is there, and where its number comes from.

DEPARTURE_FLOORS: Final = {
    "data": 0.5,
    "weight": 1e-4,
    "output": 1e-3,
    "buffer": 1e-3,
    "loss": 1e-3,
    "output gradient": 1e-2,
    "gradient": 1e-2,
    "rate": 1e-5,
    "updates": 1e-5,
    "update": 1e-2,
}
"""A relative difference of norms below this is no departure, in float32, whatever stands before it.
Source: two frameworks' kernels differ by 1e-4 (MindSpore's tanh); where sums cancel, gradients of right ports differ by
3e-3, and clean updates of Adam by 2e-3 where gradients are tiny."""
HALF_FLOOR_UNITS: Final = 8.0
"""In half precision the floor is at least so many units of rounding of the coarsest dtype that a layer returns.
Choice: norms average rounding out; eight units are what a layer of few elements may be off."""
DEPARTURE_JUMP: Final = 30.0
"""What is so many times as far apart as all that stands before it departs suddenly.
Source: in 60 clean pairs of small trainings rounding grows by at most 9 between one quantity and the next."""
USUAL_SHARE: Final = 0.95
"""The usual difference of a quantity in one step: this share of its layers lies below.
Choice: one layer may be the one that departs."""
PERSISTENT_STEPS: Final = 20
"""Recorded steps that are looked at after one that departs, to see whether it does so for good.
Choice: a warm-up of Adam's moments is over by then."""
PERSISTENT_SHARE: Final = 0.8
"""So much of the steps that follow must be beyond the limit too.
Choice: a figure may cross the other one's once in a while."""
LEAST_STEPS_MISSING: Final = 2
"""Steps at least in which something is missing on one side alone.
Choice: one step may be an update that a loss scale skipped."""
ROUNDED_AWAY: Final = 1e-4
"""What lies so far below the median of its kind, by root mean square on both sides, is nothing but rounding.
Source: the gradient of a bias before a BatchNorm is zero; what kernels make of it is 1e-6 of the others and below."""
LEAST_BLOCK_STEPS: Final = 5
"""Recorded steps of a block over which a lasting difference is averaged, at least.
Choice: fewer give no standard error."""
MOST_BLOCKS: Final = 50
"""Blocks at most that a record is cut into.
Choice: more have too few steps each to be told from noise."""
LASTING_BLOCKS: Final = 3
"""Blocks at least that a lasting difference must have to the end of the record.
Choice: two may be one slow swing."""
LASTING_EFFECT: Final = 0.03
"""A lasting difference is at least so much of the logarithm of a ratio.
Source: dropout of 0.1 that is off changes what it returns by 0.053."""
LASTING_SHARE_OF_RANGE: Final = 0.1
"""It is at least this share of the range, in logarithms, that the reference's figure runs through.
Choice: two right trainings whose losses fall by a thousand may end a factor of two apart."""
LASTING_ERRORS: Final = 6.0
"""It is at least so many standard errors of a block from none.
Source: of 10,000 figures none is so far off by chance: 2e-9 each of a normal distribution, 1e-5 for few steps."""
REPEAT_FACTOR: Final = 3.0
"""So many times as far apart as two repeats of one training is no noise.
Choice: two repeats show one draw of it."""
DATA_TOLERANCE: Final = 1e-4
"""Sums over one batch that differ by less, relative, are of the same data.
Choice: two pipelines round otherwise; another sample changes far more."""
DATA_SPREAD: Final = 1e-2
"""They are also the same where they differ by less than this share of the spread of such sums from step to step.
Choice: sums of centred data may be near zero."""
MOST_DEPARTURES: Final = 200
"""Departures that a result keeps, the first ones.
Choice: after the first one all else follows from it."""
RECORD_POINTS: Final = 300
"""Points of a curve that a result keeps.
Choice: more than a plot has pixels for."""
HEAT_STEPS: Final = 60
"""Columns of the map of differences by layer and step.
Choice: more cannot be told apart on a page."""

FINGERPRINT_PERIOD: Final = 97
"""Elements of a sample after which the weights of its fingerprint begin anew.
Choice: a prime number, so that no mirrored picture and no shifted row weighs the same."""
PERSISTENT_LEAST: Final = 3
"""Recorded steps at least from one that departs suddenly on, but in the first one.
Choice: at the end of a record nothing tells a single step from one that departs for good."""
LATE_FACTOR: Final = 3.0
"""What departs lastingly after the first blocks lies so many times as far off as most of its kind.
Source: two right trainings with dropout settled 5 to 14 % apart in all layers after 1,000 steps."""
LATE_QUANTILE: Final = 0.9
"""This share of the figures of a kind are most of them.
Choice: one layer of ten may be the one that departs."""
LATE_NAMES: Final = 5
"""Names at least of which that can be said.
Choice: of fewer, the one that departs is among most."""
STEPS_AT_ONCE: Final = 256
"""Steps of two records that are compared at once.
Choice: of 1,000 parameters 1 MB, which stays in a core's cache; all of a long record would need its memory again."""
NAMES_AT_ONCE: Final = 64
"""Names whose figures are judged at once over all steps.
Choice: of 10,000 steps 2.5 MB; the same reason."""
