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
    from collections.abc import Iterator, Sequence

# An escape, a set of characters, a brace that begins no count of repeats.
_TOKENS = re.compile(r"(?P<kept>\\N\{[^}]*\}|\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\{(?!\d+\}|\d*,\d*\})", re.DOTALL)
_IN_SETS = re.compile(r"(\\.)|\[", re.DOTALL)


class MatchTimeoutError(Exception):
    """The time was up while the pattern of this index was tried."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def first_match(patterns: Sequence[re.Pattern[str]], name: str) -> tuple[int, Any] | None:
    """Return index and match of the first pattern that matches the whole name, None if none does.

    Raises MatchTimeoutError after `PATTERN_SECONDS` for all of them together.
    """
    end = time.monotonic() + PATTERN_SECONDS
    for index, pattern in enumerate(patterns):
        try:
            match = _limited(pattern).fullmatch(name, timeout=_left(end))
        except TimeoutError:
            raise MatchTimeoutError(index) from None
        if match:
            return index, match
    return None


class LimitedPattern:
    """A pattern to be searched for `PATTERN_SECONDS` from now on; after them a search raises TimeoutError."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern, self._end = _limited(pattern), time.monotonic() + PATTERN_SECONDS

    def search(self, text: str) -> Any:
        """Return the first match in a text, None if there is none."""
        return self._pattern.search(text, timeout=_left(self._end))

    def finditer(self, text: str) -> Iterator[Any]:
        """Yield all matches in a text."""
        for match in self._pattern.finditer(text, timeout=_left(self._end)):
            yield match
            if time.monotonic() > self._end:
                raise TimeoutError


def _left(end: float) -> float:
    return max(end - time.monotonic(), 1e-3)


@cache
def _limited(pattern: re.Pattern[str]) -> Any:
    """The pattern of `regex` that finds what a pattern of `re` finds."""
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
