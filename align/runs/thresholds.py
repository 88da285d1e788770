"""The limits of the search for a project's sides. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

SEARCH_DEPTH: Final = 4
"""Levels of folders that `align init` looks through: a port and its original seldom lie deeper.
Choice: fewer would miss `src/package/models/net.py`; more would read data sets and environments."""

IMPORT_STEPS: Final = 8
"""How far `align init` follows a name from file to file, a function to what it returns, a class to its bases.
Choice: a name is handed on by an `__init__.py` or two; imports in a circle must end."""

SEARCHED_FILES: Final = 500
"""Files that `align init` looks at, so that a folder of data costs seconds at most.
Choice: a project has tens of Python files, checkpoints and logs; each takes about a millisecond to read."""

CONFIG_BYTES: Final = 1_000_000
"""Larger YAML and JSON files are no configurations.
Choice: configurations have kilobytes; annotations of a data set have hundreds of megabytes."""

LEAST_SHARE: Final = 0.1
"""So many of the words in the names of a checkpoint are attributes of the port's source, or it is not the port's.
Choice: layers of libraries hide most names; words such as `layers` are in every model."""

LISTED_MODELS: Final = 12
"""So many models are listed where several could be meant.
Choice: a library has hundreds; a message with more than a dozen is not read."""

MOST_OPENED_FILES: Final = 1000
"""So many files that the user's code has opened are part of what a rung rests on, those that were opened first.
Choice: weights and configurations are few, and are opened before the images of a data set, which may be very many."""
