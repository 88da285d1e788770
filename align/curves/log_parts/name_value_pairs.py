"""Lines that are lists of `name: number`, read into columns.

Neighbouring lines name the same things, as a rule: then one search over all of them is enough. It looks for the ends of
lines too, so that no number can move to another line.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from align.curves.columns.line_columns import field_at
from align.curves.columns.number_forms import TO_ZEROS
from align.curves.columns.printed_column import NO_FIELD, PrintedColumn
from align.curves.line_layouts import is_digit_blind
from align.curves.thresholds import MOST_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.curves.columns.printed_column import Field

_END = "\n"


def pair_columns(lists: Sequence[str], pair: re.Pattern[str]) -> dict[str, Sequence[str]]:
    """Return the numbers of each list, as printed, by name: "" where a list has none, the last where it has two.

    Of a list with more than `MOST_COLUMNS` numbers only so many are read.
    `pair` has two groups, the name and the number, and must not reach over a line's end.
    """
    if not lists:
        return {}
    if isinstance(lists, PrintedColumn) and is_digit_blind(pair):
        columns = _by_layout(lists, pair)
        if columns is not None:
            return columns
    pair_or_end = re.compile(rf"{pair.pattern}|({_END})", pair.flags)
    found = pair_or_end.findall(_END.join((*lists, "")))
    names = [name for name, _, _ in found]
    first = names[: names.index("")]
    if len(first) <= MOST_COLUMNS and names == [*first, ""] * len(lists):
        return {name: [number for _, number, _ in found[at :: len(first) + 1]] for at, name in enumerate(first)}
    rows = [dict(pair.findall(text)[:MOST_COLUMNS]) for text in lists]
    return {name: [row.get(name, "") for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _by_layout(lists: PrintedColumn, pair: re.Pattern[str]) -> dict[str, Sequence[str]] | None:
    """Search one list of each layout; None if names in others have other digits, or there are very many."""
    known: dict[int, dict[str, Field]] = {}
    for kind in dict.fromkeys(lists.kinds.tolist()):
        text = lists.fields[kind].text
        found = _spans(pair, text.translate(TO_ZEROS))
        numbered = [name for name, _ in found if any(map(str.isdigit, text[slice(*name)]))]
        rows = lists.by_layout(kind) if numbered else lists.kinds[:0]
        spelled = [field_at(text, *name) for name in numbered]
        if len(found) > MOST_COLUMNS or not all(lists.has_one_text(rows, one.start, one.end) for one in spelled):
            return None
        known[kind] = {text[slice(*name)]: field_at(text, *number) for name, number in found}
    names = dict.fromkeys(name for fields in known.values() for name in fields)
    kinds = range(len(lists.fields))
    return {name: lists.parted([known.get(kind, {}).get(name, NO_FIELD) for kind in kinds]) for name in names}


@lru_cache(maxsize=4096)
def _spans(pair: re.Pattern[str], text: str) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Where names and numbers stand in a text of which each digit is 0; blocks of a log have the same layouts."""
    return tuple((match.span(1), match.span(2)) for match in pair.finditer(text))
