"""The limits of the search for a project's sides. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

SEARCH_DEPTH: Final = 3
"""Levels of folders that `align init` looks through: a port and its original seldom lie deeper.
Choice: fewer would miss `src/package/model.py`; more would read data sets and environments."""

SEARCHED_FILES: Final = 500
"""Files that `align init` looks at, so that a folder of data costs seconds at most.
Choice: a project has tens of Python files, checkpoints and logs; each takes about a millisecond to read."""

MOST_OPENED_FILES: Final = 1000
"""So many files that the user's code has opened are part of what a rung rests on, those that were opened first.
Choice: weights and configurations are few, and are opened before the images of a data set, which may be very many."""
