"""The limits of traces and their pairs. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# pairing

PAIRED_LAYER_SCORE: Final = 100.0
"""One layer with parameters outweighs in an alignment any run of layers without.
Choice: a layer without parameters scores one at most, and a hundred of them seldom stand in a row."""
OTHER_SHAPE_SCORE: Final = 0.5
"""What a layer of another shape scores: the same layer with another setting may have one.
Choice: below one, so that a layer of the same shape is preferred; above that of another kind."""
OTHER_KIND_SCORE: Final = 0.25
"""What a layer of another kind scores: one may be taken for another (average for max pooling).
Choice: below that of another shape; 0 would leave such layers unpaired."""
NEAR_DISTANCE: Final = 0.05
"""A port's layer returns what the reference's next layer does if the relative root mean square is below this.
Choice: faults of earlier layers are in it; a larger number takes unlike layers for one."""
CLEARLY_NEARER: Final = 10.0
"""The next layer must be nearer by this factor than the layer itself.
Choice: a smaller factor decides where both are about as far."""
MOST_LISTED_PARTS: Final = 20
"""A message lists so many parts that one side lacks; the rest is a count.
Choice: what fits a screen."""

# weights

MOST_LISTED_PARAMETERS: Final = 5
"""An error lists so many parameters that the models lack.
Choice: enough to recognise a map of another model."""
LEAST_UNRELATED_ELEMENTS: Final = 64
"""With fewer elements nothing is said of weights that were never given.
Source: independent values of n elements correlate by about 0.8 / sqrt(n), which is 0.1 for 64."""
LEAST_UNRELATED_PARAMETERS: Final = 2
"""With fewer parameters nothing is said of weights that were never given.
Choice: one alone may be a fault of that parameter."""
MOST_UNRELATED_CORRELATION: Final = 0.3
"""Weights are unrelated if the mean of their correlations over all elements is below this.
Measured: 0.04 in independent values of a thousand elements."""
SAME_SUMS_TOLERANCE: Final = 1e-9
"""Sums in float64 over the same values in another order agree to this.
Choice: a thousand additions are off by about 1e-13; a larger number takes other values for the same."""

# files


# dumps of other tools

DEEPEST_RUN_FOLDER: Final = 4
"""A dump is looked for so many folders of steps, ranks and processes deep.
Source: msprobe writes step0/rank0, MindSpore rank_0/NET/GRAPH/ITERATION."""
MOST_LISTED_RUNS: Final = 10
"""An error lists so many runs to choose from, and so many names that a reader does not know.
Choice: what fits a screen."""
DEEPEST_DUMPED_VALUE: Final = 32
"""What a call was given or returned may hold lists and tables in one another so deep.
Choice: those of models are three or four deep; deeper ones are made to exhaust the stack."""
MOST_DUMPED_FILES: Final = 100_000
"""A folder of arrays with more files is refused.
Choice: the largest models have some 10,000 tensors a step; more are several steps, or no dump at all."""
MOST_DUMPED_ELEMENTS: Final = 1 << 59
"""A shape with more elements is no tensor's.
Source: elements of up to 16 bytes then have fewer than 2**63 bytes, which is what an offset holds."""
LONGEST_FILE_NAME: Final = 200
"""So many characters of a tensor's name are kept in the name of its file.
Source: file systems take 255 bytes; a number in front, the ending and the name of a temporary file need some."""
LONGEST_DUMP_TEXT: Final = 64 << 20
"""A log or a table of another tool with more bytes is refused.
Choice: a line of an operator has some 200 bytes; a larger number would take gigabytes of memory."""
PRINTED_PRECISION: Final = 1e-4
"""What torch prints with four decimals may be off by this share.
Source: torch's default print options; half a unit of the last of five digits is 5e-5 of 1."""
RECOGNIZED_BYTES: Final = 1 << 14
"""So many bytes at either end of a file tell whose it is.
Choice: a log of torch begins with some lines of Python's own calls before the first operator."""
CALL_DEPTH_SHOWN: Final = 1
"""Depth of the modules whose calls are listed where a run was captured.
Choice: the children of the model; deeper ones of large models are hundreds."""

LATEST_TENSORS: Final = 8
"""Tensors of a run in another dtype that stay alive, so that a call which is given one of them is not measured again.
Choice: calls that share a tensor follow each other within a block; more would take memory."""
LARGEST_SHUFFLED: Final = 1 << 24
"""Of more elements a sample is drawn with repetition, since a shuffle takes memory for all of them.
Choice: 128 MB of places."""
CHECKSUM_BLOCK: Final = 1 << 20
"""Bytes of a file that are read at a time.
Choice: it bounds the memory; smaller blocks cost calls."""
TRACE_HEADER_BYTES: Final = 1 << 22
"""Room for the header of the tensors' file, which is written last.
Choice: a capture takes about 150 bytes of it, so this holds some 28,000."""
