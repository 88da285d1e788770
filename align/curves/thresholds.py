"""The limits of reading loss logs and of their axis. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# What several sub-rooms share.
LONGEST_LINE: Final = 4000
"""Characters of a line in which numbers and names are looked for.
Choice: lines of records have some hundred; a smaller one cuts long lists of losses, a larger one lets a line of
megabytes cost seconds."""
SAMPLE_LINES: Final = 4000
"""Lines of an unknown log that show what its records look like.
Choice: fewer end before the first record of logs that print their model first, more cost time in logs that hold no
loss."""
SHOWN_CHARACTERS: Final = 40
"""Characters of a text out of a log that a message or a cell keeps.
Choice: enough for any number and most words; more would let a broken file fill the screen."""
RECORDS_AT_ONCE: Final = 1 << 17
"""Records of an event file that are taken together.
Choice: fewer cost more calls of numpy, more need memory beside the file; the result is the same."""

# Files and blocks of lines.
KEPT_LOG_BYTES: Final = 8 * 2**20
"""The cleaned lines of a log of so few bytes are kept while formats are asked about it.
Choice: one JSON object of 100,000 keys has 3 MB; what is kept takes a few times as much memory."""

UNPACKED_PIECE: Final = 1 << 22
"""Bytes of a gz file that are unpacked before the next look at how many they are.
Choice: smaller ones cost more calls; what is refused has cost one piece more at most."""
MOST_UNPACKED_TIMES: Final = 100
"""A gz file that unpacks to more than so many times its size holds no log.
Measured: logs of training pack to a fifth up to a thirtieth, one line repeated to a three hundredth."""
MOST_UNPACKED_BYTES: Final = 200_000_000
"""A gz file is unpacked into so many bytes at most.
Choice: a log of a million lines has 100 MB; more takes the memory of what is read from it besides."""
LONGEST_READ_LINE: Final = 1 << 22
"""A line of a log is read up to so many bytes.
Choice: one JSON object of 100,000 keys has 3 MB. Measured: readers take half a second for a line of 1 MB without a
format, and a hundred times its size in memory."""

LOG_HEAD_BYTES: Final = 1 << 20
"""Bytes at the beginning of a log by which its format is recognised, before more is asked for.
Choice: less may end before the first record and asks again, more makes all formats read all of a short log."""
BLOCK_LINES: Final = 1 << 14
"""Lines that are read at a time: what is made of them fits into a processor's cache, and is enough for what a block
costs.
Choice: fewer pay for each block, more leave the cache; the result is the same."""
LEAST_BLOCK_BYTES: Final = 1 << 20
"""A block has so many bytes at least, however short its lines are.
Choice: smaller blocks pay more often for what each costs; the result is the same."""
MOST_BLOCK_BYTES: Final = 1 << 22
"""A block has about so many bytes at most, however long its lines are.
Choice: larger ones need several times their size in memory; the result is the same."""
BINARY_BYTES: Final = 1 << 16
"""A zero byte among the first so many shows that a file is no text.
Choice: event files have one in their first dozen; more would let a text with a damaged place far inside count as
binary."""
LINE_LENGTH_BYTES: Final = 1 << 16
"""Bytes by which the usual length of a line is estimated, which decides how many bytes a block has.
Choice: fewer follow a header of another kind, more cost time; the result is the same."""
UTF16_BYTES: Final = 1 << 12
"""Bytes of a text that show whether it is UTF-16: one byte of most pairs is zero then.
Choice: fewer may be a banner in other letters, more show the same."""
UTF16_ZEROS: Final = 0.4
"""Share of the pairs whose one byte must be zero in UTF-16, of which Latin letters and digits leave one each.
Choice: a lower one takes binary files for text, a higher one refuses logs with names in other letters."""
UTF16_OTHER_ZEROS: Final = 0.1
"""The other byte of a pair is zero in no more than this share of those cases.
Choice: a larger one takes blocks of zeros for text, a smaller one refuses a text with a few of them."""
BYTES_LOOKED_AHEAD: Final = 1 << 16
"""Bytes that are read at a time to find the next line end of a large file.
Choice: more are read for nothing where lines are short, fewer cost more calls; the result is the same."""
LARGE_LOG_BYTES: Final = 1 << 23
"""A larger file is read a piece at a time, which costs nothing and keeps memory for the numbers.
Choice: for smaller ones the memory does not matter; the result is the same."""
LINES_OF_LAYOUT: Final = 16
"""Lines of each layout by which a format is recognised.
Choice: fewer may miss the one that differs, more make all formats read all of a log."""
KEPT_ALLOCATION: Final = 30 << 20
"""Bytes of an array that is made and let go, from which the C library learns to keep blocks of that size.
Source: mallopt(3), M_MMAP_THRESHOLD: the dynamic threshold grows to 32 MiB at most on 64-bit systems."""
RANKS_NAMED: Final = 8
"""Ranks of other processes that a note lists.
Choice: the ranks of one machine as a rule; more would make the note longer and say no more."""
RANKED_LINES: Final = 0.9
"""Share of the lines that must begin with a number and a colon, if that is to be the rank of a process.
Choice: banners of launchers have none; a lower one takes numbered lines of a log for ranks."""
RANKED_BYTES: Final = 1 << 16
"""Bytes at the beginning in which lines begin with their rank.
Choice: fewer hold few lines of each process, more cost time and show the same."""

# Layouts of lines, and numbers by the column.
LINES_PER_LAYOUT: Final = 4
"""Lines of a block for each layout, as a rule, from which on lines are read by layout.
Choice: with fewer there is little to win over lines one by one; the result is the same."""
LAYOUTS_ONE_BY_ONE: Final = 24
"""Layouts of one length that are looked for one by one, before the rest is sorted.
Choice: each costs a pass over the lines that are left; the result is the same."""
ROWS_TOGETHER: Final = 8
"""Rows of letters that are reduced as one, as numpy is slow with short rows.
Choice: fewer leave rows short, more leave a larger rest; the result is the same."""
PRINTED_VALUES: Final = 5
"""Values from which on a column shows whether it prints all digits.
Choice: fewer may all end early by chance, more leave short logs without printed digits."""
ROUNDED_VALUES: Final = 2
"""Unlike values that no binary float of few bits holds exactly, and that show together that a loss was rounded.
Choice: one may be a constant such as 0.1; more leave logs of few unlike values open."""
ROUNDED_DECIMALS: Final = 2
"""Decimals from which on a last zero, or short values, show that digits were rounded away.
Choice: `1.0` is how a whole number is printed in full; three would miss columns of two decimals."""
EXACT_BITS: Final = 12
"""Values that are multiples of 2 to minus this power may be exact, so that their few digits show nothing.
Choice: loss scales and shares of batches are such; more bits take rounded values of three decimals for exact."""
ALL_DIGITS: Final = 8
"""Significant digits from which on a column prints all that a float32 has.
Source: nine digits hold every float32 and fifteen every float64 (IEEE 754); of nine the last is often a zero."""

# Parts of log formats.
LONGEST_NUMBER: Final = 1000
"""Characters that a printed number may have.
Source: no float64 has more than 767 significant digits; Python reads no exponent of more than 4300."""
MOST_COLUMNS: Final = 1000
"""Numbers with a name that are read of one line.
Choice: no logger writes so many; without a limit the columns of a line of a million characters take minutes."""
FAST_JSON_KEYS: Final = 100
"""Keys of a JSON object up to which it is read by its layout.
Choice: with more keys a parser is faster; the result is the same."""
CUT_LINE_BYTES: Final = 1 << 16
"""Bytes before the last line in which lines like it are looked for.
Choice: fewer may hold none between long reports, more cost time and show the same."""
CUT_LINE_RECORDS: Final = 50
"""The latest records that the last line is compared with.
Choice: fewer may miss the longest form of a record, more reach back to lines of other lengths."""
CUT_LINE_EXAMPLES: Final = 2
"""Lines, or digits, by which a last line must be shorter before it counts as cut.
Choice: one may be a line of its own kind; three leave short logs with their cut line."""
PROVING_MULTIPLES: Final = 3
"""Printed steps, and the distance between them, from which on their remainder shows what the first step is called.
Choice: steps 1, 3, 5 are the first and every second as well as every second from 0; larger ones leave short logs
open."""
ACCIDENTAL_REPEATS: Final = 3
"""A log that names steps again more often does so on purpose.
Choice: fewer refuse logs with one line printed twice, more let interleaved runs pass as a resumed one."""
ENDS_OF_A_PASS: Final = 10
"""Of so many parts of a pass over a log's steps, the first and the last tell its losses at both ends.
Choice: larger parts hold what is learnt within them, smaller ones are noise."""
SURELY_NEARER: Final = 3
"""So many times nearer to one of two losses, and so many times above the noise, a loss belongs to that one.
Choice: the choice between epochs and runs anew; smaller factors guess where a curve hardly falls."""
SHUFFLED_POINTS: Final = 12
"""Points before others of later steps, or points of a log in all, from which on the order of lines shows something.
Choice: fewer refuse short resumed logs, more let lines out of order pass."""
EVENT_HEAD_BYTES: Final = 1 << 12
"""Bytes that hold the first record of an event file, its version.
Choice: that record has some ten bytes; more cost time for each file that is no event file."""
LONGEST_CHECKED_RECORD: Final = 1 << 13
"""Bytes of a record whose contents are checked by their checksum.
Choice: longer records hold images and graphs, no scalars; checking these costs time for nothing."""
MOST_FIELDS: Final = 1 << 14
"""Fields of one protobuf message; one with more counts as broken.
Choice: a summary of a thousand values is large; without a limit a file of a few megabytes could take minutes."""
LARGEST_STEP: Final = 2**31
"""Steps and epochs are smaller than this.
Source: the product of two, an epoch of so many steps, so many times, still fits into 64 bits."""
REPEATED_TEXTS: Final = 8
"""How often each text must come again in a column before unlike ones are read once each.
Choice: finding the unlike ones costs as much as reading a few times; the result is the same."""

# Log formats.
ARRAY_ROWS: Final = 2
"""Rows from which on an array of a JSON document is a history of losses.
Choice: one row may be a summary at the end of a training; three refuse trainings of two epochs."""
LONGEST_REPAIRED: Final = 10_000
"""Characters of a line that is no JSON as it stands and is repaired, as NaN without quotes.
Choice: records are shorter; more let a broken line of megabytes cost seconds."""
WHOLE_STEPS: Final = 0.4
"""How far the steps of an epoch by its times may be uncertain, in steps, if they give one whole number.
Choice: at 0.5 two whole numbers fit; a smaller one leaves epochs of many short steps open."""

# Logs that no format knows.
RECORD_FIELDS: Final = 4
"""Numbers that a line has at least, if it is a record without others of its kind.
Choice: fewer take any line with a step and a loss, such as a summary; more leave logs of one epoch unread."""
LINES_BELOW_COUNTER: Final = 80
"""A loss stands at most so many lines below the line that counts.
Choice: reports between them have some dozen lines; a larger number joins a loss to a counter of something else."""
RIVAL_LINES: Final = 2
"""Two parts of a loss on lines of their own are rivals if one has at most so many times the lines of the other.
Choice: twice, as a part may be printed at every other step; a part that is printed now and then is no second loss."""
TEXT_TABLE_ROWS: Final = 2
"""Rows under a line of names that make it a table.
Choice: one may be any line of as many words; more leave tables of two epochs unread."""
TEXT_TABLE_ROWS_READ: Final = 60
"""Lines below the names in which rows are looked for.
Choice: fewer may all be other output, more cost time for each line that might be names."""
LINES_TO_FIRST_ROW: Final = 3
"""Lines between the names and the first row: rules and units.
Choice: more would make a table of names and numbers that have nothing to do with each other."""
SHOWN_LINE: Final = 110
"""Characters of a line that the note shows in which a format was inferred.
Choice: about a line of the screen; fewer cut the loss off, more wrap."""
MANY_RUNS: Final = 5
"""So many losses for each step that stands are several runs, and no resumed training.
Choice: fewer refuse trainings that were resumed often, more let a sweep in one file pass as one run."""
TWICE_PRINTED_ROWS: Final = 6
"""So many rows, each printed twice, are no accident: two handlers wrote them.
Choice: fewer halve short logs of a loss that stands still, more leave short logs doubled."""
REMEMBERED_LINES: Final = 8192
"""Lines whose roles are kept, as a log is asked about its first lines once to know it and once to read it.
Choice: twice SAMPLE_LINES; fewer do the work again, more keep memory."""
SECTION_WORDS: Final = 6
"""Words of a line that begins a section, such as the validation, at most.
Choice: more take sentences that mention a validation for its beginning, fewer miss titles with a name in them."""
LINES_UNDER_SECTION: Final = 3
"""A line that begins a section stands so many lines above its first record at most.
Choice: more reach back to sections that have ended, fewer miss titles with a rule below."""
SUGGESTION_LINES: Final = 2000
"""Lines with text among which the one is looked for that a pattern is suggested for.
Choice: fewer may end before the first record, more make the message late."""
SUGGESTION_CHARACTERS: Final = 160
"""Characters of the line that is shown with a suggested pattern.
Choice: enough to recognise the line; more fill the screen."""

# The axis.
SKIPS_AT_THE_END: Final = 5
"""Skipped steps after the last loss from which on a log counts as going on to the last of them.
Choice: one or two come of the usual search for a loss scale; more leave a run that only overflows shorter than it
was."""
PERIODS_TRIED: Final = 100
"""Lengths of an epoch, in printed points, by which distances of steps may repeat.
Choice: fewer call the wide distance at the end of long epochs a hole, more cost time in logs with many holes."""
NARROW_DISTANCES: Final = 2
"""Shorter distances in an epoch: the crossing to the next one, and the last distance in it.
Source: a log that prints every n-th step of an epoch and its last one has these two."""
SHARE_LEAST_DECIMALS: Final = 2
"""Decimals that a trainer prints of a share of epochs at least.
Source: the Trainer of Hugging Face, version 4, rounds it to two."""
SHARE_MOST_DECIMALS: Final = 12
"""Decimals from which on a share of epochs is printed with all its digits.
Choice: float64 has 15 digits, of which a few are lost in the division; fewer take a rounded share for a whole one."""
EPOCH_SHARE_DIGITS: Final = 4
"""Significant digits that some trainers print of a share whatever its size: 0.1234, then 1.234.
Source: the Trainer of Hugging Face since version 5 (`f"{v:.4g}"`)."""
EPOCH_SHARE_ROUNDING: Final = 1e-6
"""What float64 leaves of a share times the steps of an epoch, as a part of an epoch.
Choice: the unit of float64 is far smaller; a larger one would take a step of very long epochs for rounding."""
LAST_STEP_SHARE: Final = 1.0
"""Steps that shares may be off by, as the last step of an epoch may have fewer batches than others.
Source: accumulated gradients: the last update of an epoch takes what batches are left."""

# Zeros in place of NaN.
ZEROS_AT_THE_END: Final = 3
"""Losses of exactly 0 at the end of a log that are no accident.
Choice: one or two may be batches without a label; more miss a training that was stopped soon after."""
NEAR_ZERO: Final = 0.05
"""The last loss before them is so large a part of the usual one, at least.
Choice: a loss that comes down to 0 is smaller before; a larger one misses trainings that were nearly done."""
SERIES_NAMED: Final = 60
"""Names of numbers that are listed where no loss is known.
Choice: consoles of reinforcement learning print some forty a step; more hide the message."""
LINES_OF_NAMES: Final = 20
"""Lines at the beginning of a log in which the names of a table are looked for that has no loss.
Choice: comments stand above some; more cost time in logs that hold no table."""
