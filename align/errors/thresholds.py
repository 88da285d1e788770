"""The limits of what messages list. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

ERROR_NAMES: Final = 12
"""Names of entries or formats that a message lists on one line.
Choice: fewer may leave out the one that was meant, more fill several lines before the hint."""
ERROR_LINES: Final = 20
"""Lines of problems that a message lists, one below the other.
Choice: they fit on a screen with the hint, and show whether there is one cause or several."""
FILE_PROBLEM_LINES: Final = 200
"""Lines where each names a file of a checkpoint, all of which the user has to get again.
Choice: large checkpoints have about that many files; more would hide the first lines in most terminals."""
