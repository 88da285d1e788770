"""Regular expressions that a user writes, searched for a limited time: some would never come to an end.

`re` can be stopped by a signal alone, which only the main thread receives, and not on every system. The package `regex`
takes a limit, on any thread. What has a meaning in `regex` alone (`{e<=1}` for errors that are allowed, `[:alpha:]`) is
escaped, so that a pattern means what it means to `re`, which has compiled it first.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from align.core.thresholds import PATTERN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

# An escape, a set of characters, a brace that begins no count of repeats.
_TOKENS = re.compile(r"(?P<kept>\\N\{[^}]*\}|\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\{(?!\d+\}|\d*,\d*\})", re.DOTALL)
_IN_SETS = re.compile(r"(\\.)|\[", re.DOTALL)


class LimitedPattern:
    """A pattern to be searched for `PATTERN_SECONDS` from now on; after them a search raises TimeoutError."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern, self._end = limited(pattern), time.monotonic() + PATTERN_SECONDS

    def search(self, text: str) -> Any:
        """Return the first match in a text, None if there is none."""
        return self._pattern.search(text, timeout=seconds_left(self._end))

    def finditer(self, text: str) -> Iterator[Any]:
        """Yield all matches in a text."""
        for match in self._pattern.finditer(text, timeout=seconds_left(self._end)):
            yield match
            if time.monotonic() > self._end:
                raise TimeoutError


def seconds_left(end: float) -> float:
    """The time until `end`, of `time.monotonic`; never 0, which would be no limit."""
    return max(end - time.monotonic(), 1e-3)


@cache
def limited(pattern: re.Pattern[str]) -> Any:
    """The pattern of `regex` that finds what a pattern of `re` finds; its methods take a `timeout`."""
    import regex

    flags = regex.VERSION0
    for name in ("ASCII", "IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE"):
        if pattern.flags & re.RegexFlag[name]:
            flags |= regex.RegexFlag[name]
    return regex.compile(_TOKENS.sub(_escaped, pattern.pattern), flags)


def _escaped(token: re.Match[str]) -> str:
    if token["set"]:
        return "[" + _IN_SETS.sub(lambda one: one[1] or r"\[", token["set"][1:])
    return token["kept"] or r"\{"
