"""The limits of reading and comparing hyperparameters. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

LONGEST_SETTINGS_BYTES: Final = 4 << 20
"""A file of settings that is parsed as a whole may have this many bytes.
Choice: the longest configurations of public repositories have some hundred kilobytes; more is data."""

LONGEST_YAML_BYTES: Final = 1 << 20
"""A YAML file may have this many bytes.
Measured: PyYAML's own parser takes 10 s for one; configurations have 30 kB."""

LONGEST_LOG_HEAD_BYTES: Final = 64 << 20
"""So much of the beginning of a log is searched for settings.
Choice: arguments are printed before the first step; logs of hours of start-up messages stay below it."""

MOST_SETTINGS: Final = 20_000
"""A file may hold this many settings, aliases written out.
Choice: a MindFormers YAML has 300; a bomb of aliases makes more than any memory holds. Measured: two files of so many
take three seconds to compare."""

DEEPEST_SETTINGS: Final = 60
"""Settings may be nested so deep.
Choice: configurations of detectors reach 15; Python's own limit lies at 1000 calls."""

MOST_BASES: Final = 100
"""A configuration may be made from so many files.
Choice: `_base_` files of mmengine come to ten; a circle would have no end."""

LEAST_SIGNS: Final = 2
"""So many of a trainer's signs must be among the names of a side for its names and defaults to be used.
Choice: one name may stand in any program; two of them belonged to one trainer in all samples that were looked at."""

SAME_NUMBER: Final = 1e-9
"""Two numbers are the same setting if they differ by less than this, relative to the larger.
Choice: decimal texts of one number round to the same float but for the last bits; settings have few digits."""

LEAST_LINES_OF_A_LIST: Final = 3
"""So many lines `name: value` in a row are a printed list of settings.
Choice: fewer stand in any log by chance."""

LONGEST_VALUE: Final = 200
"""Characters of a setting's value that are kept.
Choice: names, numbers and lists are shorter; prompts and vocabularies are no settings to read."""

ENDLESS_DIGITS: Final = 16
"""A number whose shortest spelling has this many characters is a fraction without end, such as 4/3.
Measured: what people write has at most twelve; `repr(4 / 3)` has eighteen."""

LEAST_DIGITS_ROUNDED: Final = 4
"""Such a fraction is the same as a number that is written with this many digits or more, and rounds it.
Choice: a warm-up of 0.029 is not 2/70; 1.333 against 4/3 is a spelling, as in crops of images."""

LEAST_OPTIONS: Final = 20
"""A program that defines this many options lists all that it has: no default of a trainer stands for one that it lacks.
Choice: scripts of trainings have 50 to 120; a wrapper that adds some to another program's has less."""

RANK_OF_A_GENERAL_NAME: Final = 100
"""A trainer's own name of a parameter counts before each general one: their ranks begin here.
Choice: no parameter has as many names of its own at one trainer."""

VALUE_NOT_SET: Final = -1
"""Programs mostly mean by this that they find a value themselves: it is not held against another one.
Source: max_steps of transformers' TrainingArguments, devices of Lightning, d_embed of Transformer-XL."""

LONGEST_CHAIN_OF_REFERENCES: Final = 8
"""A reference may lead to another one, so often.
Choice: configurations of OmegaConf reach three; two that name each other would have no end."""

LARGEST_BASE_OF_A_POWER: Final = 1000
"""Powers of larger numbers are not computed.
Choice: sizes are powers of 2 and 10; larger ones are work without use."""

LARGEST_EXPONENT: Final = 64
"""Powers with larger exponents are not computed.
Choice: 2 ** 64 is beyond any size; a tower of powers would take all memory."""

LEAST_LETTERS_OF_A_NAME: Final = 5
"""A single word pairs a whole name with the end of another one if it has this many letters.
Choice: shorter ones, such as `size` or `mode`, stand under many things."""

LARGEST_COLOUR: Final = 255.0
"""Colours with a number above 1 are shares of this.
Source: the largest number of a byte, which images are read as."""
