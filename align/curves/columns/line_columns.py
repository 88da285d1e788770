"""What an expression finds in lines: in rows, or in columns, once a layout where digits decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.curves.columns.printed_column import NO_FIELD, Field, PrintedColumn
from align.curves.line_layouts import is_digit_blind
from align.curves.log_sources import LogBlock

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from align.curves.line_layouts import LineLayouts
    from align.curves.loss_log import Integers


@dataclass(frozen=True, slots=True, eq=False)
class LineColumns:
    """What was found: the places of the lines in the block, and by group the texts, "" for one that took no part."""

    places: Integers
    columns: tuple[Sequence[str], ...]


def find_lines(
    block: LogBlock, pattern: re.Pattern[str], others: Integers | None = None
) -> tuple[Integers, list[tuple[str, ...]]]:
    """Return the line numbers and the groups, "" for one that took no part, of all matches of a pattern in a block.

    The pattern needs two groups or more, and must not reach over a line's end; it is fast if it begins with a fixed
    text. `others` are lines that are known to have no match: where all the rest have one, their numbers cost nothing.
    """
    rows: list[tuple[str, ...]] = pattern.findall(block.text)
    numbers = block.numbers if others is None or not len(others) else np.setdiff1d(block.numbers, others)
    if len(rows) == len(numbers):
        return numbers, rows
    if not rows:
        return block.numbers[:0], rows
    starts = np.fromiter((match.start() for match in pattern.finditer(block.text)), np.int64, len(rows))
    ends = np.flatnonzero(np.frombuffer(block.text.encode("utf-32-le", "surrogatepass"), np.uint32) == ord("\n"))
    return block.numbers[np.searchsorted(ends, starts)], rows


def find_columns(block: LogBlock, pattern: re.Pattern[str], others: Integers | None = None) -> LineColumns:
    """Find all that `find_lines` finds, in columns; without a match there are none.

    `others` are the places of lines that are known to have no match.
    """
    layouts = block.layouts if is_digit_blind(pattern) else None
    found = None if layouts is None else _by_layout(layouts, pattern)
    if found is not None:
        return found
    places, rows = find_lines(LogBlock(block.text, np.arange(len(block.numbers))), pattern, others)
    return LineColumns(places, tuple(zip(*rows, strict=True)))


def _by_layout(layouts: LineLayouts, pattern: re.Pattern[str]) -> LineColumns | None:
    """Search the samples; None if a line has more than one match."""
    found = [list(pattern.finditer(sample)) for sample in layouts.samples]
    if max(map(len, found)) > 1:
        return None
    rows = np.flatnonzero(np.array([bool(matches) for matches in found])[layouts.kinds])
    if not len(rows):
        return LineColumns(rows, ())
    columns = (
        layout_column(layouts, rows, [group_field(*matches, group=group) for matches in found])
        for group in range(1, pattern.groups + 1)
    )
    return LineColumns(rows, tuple(columns))


def layout_column(layouts: LineLayouts, rows: Integers, fields: Sequence[Field]) -> PrintedColumn:
    """Return the texts that some lines have, by layout, at these places."""
    return PrintedColumn(layouts.letters, layouts.starts[rows], layouts.kinds[rows], fields, layouts.varying)


def search_texts(texts: Sequence[str], pattern: re.Pattern[str]) -> Sequence[str]:
    """Return what the first group of an expression finds in each text, "" where it finds nothing."""
    if isinstance(texts, PrintedColumn) and is_digit_blind(pattern):
        found = (pattern.search(field.text) for field in texts.fields)
        return texts.parted([group_field(match, group=1) for match in found])
    return [match[1] if match else "" for match in map(pattern.search, texts)]


def group_field(match: re.Match[str] | None = None, *, group: int | str) -> Field:
    """Tell where a group stands in its line; an empty field if it took no part."""
    if match is None or match.start(group) < 0:
        return NO_FIELD
    return field_at(match.string, *match.span(group))


def field_at(line: str, start: int, end: int) -> Field:
    """Tell where the letters [start, end) of a line stand among its bytes."""
    if line.isascii():
        return Field(start, end, line[start:end])
    first = len(line[:start].encode("utf-8", "surrogatepass"))
    text = line[start:end]
    return Field(first, first + len(text.encode("utf-8", "surrogatepass")), text)


def stripped_field(line: str, start: int, end: int) -> Field:
    """Tell where the letters [start, end) of a line stand among its bytes, without the spaces around them."""
    text = line[start:end]
    start += len(text) - len(text.lstrip())
    return field_at(line, start, start + len(text.strip()))
