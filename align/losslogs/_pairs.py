"""Lines that are lists of `name: number`, read into columns.

Neighbouring lines name the same things, as a rule: then one search over all of them is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence


def pair_columns(lists: Sequence[str], pair: re.Pattern[str]) -> dict[str, list[str]]:
    """Return the numbers of each list, as printed, by name: "" where a list has none, the last where it has two.

    `pair` has two groups, the name and the number, and must not reach over a line's end.
    """
    if not lists:
        return {}
    names = [name for name, _ in pair.findall(lists[0])]
    found = pair.findall("\n".join(lists))
    if names and [name for name, _ in found] == names * len(lists):
        return {name: [number for _, number in found[at :: len(names)]] for at, name in enumerate(names)}
    rows = [dict(pair.findall(text)) for text in lists]
    return {name: [row.get(name, "") for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
