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

MOST_SETTINGS: Final = 50_000
"""A file may hold this many settings, aliases written out.
Choice: a MindFormers YAML has 300; a bomb of aliases makes more than any memory holds."""

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
