"""The limits of relations: when one counts as found, and how much work it may be to look for it."""

from __future__ import annotations

from typing import Final

ENOUGH_BITS: Final = 32.0
"""A relation must outweigh by so many bits the number of relations among which it was looked for.
Choice: a fluke in four thousand million; fewer bits let flukes pass, more ask for larger tensors."""

ELEMENTS_PER_NUMBER: Final = 4
"""So many elements must be put right for each number that was fitted to the data.
Choice: with one element a number anything explains everything; more miss relations of small tensors."""

LEAST_BITS_OF_ELEMENT: Final = 2.0
"""An element says something only if the spread is that many doublings above the limit.
Choice: at 2 the limit is a quarter of the spread; with less, outputs that hardly vary fit any relation."""

LEAST_RELATION_GAIN: Final = 4.0
"""What a relation leaves must be smaller by this factor than what was there.
Choice: a smaller factor names relations that explain little, a larger one those of small faults not at all."""

CLOSER_TO_FUNCTION: Final = 50.0
"""So much closer must a candidate be to a function than to the reference, to be taken for that function.
Measured: an activation written with MindSpore's tanh (9e-6 off) is 1,000 times closer to its function; functions that
are often exchanged differ by 1 % of their range and more, and only what is 50 times closer is named."""

INFORMATIVE_SPREAD: Final = 4.0
"""A slice that varies by less than this multiple of the limit cannot distinguish a scale from a shift.
Choice: a smaller multiple reads a scale off rounding, a larger one leaves calm channels out."""

MOST_OF_SLICES: Final = 0.5
"""This share of the slices must show a relation that is found slice by slice.
Choice: the others may be constant or wrong otherwise; a smaller share lets chance name an order or a scale."""

NEGATED_TOLERANCE: Final = 1e-5
"""A fitted scale this close to -1 is a sign that was lost, and no number.
Choice: float32 fits a scale to about 1e-7; a larger number hides a scale that is not -1."""

LARGEST_NAMED_SCALE: Final = 5000.0
"""Scales up to this, and down to its inverse, are named as whole numbers and square roots.
Choice: it holds 255, 1000 and the square roots of all common widths (sqrt(4096) = 64 and its inverse)."""

NAMED_SCALE_TOLERANCE: Final = 1e-6
"""A fitted scale this close, relatively, to a whole number or square root is called that.
Choice: ten units of float32; among thousands of square roots a larger tolerance always finds one near."""

LARGEST_TRIED_ATTENTION: Final = 1 << 20
"""Attention layers up to so many elements are computed in every way.
Choice: each way costs the whole layer; larger ones would take seconds."""

MOST_ATTENTION_TENSORS: Final = 5
"""Among so many tensors queries, keys and values are looked for.
Choice: five have 60 ordered triples, each tried with every number of heads."""

MOST_ATTENTION_HEADS: Final = 64
"""So many heads are tried at most.
Choice: published models have up to 128, most of them 64 or fewer; each number costs a trial."""

LARGEST_ATTENTION_SAMPLE: Final = 1 << 18
"""One sample of attention in code has at most so many elements, as hundreds of ways are tried on some of it.
Choice: a larger number makes the search take seconds."""

LARGEST_ATTENTION_IN_CODE: Final = 1 << 22
"""All samples together have at most so many elements, as the ways that are left are tried on all.
Choice: a larger number makes the search take seconds."""

TRIED_POSITIONS: Final = 2
"""So many positions are tried before the whole.
Choice: one might be equal by chance; more cost time for hundreds of ways."""

MOST_TERMS: Final = 16
"""Among so many tensors two terms of a sum are looked for.
Choice: the work grows with the pairs, 120 of 16."""

FARTHEST_DISPLACEMENT: Final = 2
"""By so many pixels along two axes a displacement is looked for.
Choice: wrong padding displaces by one or two; the work grows with the square."""

SHORTEST_DISPLACED_AXIS: Final = 6
"""Axes that are displaced have so many elements at least, so that some are left in the middle.
Choice: it must be above twice the farthest displacement."""

MOST_CUT_OFFSETS: Final = 64
"""So many offsets of a cut are tried.
Choice: a padding or a special token is shorter; each offset costs a comparison of some elements."""

MOST_UNEQUAL_PARTS: Final = 6
"""An order of slices is one of unequal parts if there are so many runs of neighbours at most.
Choice: pyramids have three to five levels; with more runs it is an order of its own."""

