"""The limits of what messages list. Each says why it is there, and where its number comes from."""

from __future__ import annotations

from typing import Final

NAMES_IN_SENTENCE: Final = 3
"""A sentence lists this many names before it breaks off with dots.
Choice: more would push what the sentence says out of sight, fewer would show no pattern in the names."""

MOST_NAMES_COMPARED: Final = 50_000
"""So many pairs of names are compared to propose names that are close to a wrong one.
Measured: that many take a few seconds, which is as long as a message about wrong names may take."""

LONGEST_SHOWN_LINE: Final = 2_000
"""A line that is printed is cut to this many characters.
Choice: twenty lines of a page; names of files may be megabytes long, and no reader goes on so far."""
