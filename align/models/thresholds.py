"""The limits of how models are run. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# runs

SEED: Final = 0
"""Every run starts from the random numbers of this seed, so that two runs of one model draw the same.
Choice: any number does, as long as it stays the same; another one would change traces that are kept."""
SAME_SEED_RUNS: Final = 3
"""A model that differs at another seed is run so often again from the seed of the first run.
Choice: numbers that vary by themselves may be the same once, and in fewer runs that would not be seen; more runs take
longer."""

# inputs

MOST_CASTS_TRIED: Final = 16
"""So many choices of inputs in another width of whole numbers are tried before a side is said to take none.
Choice: it covers all choices of three inputs; each costs a run of the model."""
LONGEST_DEFAULT: Final = 40
"""A default of a parameter that takes more characters is shown by its type alone.
Choice: longer texts would fill the line, shorter ones would hide plain settings."""
USUAL_INTEGER_BOUND: Final = 2
"""Whole numbers of inputs that are made from a seed are below this where no bound is given.
Choice: 0 and 1 are valid as labels, as masks and in every vocabulary; larger numbers might be in none."""
MOST_INPUT_ELEMENTS: Final = 1 << 31
"""An input that is made from a seed may have this many elements.
Choice: it is 8 GiB in float32, more than a batch needs; a larger number would let a slip in a shape take all memory."""

# what calls return

LONGEST_RANGE: Final = 1_000_000
"""Of a range that a model returns, this many elements are taken as numbers.
Choice: it is 8 MB; a range costs nothing however long it is, and a larger number would let one take all memory."""
LONGEST_DECIMAL_BITS: Final = 10_000
"""A whole number of more bits is written in hexadecimal digits.
Source: Python refuses to write numbers of more than 4300 decimal digits, which is 14,283 bits
(`sys.set_int_max_str_digits`)."""
DEEPEST_OBJECT: Final = 8
"""Of what a model returns, objects inside objects are looked into down to this depth.
Choice: outputs of models nest two or three deep; a larger number would follow objects that refer to a whole program."""

# layers

DEEPEST_ATTRIBUTE: Final = 6
"""Attributes of a layer are compared with those of a rebuilt one down to this depth of lists, dicts and objects.
Choice: settings lie one or two deep; a larger number would compare what layers refer to, and might never end."""
DEEPEST_CALLS: Final = 4
"""Padding in the user's code is followed through so many methods and functions that call each other.
Choice: code that pads lies one or two calls away; a larger number would take longer, and might never end."""
MOST_FUNCTIONS_READ: Final = 256
"""What is found in so many functions of the user's code is kept while their layers are asked for.
Choice: models have fewer that make layers; what is no longer kept is found again."""
MOST_STATEMENTS_READ: Final = 4096
"""What stands in so many functions and statements of the user's code is kept while their layers are asked for.
Choice: a function that makes layers has some ten statements."""
KEPT_SHARE_DIGITS: Final = 12
"""The share of values that a layer drops is rounded to this many digits behind the point.
Choice: 1 - keep_prob is off by some 1e-16; fewer digits would make two shares one, 16 would keep the rounding."""

# gradients

INFLUENCE_ROUNDING_UNITS: Final = 100
"""An influence below this many rounding units of the coarsest dtype on the way is taken for rounding.
Measured: of key biases, which softmax cancels, 4 units are left in one layer, and the rounding of some hundred layers
adds up like a random walk."""

# memory

CHECKSUM_ELEMENTS: Final = 4096
"""So many elements of a tensor, spread over all of it, make its checksum.
Choice: filling or scaling a tensor changes nearly all elements, so that a few thousand show it; more take longer."""
SMALLEST_SPILLED_BYTES: Final = 1 << 16
"""An array of no more bytes stays in memory, a larger one is written to disk while nobody reads it.
Choice: a file costs more than such an array; a larger number would keep the many arrays of small layers in memory."""
SMALLEST_LENT_BYTES: Final = 1 << 20
"""A copy of a model that computes in another precision borrows parameters of so many bytes, and has copies of others.
Choice: to cast a small one at each call takes longer than it is worth; all small ones together are few bytes."""
MOST_SAVED_BYTES: Final = 128 << 20
"""Tensors that a pass back needs stay in memory up to so many bytes; further ones are written to disk.
Choice: a quarter of what a comparison may take beside both models."""

# ONNX models

FOLDED_ROUNDING_UNITS: Final = 8.0
"""A weight that a BatchNorm was multiplied into may differ from the product in float64 by so many units of its dtype.
Source: the square root, the division and the product round once each, the norm's variance plus its epsilon once more.
Measured: at most 1.6 units in the exports of a ResNet and a MobileNetV2; a smaller number would call some of them
changed, a larger one would hide changes that the outputs show."""
SMALL_NODE_BYTES: Final = 1 << 20
"""A node of an ONNX graph that is given no more bytes runs in one thread.
Measured: to start a session with threads takes 3 ms more on two cores; below a megabyte few kernels take as long."""
LARGEST_ONE_FILE_BYTES: Final = 1 << 30
"""Weights of more bytes are written beside an exported graph, not into it.
Source: a protobuf message holds no more than 2 GB; half of that leaves room for the graph."""
MOST_LAYERS_EXPORTED_ALONE: Final = 24
"""So many classes of layers are exported alone to find the one that an exporter refuses.
Choice: each takes a second with the dynamo exporter; models have few classes of layers."""
NORM_BYTES: Final = 512 << 20
"""Tensors of a watched MindSpore loop whose norms are taken together on the processor.
Measured: a watched step of ResNet-50 at batch 8 takes 1.9 plain ones one by one, 1.75 at 64 MB, 1.4 at 512 MB, and 1.3
with all 2.2 GB at the end."""
CACHED_ELEMENTS: Final = 1 << 18
"""Elements of a tensor whose figures are taken before those of the next ones.
Measured: of 64 thousand to a million elements these are fastest; 1 MB stays in a core's second cache."""
LONGEST_VARIABLE: Final = 200
"""Characters of a variable of the environment that a capture keeps.
Choice: switches and lists of devices are shorter; lists of folders are none of a training's settings."""

MOST_SOURCE_FILES: Final = 5_000
"""So many files of a folder are searched for fused operators.
Choice: more than the largest repositories of trainings have."""
