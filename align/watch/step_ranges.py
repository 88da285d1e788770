"""Which iterations, or ranks, are meant: `0-3,10,100-`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from align.errors import UsageError

_PART = re.compile(r"(\d{1,15})(-(\d{1,15})?)?")


@dataclass(frozen=True, slots=True)
class StepRanges:
    """Ranges of numbers from 0, both ends included; the last one may be open."""

    ranges: tuple[tuple[int, float], ...]

    @property
    def shown(self) -> str:
        """The ranges as they are written."""
        return ",".join(_shown(first, last) for first, last in self.ranges)

    def __contains__(self, number: int) -> bool:
        """Tell whether a number is in one of them."""
        return any(first <= number <= last for first, last in self.ranges)


def read_ranges(text: str, what: str) -> StepRanges:
    """Read ranges; raises UsageError for a text that is none, with `what` they are of.

    >>> 101 in read_ranges("0-3,10,100-", "iterations")
    True
    """
    parts = [part.strip() for part in text.split(",")]
    found = [_PART.fullmatch(part) for part in parts]
    strange = [part for part, match in zip(parts, found, strict=True) if match is None]
    ranges = [_range(match) for match in found if match]
    turned = [f"{first}-{last:.0f}" for first, last in ranges if last < first]
    if strange or turned:
        wrong = [repr(one) for one in strange + turned if one != text]
        raise UsageError.of("loop_dump_error.no_ranges", what=what, text=text, parts=wrong)
    return StepRanges(tuple(ranges))


def _shown(first: int, last: float) -> str:
    return str(first) if first == last else f"{first}-" if last == inf else f"{first}-{last:.0f}"


def _range(match: re.Match[str]) -> tuple[int, float]:
    first = int(match[1])
    if match[2] is None:
        return first, first
    return first, inf if match[3] is None else int(match[3])
