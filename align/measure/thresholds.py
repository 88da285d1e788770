"""The limits of measuring. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# tensors: what stands for one

SAMPLED_ELEMENTS: Final = 4096
"""So many elements stand for a tensor in a first look; what they suggest is verified on all of them.
Choice: fewer let wrong guesses through to the costly look, more cost time for each guess."""

MOST_PERMUTED_AXES: Final = 5
"""Axes of a tensor whose orders are all tried; five have 120 orders.
Choice: six would have 720 orders, four would miss a video or a window of windows."""

# limits: what two tensors may differ by

NOISE_FACTOR: Final = 10.0
"""The limit is this multiple of the reference's own noise, as other kernels add in another order.
Measured: on the clean pairs of docs/forward.md the candidate is up to 4.4 times as noisy as the reference."""

NOISE_FACTOR_OF_HALF_ALONE: Final = 3.0
"""The same for a layer alone in half precision: kernels add in float32 and round once, all alike.
Measured: clean ports in float16 have up to 0.65 of this limit (docs/forward.md)."""

FUNCTION_FACTOR: Final = 2.0
"""What the candidate's own functions move counts so many times.
Choice: the same function of the same values is off by the same, but what goes into it differs by rounding."""

NOISE_CONFIDENCE: Final = 0.99
"""How sure the measured noise is to be no stroke of luck, as few elements say little of it.
Choice: a higher confidence makes limits of few elements wider; without it, one number's noise was seen 118 times too
small (docs/forward.md)."""

TYPICAL_UNITS: Final = 16.0
"""An operation without noise of its own may typically differ by so many units in the last place of its scale.
Measured: ELU in MindSpore is off by 10, log-sigmoid by 5 (docs/forward.md)."""

WORST_UNITS: Final = 64.0
"""The same for the worst element, in units of the largest value.
Measured: exp in MindSpore is off by 10 at values around 1 (docs/forward.md); the worst of a million lies above."""

TYPICAL_UNITS_OF_HALF: Final = 1.0
"""In half precision such errors are below its own unit, and one rounding is left.
Measured: clean ports in float16 have up to 0.65 of the limit (docs/forward.md)."""

WORST_UNITS_OF_HALF: Final = 4.0
"""The same for the worst element.
Measured: as above."""

SMALLEST_NORMAL: Final = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126}
"""Smaller numbers have fewer digits, and many kernels make zeros of them: they may differ by as much.
Source: the formats; of float16, whose smallest is 6e-5, kernels keep them."""

RELATIVE_BY_DTYPE: Final = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Relative to the layer's scale, where noise cannot be measured.
Choice: what a deep net in this dtype usually keeps; smaller numbers alarm at deep nets, larger ones miss faults."""

# slices: parts that are judged apart

APART_ABOVE: Final = 5
"""Parts whose sizes are so many powers of two above the others are judged apart.
Source: one limit then still shows a relative fault of 2^5 x 16 units in the last place, 6e-5 in float32."""

APART_BELOW: Final = 6
"""The same for parts that are smaller than most; they may be so by chance, and must be so by more.
Choice: one power of two more."""

LEAST_SENTINEL: Final = 30.0
"""A value that is judged apart as a sentinel (a mask of -1e4) is at least so large.
Choice: what sigmoids and softmaxes return is bounded, and exact to its bound; a smaller number judges them apart."""

LEAST_ELEMENTS_APART: Final = 4
"""Fewer elements, or unlike values, are not judged apart.
Choice: fewer may lie near zero by chance."""

MOST_SHARED_DRAWS: Final = 0.5
"""Where fewer than this share of the elements are unlike, the noise is one of so many draws as there are values.
Choice: above it equal values hardly change what is known of the noise."""

# layouts

LEAST_LAYOUT_ELEMENTS: Final = 16
"""Tensors of fewer elements agree in another layout by chance.
Choice: a larger number leaves small tensors of unlike layout uncompared."""

CLEAR_LAYOUT_DISTANCE: Final = 0.1
"""A layout is believed if the relative root mean square of the difference is below this.
Measured: 1.4 for unrelated values, below 0.01 for most faults of one layer."""

# kernels

MEASURED_BLOCK: Final = 1 << 15
"""Elements that one thread measures at a time, so that all its arrays stay in the cache.
Choice: larger blocks leave the cache, smaller ones cost calls of NumPy."""

SHARED_BLOCK: Final = 1 << 17
"""The same where two threads work, which hand the interpreter's lock on at every operation.
Measured: with blocks of 1 << 15 two threads lose a third of their time."""