LEAST_PART_LENGTH: Final = 4
"""Such parts have so many slices each, on the mean.
Choice: shorter runs are found in any order."""

LONGEST_KEPT_AXIS: Final = 128
"""Masks of padding are read off an axis of at most so many positions.
Choice: each number of kept positions is computed; more of them take seconds and much memory."""

LEAST_KEPT_FEATURES: Final = 8
"""A sample needs so many numbers to show how many positions it keeps.
Choice: each gives dozens of bits; of one or two numbers many lengths fit within the limit."""

FIRST_LOOK_AT_CUT: Final = 64
"""So many elements are compared at an offset before all of them.
Choice: fewer let more wrong offsets through to the costly look."""

MOST_REORDERED_PARTS: Final = 8
"""An order of slices is described as one of up to so many equal parts.
Choice: fused layers have three or four; with many parts any order could be called so."""

LARGEST_EPSILON: Final = 0.1
"""A larger epsilon is not believed to be one.
Choice: frameworks have 1e-12 to 1e-3; a larger number lets another fault pass for an epsilon."""

LARGE_NORM_INPUT: Final = 1 << 19
"""Inputs of more elements are tried on some samples first.
Choice: each way costs the whole input several times."""

MOST_NORM_GROUPS: Final = 64
"""Numbers of groups of a group norm that are tried, besides one for each channel.
Choice: most published models have 32; each number costs a trial."""

FIRST_LOOK_AT_AXES: Final = 32
"""So many elements are compared for each order of axes before more of them.
Choice: fewer let more wrong orders through to the costly look."""

CHANCE_CORRELATION_OF_ERRORS: Final = 4.0
"""An error is rounding if its mean and its correlation with the values stay within so many standard deviations.
Choice: 4 leave out one rounding in four thousand (four figures); a larger number calls small faults rounding."""

LEAST_ROUNDED_ELEMENTS: Final = 256
"""Of fewer elements no error is said to be of the size of rounding.
Choice: a smaller number says so of errors that only look at random."""

LONGEST_ORDER_OF_NUMBERS: Final = 1 << 16
"""An order of single numbers is looked for among so many at most.
Choice: so many numbers lie closer to each other than float32's limit, and no order of them shows."""

SLICE_COLUMNS: Final = 64
"""So many elements stand for a slice.
Choice: fewer make unlike slices look alike, more cost memory for each slice."""

SLICE_TABLE_CELLS: Final = 1 << 21
"""A table of slices has so many numbers at most (16 MB in float64).
Choice: it bounds the memory of long axes, such as vocabularies."""

SHARES_TOLERANCE: Final = 1e-3
"""Shares add up to 1 within this.
Choice: sums of thousands of shares in float16 are off by as much; a larger number takes other outputs for shares."""

WIDEST_BORDER: Final = 3
"""A wrong border is so many elements wide at most.
Choice: a wrong padding of a kernel of 7 reaches 3 elements in."""

MOST_WRONG_SLICES: Final = 0.5
"""At most this share of the slices may be wrong if the fault is said to be in them.
Choice: with more it is the layer that is wrong, not some slices."""

WRONG_THROUGHOUT: Final = 0.25
"""A slice is wrong throughout if this share of its elements is wrong.
Choice: a smaller share blames slices for single elements, a larger one misses faults that are small in places."""

DROPOUT_DEVIATIONS: Final = 5.0
"""The share of zeros and the scale of dropout agree within so many standard deviations of chance.
Choice: chance goes beyond 5 in one of two million cases."""

DIGITS_OF_CAP: Final = 2
"""A soft cap that was read off the data is one with so many digits, or a whole number.
Choice: caps that people write are 5, 30 or 2.5; with more digits one cap in the place of another looks like a third.
"""

DIGITS_OF_FACTOR: Final = 5
"""A number of the code, times a factor that was read off the data, is tried with so many digits.
Choice: factors are good to six or seven digits of float32; with fewer a number of a user's is not met.
"""

MOST_SOFT_CAP: Final = 100.0
"""A soft cap above so many times the largest value is none.
Choice: it moves that value by 3e-5 of itself."""

BISECTIONS: Final = 60
"""So many halvings find the number of a curve.
Choice: each gives one bit; float64 has 53."""
