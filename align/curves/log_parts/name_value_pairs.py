"""Lines that are lists of `name: number`, read into columns.

Neighbouring lines name the same things, as a rule: then one search over all of them is enough. It looks for the ends of
lines too, so that no number can move to another line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_END = "\n"
# Of a line of a million characters, as no logger writes one: a column for each name of it would take minutes.
MOST_NAMES = 1000


def pair_columns(lists: Sequence[str], pair: re.Pattern[str]) -> dict[str, list[str]]:
    """Return the numbers of each list, as printed, by name: "" where a list has none, the last where it has two.

    Of a list with more than `MOST_NAMES` numbers only so many are read.
    `pair` has two groups, the name and the number, and must not reach over a line's end.
    """
    if not lists:
        return {}
    pair_or_end = re.compile(rf"{pair.pattern}|({_END})", pair.flags)
    found = pair_or_end.findall(_END.join((*lists, "")))
    names = [name for name, _, _ in found]
    first = names[: names.index("")]
    if len(first) <= MOST_NAMES and names == [*first, ""] * len(lists):
        return {name: [number for _, number, _ in found[at :: len(first) + 1]] for at, name in enumerate(first)}
    rows = [dict(pair.findall(text)[:MOST_NAMES]) for text in lists]
    return {name: [row.get(name, "") for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