LONGEST_DOT: Final = 1 << 13
"""Sums of products are taken over so many elements at a time.
Choice: BLAS wakes its threads for longer vectors, and may stall for seconds on a busy machine."""

PEEKED_ELEMENTS: Final = 64
"""So many elements are compared before two blocks are compared bit by bit.
Choice: most unlike blocks show it in their first elements."""

STATISTICS_BLOCK: Final = 1 << 17
"""Elements of which statistics are made at a time.
Choice: as for two threads above; smaller blocks cost calls of NumPy."""

STATISTICS_PIECE: Final = 4096
"""Products of so many elements are summed by one call.
Choice: longer ones NumPy hands to threads of BLAS, which can stall on a busy machine."""

TILE: Final = 1 << 11
"""Elements that the compiled loop works on at a time, so that they stay in the nearest cache.
Choice: larger tiles leave that cache, smaller ones cost turns of the loop."""

WORTH_LOADING: Final = 1 << 28
"""Bytes of both sides together from which on the compiled kernel is worth its start.
Choice: it takes a twentieth of a second to load and a second or two to compile once; less is measured in that time."""

# relations: how two tensors of weights hang together

LEAST_RELATION_BITS: Final = 32.0
"""Values that hold fewer bits together, or a chance agreement that takes fewer, name no relation.
Choice: some 150 kinds are asked of each of 50,000 tensors, and 2^32 is 500 times as many; ten distinct values have 33
bits. A larger number would leave short biases without a name."""
FEWEST_DISTINCT_WEIGHTS: Final = 4
"""Values of fewer kinds (masks, ones and zeros) name no relation.
Choice: of zeros and ones an order, a transposition or another layer's fits by chance; weights have hundreds."""
UNITS_OF_COMPUTED_WEIGHTS: Final = 2.0
"""What is scaled or added to may be off by so many units in the last place of the coarser side.
Choice: the port rounds once or twice; a larger number would call weights that were trained on scaled."""
LEAST_SPREAD_OF_RELATED: Final = 8.0
"""Where not all elements are equal bit for bit, they spread by so many times what they may be off.
Choice: a weight near 1 in bfloat16 spreads by less, and any other such weight would then be near it."""
PREFIX_OF_SLICE: Final = 64
"""So many elements at the start of each slice are looked at before whole slices are.
Choice: trained weights fail here; fewer elements may be equal by chance, more cost time for each tensor."""
RELATED_BLOCK: Final = 1 << 18
"""Whole tensors are held against each other in blocks of so many elements.
Choice: their float64 copies take 2 MB each; a smaller number costs calls, a larger one memory."""
MOST_WRITTEN_BLOCKS: Final = 512
"""An order of more blocks is named, and no map line is written for it.
Choice: 512 heads fill three lines of a page; nobody pastes an order of all channels."""
GROUPS_SAMPLED: Final = 64
"""So many elements stand for a tensor among others of its shape, and so many groups for a quantized one.
Choice: 64 floats of a trained tensor are no other's; all that they suggest is confirmed by whole tensors."""
GRID_DEVIATION: Final = 0.07
"""A quantized value lies so near to a step, in steps.
Choice: float32 is off by 1e-5 of a step of eight bits, float16 by 0.06; a larger number lets other values through."""
BITS_OF_A_STEP: Final = 2.5
"""What a value on a step says.
Choice: by chance a seventh of all values lie within `GRID_DEVIATION` of a step, which is 2.8 bits."""
LARGEST_UNIT_OF_STEP: Final = 0.25
"""The unit in the last place of the largest value is no more than so many steps.
Choice: of float16 it is an eighth of a step of eight bits; where it is a step, all values lie on steps."""
MOST_LEVELS: Final = 256
"""A tensor with more distinct values was not quantized as a whole.
Source: the levels of eight bits."""
LARGEST_QUANTIZED_WHOLE: Final = 1 << 24
"""Larger tensors are looked at by rows and groups, not as quantized with one scale.
Choice: one row of it in float64 has 128 MB; one scale for so many weights is not used."""
MOST_RELATED_TENSORS: Final = 4096
"""So many tensors that differ are asked how they are related.
Measured: one of them takes 1 to 2 ms where nothing relates it, so all take some seconds; a model has fewer."""

# fused operators

SCORE_ROWS_AT_ONCE: Final = 1024
"""So many rows of scores are worked out at once.
Choice: with 8192 keys these are 64 MB in float64, and more rows would not be faster."""
