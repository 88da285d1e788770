"""The limits that several rooms share. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# user_patterns

PATTERN_SECONDS: Final = 3
"""Seconds of the processor that a pattern of a user may take for a name or a block of lines, and is refused after that.
Choice: a sound one takes microseconds for a name; a smaller limit would refuse sound ones on a busy machine, a larger
one would let the user wait longer for the same message."""

# rounding

FLOAT64_ROUNDING: Final = 1e-9
"""Sums in float64 of numbers around 1 in another order, and what passes through a model of any depth, differ by less
than this; what differs by less is taken for equal.
Choice: the unit of float64 is 2.2e-16, so that millions of roundings stay below; a larger number would hide what is
small but there, a smaller one would call rounding a difference."""

FLOAT32_ROUNDING: Final = 1e-6
"""What passed through float32, by a cast there and back or by a few operations, differs by less than this, relative to
the largest of what was computed; what differs by less is taken for equal.
Choice: the unit of float32 is 1.2e-7, and a few operations lose a few units; a smaller number would call rounding a
difference, a larger one would hide small differences."""

# names

SURE: Final = 0.8
"""A pairing of names is sure from this confidence on.
Choice: it lies above what the order of execution alone gives, since two correct ports may call two branches in another
order; a smaller number would let that order decide, a larger one would leave open what shapes and places prove."""

# files

BLOCK_BYTES: Final = 1 << 20
"""Files are read, written and hashed in blocks of this many bytes.
Measured: a buffer of 1 MiB is the fastest way to copy a checkpoint; maps of a tensor at a time cost a third more."""

SCRATCH_NAME_LENGTH: Final = 60
"""The name of a scratch folder begins with this many characters of the destination's name.
Choice: with what is added it stays below the 255 bytes that file systems take, also in letters of three bytes; fewer
characters would give more destinations one name."""

MOST_AXES: Final = 32
"""A file that claims an array of more axes is not believed.
Source: NumPy before 2.0 holds no more (NPY_MAXDIMS); torch allows 64, and no model has ten."""

# schedules

LONGEST_SCHEDULE: Final = 100_000
"""A schedule of learning rates is followed over at most this many steps; a larger number in its settings is taken for a
seed or a size.
Measured: a scheduler of torch takes about two seconds for so many steps."""

LONGEST_SETTING: Final = 64
"""Values of a list that is still a setting of a layer; longer ones are data.
Choice: paddings, kernels and axes have a few; class weights, which have many, are read otherwise."""

SETTING_DEPTH: Final = 2
"""Levels of lists in a setting of a layer, such as paddings in pairs.
Choice: no layer of either framework has more; deeper ones are data."""

# documents

LONGEST_JSON_BYTES: Final = 128_000_000
"""A document of JSON is read up to this many bytes.
Choice: a map of 50,000 names takes 50 MB; text and values of a larger one would take more than 500 MB of memory."""

MOST_JSON_VALUES: Final = 4_000_000
"""A document of JSON may hold about this many values.
Choice: a comparison of 5,000 layers has some 500,000; so many short ones take 400 MB of memory and two seconds."""

LONGEST_TOML_BYTES: Final = 64_000_000
"""A document of TOML is read up to this many bytes.
Choice: a map of 300,000 names takes 45 MB."""

MOST_TOML_VALUES: Final = 700_000
"""A document of TOML may hold about this many values.
Measured: tomllib reads 100,000 lines a second; a map of 300,000 names has two marks of a value in each line at most."""

MOST_WORK_FOR_DOTS: Final = 50_000_000
"""Squares of the numbers of dots in the names of a document of TOML, added up.
Measured: tomllib takes half a second for so many; a name of 50,000 parts, 2.5 billion, takes 20 seconds. A map of
300,000 names of eight parts has 15 million."""

# messages

ARGUMENTS_SHOWN: Final = 2
"""A message about a call that ends the program shows so many of its arguments.
Choice: the third one of `os.execve` is the environment, which may hold secrets."""

OPTIONS_IN_ONE_PANEL: Final = 10
"""Options of a command that its help shows in one panel; of more, each kind has its own.
Choice: ten lines are read at a glance."""

# long runs

LARGE_MODELS_BYTES: Final = 1 << 30
"""Two models of so many bytes together are large: whether there is memory for them is looked at before they are run.
Choice: smaller ones fit anywhere, and to refuse one wrongly would be worse."""
LONG_RUN_SECONDS: Final = 120.0
"""What is expected to take longer, or to take as much memory as large models do, is told before it begins.
Choice: for less nobody leaves the screen."""

LONGEST_LOCK_FILE: Final = 4096
"""Bytes that are read of a lock file, which somebody else may have written.
Choice: what a run writes there has about a hundred."""
