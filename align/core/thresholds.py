"""The limits that several rooms share. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

# user_patterns

PATTERN_SECONDS: Final = 3
"""A regular expression that a user writes may take this long for a name or a block of lines, and is refused after that.
Choice: a sound one takes microseconds for a name; a smaller limit would refuse sound ones on a busy machine, a larger
one would let the user wait longer for the same message."""
