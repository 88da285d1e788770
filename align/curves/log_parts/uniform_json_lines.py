"""JSON objects a line each, parted by layout without a parser: numbers, words and texts without a backslash in them.

Most logs of JSON lines write the same few keys in the same order. Anything else is for the parser.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from align.curves.columns.line_columns import field_at, layout_column
from align.curves.columns.printed_column import ABSENT_FIELD
from align.curves.thresholds import FAST_JSON_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.curves.columns.printed_column import Field
    from align.curves.line_layouts import LineLayouts
    from align.curves.log_sources import LogBlock
    from align.curves.loss_log import Integers

_PAIR = re.compile(r'[{,] *"([^"\\\0-\x1f]+)" *: *(?:"([^"\\\0-\x1f]*)"|([A-Za-z0-9+.-]+)) *')
_LAST = re.compile(r"\}\s*")


class UniformObjects(NamedTuple):
    """The lines of objects, and their values as printed by key: ABSENT where an object lacks one."""

    lines: Integers
    columns: Mapping[str, Sequence[str]]


class _Object(NamedTuple):
    keys: tuple[Field, ...]
    values: dict[str, Field]


def split_uniform_objects(block: LogBlock) -> UniformObjects | None:
    """Return the values of all objects of a block; None if a line is neither blank nor such an object."""
    layouts = block.layouts if block.text.startswith("{") else None
    if layouts is None:
        return None
    found = [_read_object(sample) for sample in layouts.samples]
    if not all(one or not sample.strip() for one, sample in zip(found, layouts.samples, strict=True)):
        return None
    if not all(_has_keys(layouts, kind, one) for kind, one in enumerate(found) if one):
        return None
    rows = np.flatnonzero(np.array([one is not None for one in found])[layouts.kinds])
    first_seen = dict.fromkeys(layouts.kinds[rows].tolist())
    names = dict.fromkeys(name for kind in first_seen for one in (found[kind],) if one for name in one.values)
    fields = {name: [one.values.get(name, ABSENT_FIELD) if one else ABSENT_FIELD for one in found] for name in names}
    return UniformObjects(block.numbers[rows], {name: layout_column(layouts, rows, fields[name]) for name in names})


def _read_object(line: str) -> _Object | None:
    """Tell where keys and values of an object stand; None if it is no plain one, or a key stands twice."""
    keys: list[Field] = []
    values: dict[str, Field] = {}
    place = 0
    while (found := _PAIR.match(line, place)) and (line[place] == "{") == (place == 0) and len(keys) < FAST_JSON_KEYS:
        keys.append(field_at(line, *found.span(1)))
        values[found[1]] = field_at(line, *found.span(2 if found[3] is None else 3))
        place = found.end()
    whole = len(keys) == len(values) > 0 and _LAST.fullmatch(line, place)
    return _Object(tuple(keys), values) if whole else None


def _has_keys(layouts: LineLayouts, kind: int, one: _Object) -> bool:
    """Tell whether all lines of a layout have the keys of its sample, as digits in them may be others."""
    numbered = [key for key in one.keys if not key.text.isalpha() and any(map(str.isdigit, key.text))]
    rows = np.flatnonzero(layouts.kinds == kind) if numbered else layouts.kinds[:0]
    for key in numbered:
        letters = layouts.letters[layouts.starts[rows, None] + np.arange(key.start, key.end)]
        if (letters != letters[0]).any():
            return False
    return True
