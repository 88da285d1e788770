"""The cells of delimited text in columns: comma, semicolon or tab.

Lines without quotes are parted a layout at a time, else, all of as many cells, by the block; any other block line by
line.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.curves.printed_columns import ABSENT, ABSENT_FIELD, layout_column, stripped_field
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.curves.log_sources import LogBlock, LogSource
    from align.curves.loss_log import Integers
    from align.curves.printed_columns import Field, PrintedColumn

_DELIMITERS = ",;\t"
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True, slots=True)
class Header:
    """The line that names the columns: its number, the names, and what stands between them."""

    line: int
    names: tuple[str, ...]
    delimiter: str


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows in columns: `columns[i]` holds the cells, without spaces around them, under `names[i]`.

    A row that is shorter than the header has ABSENT there.
    """

    lines: Integers
    columns: Sequence[Sequence[str]]


def find_header(source: LogSource) -> Header | None:
    """Find the first line that is neither blank nor a comment; None if it has no delimiter, or is a JSON object."""
    for number, line in source.lines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("{"):
            return None
        delimiter = max(_DELIMITERS, key=line.count)
        return Header(number, tuple(_parted(line, delimiter)), delimiter) if delimiter in line else None
    return None


def read_cells(source: LogSource, header: Header, double: list[int]) -> Iterator[tuple[LogBlock, Cells]]:
    """Yield each block with its rows after the header; a header again (runs appended to one file) is no row.

    Lines in which two rows ran together, so that a cell is of both, are left out and go to `double`.
    """
    for block in source.blocks():
        cells = _by_layout(block, header)
        if cells is None:
            cells = _without_headers(_regular(block, header) or _one_by_one(block, header, double), header)
        yield block, cells


def double_notes(double: list[int]) -> tuple[str, ...]:
    """Say which lines are left out as they hold two rows."""
    return (sentence("logs_note.double_rows", count=len(double), line=double[0]),) if double else ()


def by_name(header: Header, cells: Cells, repeated: dict[str, int]) -> Mapping[str, Sequence[str]]:
    """Put columns under their names; names with two unlike texts go to `repeated` with their first line."""
    named = dict(zip(header.names, cells.columns, strict=True))
    if len(named) < len(header.names):
        for name, column in zip(header.names, cells.columns, strict=True):
            unlike = next((row for row, (a, b) in enumerate(zip(column, named[name], strict=True)) if a != b), None)
            if unlike is not None:
                repeated.setdefault(name, int(cells.lines[unlike]))
    return named


def _by_layout(block: LogBlock, header: Header) -> Cells | None:
    """Part one line of each layout; None if there are too many, or a line has quotes or more cells than the header."""
    layouts, width = block.layouts, len(header.names)
    if layouts is None or '"' in block.text:
        return None
    parted = [_fields(sample, header.delimiter) for sample in layouts.samples]
    if max(map(len, parted)) > width:
        return None
    rows = np.flatnonzero(np.array([bool(fields) for fields in parted])[layouts.kinds])
    rows = rows[block.numbers[rows] >= header.line]
    filled = [fields + [ABSENT_FIELD] * (width - len(fields)) for fields in parted]
    columns = [layout_column(layouts, rows, fields) for fields in zip(*filled, strict=True)]
    if len(again := _header_rows(columns, header)):
        rows = np.delete(rows, again)
        columns = [layout_column(layouts, rows, column.fields) for column in columns]
    return Cells(block.numbers[rows], columns)


def _fields(line: str, delimiter: str) -> list[Field]:
    """Tell where the cells of a line without quotes stand, without the spaces around them; none in a blank one."""
    ends = [*(found.start() for found in re.finditer(delimiter, line)), len(line)] if line.strip() else []
    return [stripped_field(line, start, end) for start, end in zip((0, *(end + 1 for end in ends)), ends, strict=False)]


def _header_rows(columns: Sequence[PrintedColumn], header: Header) -> Integers:
    """Return the rows that are the header again; a layout like its own may have other digits."""
    names = [_DIGIT.sub("0", name) for name in header.names]
    layouts = zip(*(column.fields for column in columns), strict=True)
    alike = [[_DIGIT.sub("0", field.text) for field in fields] == names for fields in layouts]
    rows = np.flatnonzero(np.array(alike)[columns[0].kinds])
    return rows[[tuple(column[row] for column in columns) == header.names for row in rows.tolist()]]


def _regular(block: LogBlock, header: Header) -> Cells | None:
    """Part a block at once; None unless each line has as many cells as the header, and no quotes."""
    text, width, count = block.text, len(header.names), len(block.numbers)
    letters = np.frombuffer(text.encode(), np.uint8)
    ends = letters == ord("\n")
    ends = ends[ends | (letters == ord(header.delimiter))]
    if '"' in text or len(ends) != width * count - 1 or ends.sum() != ends[width - 1 :: width].sum():
        return None
    cells = text.replace("\n", header.delimiter).split(header.delimiter)
    if " " in text or "\t" in text:
        cells = list(map(str.strip, cells))
    return Cells(block.numbers, [cells[place::width] for place in range(width)])


def _one_by_one(block: LogBlock, header: Header, double: list[int]) -> Cells:
    rows, lines, width = [], [], len(header.names)
    for number, line in block.lines():
        cells = _parted(line, header.delimiter) if line.strip() else []
        if len(cells) >= 2 * width - 1 and any(cells[width:]):
            double.append(number)
        elif cells:
            rows.append(cells[:width] + [ABSENT] * (width - len(cells)))
            lines.append(number)
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    return Cells(np.array(lines, np.int64), columns)


def _without_headers(cells: Cells, header: Header) -> Cells:
    """Take out what stands before the header, and each header."""
    kept = cells.lines >= header.line
    if header.names[0] in cells.columns[0]:
        rows = zip(*cells.columns, strict=True)
        kept &= np.fromiter((row != header.names for row in rows), np.bool_, len(kept))
    if kept.all():
        return cells
    rows = np.flatnonzero(kept).tolist()
    return Cells(cells.lines[kept], [[column[row] for row in rows] for column in cells.columns])


def _parted(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
    except csv.Error:
        return [cell.strip() for cell in line.split(delimiter)]
