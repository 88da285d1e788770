"""Which numbers the lines of a log name, where none is known to be its loss: any may be asked for as a metric."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING

from align.curves.line_formats.header_tables import find_names
from align.curves.line_formats.line_roles import roles_of_line
from align.curves.line_formats.log_words import counter_kind
from align.curves.line_formats.numbers_of_line import named_numbers
from align.curves.thresholds import SAMPLE_LINES, SERIES_NAMED
from align.errors import AlignError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.log_sources import LogSource


def numeric_series(source: LogSource) -> tuple[str, ...]:
    """Return the names of numbers in lines that tell a step or an epoch, in their order: the first `SERIES_NAMED`."""
    if source.is_binary:
        return ()
    lines = [line for _, line in islice(source.lines(), SAMPLE_LINES)]
    try:
        names = dict.fromkeys(name for line in lines for name in _named_in(line))
    except AlignError:
        return ()
    return tuple(islice(names or dict.fromkeys(find_names(source)), SERIES_NAMED))


def _named_in(line: str) -> Iterator[str]:
    """Yield the names of the numbers of a line that counts: keys of an object, or what stands before a number."""
    text = line.strip()
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return
        numbers = {name for name, one in found.items() if isinstance(one, (int, float)) and not isinstance(one, bool)}
        yield from sorted(numbers - {name for name in numbers if counter_kind(name)}) if found else ()
        return
    if roles_of_line(0, line).counted:
        yield from (one.label for one in named_numbers(line))
